//! Erasures in the file: a table for each tenant, and one of when they are due.

use std::ops::Range;

use abide_actors::journal::{Claim, InboxEntry, Rewrite, StoreError};
use abide_conversation::erase::SubjectAlias;
use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::{AgentName, ConversationId, ErasureId, Scoped, Tenant, Timestamp};
use async_trait::async_trait;
use jiff::civil::Date;
use redb::{Error, ReadTransaction, ReadableTable, TableDefinition, TableError, WriteTransaction};

use super::super::erasures::Erasures;
use super::super::listing::Entry;
use super::super::operations::ChainEntry;
use super::super::sealing::{Label, OwnKey, Sealer, seal_own};
use super::super::{ListError, Page, paging};
use super::encryption::{self, Snapshot};
use super::tables::{self, Listed, Nanos, Record, nanos};
use super::write::Write;
use super::{Embedded, encode, operations, overwrite, read, usage};
use crate::erasure::Erasure;

/// Erasure → what is stored of it.
const ERASURES: Listed<&str, &[u8]> = Listed::new("erasures");
/// Erasure → its version, and when it is due.
const VERSIONS: TableDefinition<&str, (u64, Nanos)> = TableDefinition::new("erasure_versions");
/// When it is due, erasure.
const DUE: TableDefinition<(Nanos, &str), ()> = TableDefinition::new("erasures_due");

/// A write of an erasure, encoded by the caller.
pub(super) enum ErasureWrite {
    Replace {
        name: Scoped<ErasureId>,
        known: Option<u64>,
        /// The erasure from now on, its version, and when it is due.
        next: Option<(Vec<u8>, u64, Nanos)>,
    },
    RenameUsage {
        tenant: Tenant,
        last: Date,
        alias: SubjectAlias,
    },
    ReplaceOperation {
        chain: String,
        seq: u64,
        json: Vec<u8>,
    },
    Fill {
        rows: Range<u64>,
    },
    EndFilling,
}

/// What takes the place of a part of a journal, as bytes.
pub(super) struct EncodedRewrite {
    pub(super) id: Scoped<ConversationId>,
    pub(super) held: Claim,
    pub(super) rewrite: Rewrite,
    pub(super) record: Vec<u8>,
    pub(super) events: Vec<Vec<u8>>,
    pub(super) entries: Vec<Vec<u8>>,
    pub(super) entry: Entry,
}

impl EncodedRewrite {
    pub(super) fn new(
        id: &Scoped<ConversationId>,
        held: &Claim,
        rewrite: Rewrite,
        (sealer, own): (Option<&Sealer>, Option<&OwnKey>),
    ) -> Result<Self, StoreError> {
        let summary = &rewrite.summary;
        let mut record =
            Record { epoch: held.epoch, summary: summary.clone(), key: None, sealed: None };
        own.map(|own| record.seal(own)).transpose()?;
        let record = encode::json(&record)?;
        let events = rewrite.events.iter().map(|event| {
            let json = encode::json(event)?;
            Ok(seal_own(own, "event", &event.seq.to_string(), &json)?.into_owned())
        });
        let events = events.collect::<Result<_, StoreError>>()?;
        let entries = rewrite.open.iter().map(|pending| {
            let (conversation_id, agent) = (id.local(), summary.agent.clone());
            let participants = summary.participants.clone();
            let entry =
                InboxEntry { conversation_id, agent, participants, pending: pending.clone() };
            encode::inbox_entry(id, &entry, sealer)
        });
        let entries = entries.collect::<Result<_, _>>()?;
        let index_key = sealer.and_then(Sealer::new_index_key);
        let entry = Entry::new(summary, &rewrite.indexed, index_key);
        let (id, held) = (id.clone(), held.clone());
        Ok(Self { id, held, rewrite, record, events, entries, entry })
    }
}

#[async_trait]
impl Erasures for Embedded {
    async fn erasure(&self, name: &Scoped<ErasureId>) -> Result<Option<Erasure>, StoreError> {
        self.read_row(|from| match ERASURES.open(from, &name.tenant())? {
            Some(table) => {
                table.get(name.as_str())?.map(|json| opened(from, name, json.value())).transpose()
            }
            None => Ok(None),
        })
    }

    async fn replace_erasure(
        &self,
        name: &Scoped<ErasureId>,
        known: Option<u64>,
        next: Option<&Erasure>,
    ) -> Result<bool, StoreError> {
        let next = match next {
            Some(next) => {
                let json = self.seal_json(label(name), next)?;
                Some((json, next.version, nanos(next.due_at())))
            }
            None => None,
        };
        let replace = ErasureWrite::Replace { name: name.clone(), known, next };
        self.write(Write::Erasure(Box::new(replace))).await
    }

    async fn erasures(
        &self,
        tenant: &Tenant,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<Erasure>, ListError> {
        let after: Option<Scoped<ErasureId>> = paging::decode(cursor)?;
        if after.as_ref().is_some_and(|after| !after.is_of(tenant)) {
            return Err(ListError::Cursor);
        }
        let tenant = tenant.clone();
        Ok(self.read(move |from| page(from, &tenant, after.as_ref(), limit)).await?)
    }

    async fn due_erasures(
        &self,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<Scoped<ErasureId>>, StoreError> {
        self.read_row(|from| due(from, until, limit))
    }

    async fn rename_usage(
        &self,
        tenant: &Tenant,
        last: Date,
        alias: &SubjectAlias,
    ) -> Result<(), StoreError> {
        let (tenant, alias) = (tenant.clone(), alias.clone());
        let rename = ErasureWrite::RenameUsage { tenant, last, alias };
        self.write(Write::Erasure(Box::new(rename))).await.map(drop)
    }

    async fn replace_operation(
        &self,
        tenant: Option<&Tenant>,
        entry: &ChainEntry,
    ) -> Result<(), StoreError> {
        let chain = operations::name_of_chain(tenant).to_owned();
        let (seq, json) = (entry.seq(), operations::sealed(self.sealer(), &chain, entry)?);
        let replace = ErasureWrite::ReplaceOperation { chain, seq, json };
        self.write(Write::Erasure(Box::new(replace))).await.map(drop)
    }

    async fn replace_decision(
        &self,
        agent: &Scoped<AgentName>,
        read: &RememberedDecision,
        next: &RememberedDecision,
    ) -> Result<bool, StoreError> {
        let stored = self.read_row(|from| read::stored_decision(from, agent, &read.id))?;
        let Some((_, stored)) = stored.filter(|(present, _)| present == read) else {
            return Ok(false);
        };
        let label = Label { kind: "decision", owner: agent.as_str(), part: "" };
        let json = self.seal_json(label, next)?;
        let (agent, id) = (agent.clone(), read.id.clone());
        self.write(Write::ReplaceDecision { agent, id, read: stored, json }).await
    }

    async fn overwrite_deleted(&self) -> Result<(), StoreError> {
        self.overwrite_free_pages().await
    }
}

/// Returns whether there was what the write is for.
pub(super) fn apply(to: &WriteTransaction, write: &ErasureWrite) -> Result<bool, Error> {
    match write {
        ErasureWrite::Replace { name, known, next } => replace(to, name, *known, next.as_ref()),
        ErasureWrite::RenameUsage { tenant, last, alias } => {
            usage::rename(to, tenant, *last, alias).map(|()| true)
        }
        ErasureWrite::ReplaceOperation { chain, seq, json } => {
            operations::replace(to, chain, *seq, json)
        }
        ErasureWrite::Fill { rows } => overwrite::fill(to, rows.clone()),
        ErasureWrite::EndFilling => overwrite::end_filling(to),
    }
}

fn replace(
    to: &WriteTransaction,
    name: &Scoped<ErasureId>,
    known: Option<u64>,
    next: Option<&(Vec<u8>, u64, Nanos)>,
) -> Result<bool, Error> {
    let mut table = ERASURES.open_to_write(to, &name.tenant())?;
    let (mut versions, mut due) = (to.open_table(VERSIONS)?, to.open_table(DUE)?);
    let before = versions.get(name.as_str())?.map(|before| before.value());
    if before.map(|(version, _)| version) != known {
        return Ok(false);
    }
    if let Some((_, at)) = before {
        due.remove((at, name.as_str()))?;
    }
    match next {
        Some((json, version, at)) => {
            table.insert(name.as_str(), json.as_slice())?;
            versions.insert(name.as_str(), (*version, *at))?;
            due.insert((*at, name.as_str()), ())?;
        }
        None => {
            table.remove(name.as_str())?;
            versions.remove(name.as_str())?;
        }
    }
    Ok(true)
}

/// An erasure names the person while it runs.
fn label(name: &Scoped<ErasureId>) -> Label<'_> {
    Label { kind: "erasure", owner: name.as_str(), part: "" }
}

fn opened(from: &Snapshot<'_>, name: &Scoped<ErasureId>, value: &[u8]) -> Result<Erasure, Error> {
    match from.sealer {
        Some(sealer) => {
            let json = sealer.open(label(name), value.into()).map_err(encryption::failed)?;
            tables::parse("erasure", &json)
        }
        None => tables::parse("erasure", value),
    }
}

fn page(
    from: &Snapshot<'_>,
    tenant: &Tenant,
    after: Option<&Scoped<ErasureId>>,
    limit: usize,
) -> Result<Page<Erasure>, Error> {
    let Some(table) = ERASURES.open(from, tenant)? else { return Ok(paging::empty()) };
    let after = after.map(Scoped::as_str);
    let begin = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
    let rows = table.range::<&str>((begin, std::ops::Bound::Unbounded))?.map(|row| {
        let (name, json) = row?;
        let name = tables::id(name.value())?;
        let erasure = opened(from, &name, json.value())?;
        Ok((name.as_str().to_owned(), erasure))
    });
    paging::page(rows, limit, |_| true)
}

fn due(
    from: &ReadTransaction,
    until: Timestamp,
    limit: usize,
) -> Result<Vec<Scoped<ErasureId>>, Error> {
    let table = match from.open_table(DUE) {
        Ok(table) => table,
        // There never was an erasure.
        Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let rows = table.range::<(Nanos, &str)>(..=(nanos(until), "\u{10ffff}"))?.take(limit);
    rows.map(|row| tables::id(row?.0.value().1)).collect()
}
