//! The keys of an encrypted store, in the file: which are in use is noted once, and each conversation has
//! its data key in its record.

use std::borrow::Cow;
use std::ops::{Bound, Deref};

use abide_actors::journal::{Claim, ConversationSummary, InboxEntry, StoreError};
use abide_actors::notices::OwedNotice;
use abide_conversation::{AgentName, ConversationId, Scoped, Tenant};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use redb::TableError;
use redb::{Database, Error, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition};

use super::super::notices::StoredNotice;
use super::super::paging::InboxKey;
use super::super::sealing::{
    self, CommitKey, KeyRing, Label, NotedKeys, OwnKey, RewrapPass, STORE_KEY, SealedSummary,
    Sealer,
};
use super::super::{Rewrapped, Store, StoredAgent};
use super::read;
use super::sealing_pass::{self, SealedRow};
use super::tables::{self, Record};
use super::write::{OpenTables, Write};
use super::{Embedded, encode};

/// The keys in use: the store's data key under each. It is there once something is sealed.
const ENCRYPTION: TableDefinition<&str, &[u8]> = TableDefinition::new("encryption");
/// How many conversations a step of a pass has.
const CONVERSATIONS_AT_ONCE: usize = 256;
/// What the reason of a damaged row begins with if it cannot be opened.
const UNREADABLE: &str = "unreadable: ";

/// A snapshot of the file, and what opens its values.
pub(super) struct Snapshot<'s> {
    transaction: ReadTransaction,
    pub(super) sealer: Option<&'s Sealer>,
}

impl<'s> Snapshot<'s> {
    pub(super) fn new(transaction: ReadTransaction, sealer: Option<&'s Sealer>) -> Self {
        Self { transaction, sealer }
    }

    /// Opens a value that may be sealed by the store's data key.
    pub(super) fn open<'v>(
        &self,
        label: Label<'_>,
        value: &'v [u8],
    ) -> Result<Cow<'v, [u8]>, Error> {
        match self.sealer {
            Some(sealer) => sealer.open(label, value.into()).map_err(failed),
            None => Ok(Cow::Borrowed(value)),
        }
    }
}

impl Deref for Snapshot<'_> {
    type Target = ReadTransaction;

    fn deref(&self) -> &ReadTransaction {
        &self.transaction
    }
}

/// What seals and opens the values of this file. Refuses other keys than those that it has noted.
pub(super) fn sealer(database: &Database, ring: Option<KeyRing>) -> Result<Option<Sealer>, String> {
    let noted = noted(database).map_err(|error| error.to_string())?;
    let Some(ring) = ring else { return sealing::require_none(&noted).map(|()| None) };
    let (sealer, new) = Sealer::new(ring, &noted)?;
    let first = sealer.note().map_err(|error| error.to_string())?;
    let first = first.filter(|(id, _)| !noted.contains_key(id));
    let new = new.map(|new| (STORE_KEY.to_owned(), new));
    let notes: Vec<_> = new.into_iter().chain(first).collect();
    if !notes.is_empty() {
        note(database, &notes).map_err(|error| error.to_string())?;
    }
    Ok(Some(sealer))
}

fn noted(database: &Database) -> Result<NotedKeys, Error> {
    noted_keys(&database.begin_read()?)
}

fn noted_keys(from: &ReadTransaction) -> Result<NotedKeys, Error> {
    let table = match from.open_table(ENCRYPTION) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(NotedKeys::new()),
        Err(error) => return Err(error.into()),
    };
    let rows = table.range::<&str>(..)?.map(|row| {
        let (id, wrapped) = row?;
        Ok((id.value().to_owned(), wrapped.value().to_vec()))
    });
    rows.collect()
}

fn note(database: &Database, notes: &[(String, Vec<u8>)]) -> Result<(), Error> {
    let transaction = database.begin_write()?;
    {
        let mut table = transaction.open_table(ENCRYPTION)?;
        for (id, wrapped) in notes {
            table.insert(id.as_str(), wrapped.as_slice())?;
        }
    }
    Ok(transaction.commit()?)
}

/// The error of a value that cannot be opened, on its way through the file's own errors.
pub(super) fn failed(error: StoreError) -> Error {
    match error {
        StoreError::Unreadable(reason) => Error::Corrupted(format!("{UNREADABLE}{reason}")),
        error => Error::Corrupted(error.to_string()),
    }
}

/// The reason why a value cannot be opened, if that is what failed.
pub(super) fn unreadable(error: &Error) -> Option<String> {
    let Error::Corrupted(reason) = error else { return None };
    reason.strip_prefix(UNREADABLE).map(str::to_owned)
}

/// What a list has of a row: nothing if the row cannot be opened, so that the others are listed.
pub(super) fn listed<T>(row: Result<Option<T>, Error>) -> Result<Option<T>, Error> {
    match row {
        Err(error) => match unreadable(&error) {
            Some(reason) => {
                tracing::warn!(reason, "unreadable in the store: missing in a list");
                Ok(None)
            }
            None => Err(error),
        },
        row => row,
    }
}

impl Record {
    /// The data key as it is stored; empty if there is none.
    pub(super) fn wrapped_key(&self) -> Vec<u8> {
        let decoded = self.key.as_deref().map(|text| BASE64_STANDARD.decode(text));
        // What is no base64 is a key that cannot be unwrapped.
        decoded.map_or_else(Vec::new, |bytes| bytes.unwrap_or_else(|_| vec![0]))
    }

    /// The data key, if the conversation has one.
    pub(super) fn own_key(
        &self,
        sealer: Option<&Sealer>,
        id: &Scoped<ConversationId>,
    ) -> Result<Option<OwnKey>, StoreError> {
        match sealer {
            Some(sealer) => sealer.own_key_if_any(id, &self.wrapped_key()),
            None => Ok(None),
        }
    }

    /// Seals what the record says of the content, and adds the key.
    pub(super) fn seal(&mut self, own: &OwnKey) -> Result<(), StoreError> {
        self.key = Some(BASE64_STANDARD.encode(own.wrapped()));
        if own.seals() {
            self.sealed = Some(SealedSummary::take(own, &mut self.summary)?);
        }
        Ok(())
    }

    /// The record with what it says of the content.
    pub(super) fn opened(
        mut self,
        sealer: Option<&Sealer>,
        id: &Scoped<ConversationId>,
    ) -> Result<Self, Error> {
        let Some(text) = self.sealed.take() else { return Ok(self) };
        match self.own_key(sealer, id).map_err(failed)? {
            Some(own) => {
                SealedSummary::put_back(&own, &mut self.summary, &text).map_err(failed)?;
            }
            None => return Err(failed(sealing::without_key(id.as_str()))),
        }
        Ok(self)
    }

    /// The summary in a list: without the content that cannot be opened, so that the others are listed.
    pub(super) fn listed(
        self,
        sealer: Option<&Sealer>,
        id: &Scoped<ConversationId>,
    ) -> Result<ConversationSummary, Error> {
        let bare = self.summary.clone();
        let opened = listed(self.opened(sealer, id).map(|record| Some(record.summary)))?;
        Ok(opened.unwrap_or(bare))
    }
}

/// The inbox entry of this key.
pub(super) fn inbox_entry(
    from: &Snapshot<'_>,
    key: &InboxKey,
    value: &[u8],
) -> Result<InboxEntry, Error> {
    let (Some(sealer), true) = (from.sealer, sealing::is_sealed(value)) else {
        return tables::parse("inbox entry", value);
    };
    let part = inbox_part(key.2.as_str(), key.3);
    let label = Label { kind: "inbox", owner: key.1.as_str(), part: &part };
    tables::parse("inbox entry", &sealer.open(label, value.into()).map_err(failed)?)
}

/// What tells apart the inbox entries of a conversation.
pub(super) fn inbox_part(call: &str, suspension: u32) -> String {
    format!("{call} {suspension}")
}

/// What is owed, as it is stored.
pub(super) fn seal_owed(
    sealer: Option<&Sealer>,
    id: &Scoped<ConversationId>,
    owed: Vec<OwedNotice>,
) -> Result<Vec<OwedNotice>, StoreError> {
    let Some(sealer) = sealer else { return Ok(owed) };
    let sealed = owed.into_iter().map(|notice| {
        let stored = sealer.seal_notice(id.as_str(), StoredNotice::from(&notice))?;
        Ok(OwedNotice { body: stored.body.into(), ..notice })
    });
    sealed.collect()
}

impl Embedded {
    pub(super) fn sealer(&self) -> Option<&Sealer> {
        self.shared.sealer.as_deref()
    }

    /// What a commit under this claim seals by; `None` if it is not sealed.
    pub(super) fn commit_key(
        &self,
        id: &Scoped<ConversationId>,
        held: &Claim,
        is_first: bool,
    ) -> Result<Option<CommitKey>, StoreError> {
        let Some(sealer) = self.sealer() else { return Ok(None) };
        if is_first {
            return sealer.commit_key(id, b"");
        }
        if let Some(known) = sealer.known_key(id, held.epoch)? {
            return Ok(Some(known));
        }
        let record = self.read_row(|from| read::sealed_record(from, id))?;
        sealer.commit_key(id, &record.map(|it| it.wrapped_key()).unwrap_or_default())
    }

    /// The summary as it is written by [`relist`](super::listing), and what it says of the content,
    /// sealed if the conversation has a data key.
    pub(super) fn sealed_listing(
        &self,
        id: &Scoped<ConversationId>,
        summary: &mut ConversationSummary,
    ) -> Result<Option<String>, StoreError> {
        let Some(sealer) = self.sealer() else { return Ok(None) };
        let record = self.read_row(|from| read::sealed_record(from, id))?;
        let own = record.map(|record| record.own_key(Some(sealer), id)).transpose()?.flatten();
        match own.filter(OwnKey::seals) {
            Some(own) => SealedSummary::take(&own, summary).map(Some),
            None => Ok(None),
        }
    }

    /// The definition of an agent as it is stored.
    pub(super) fn sealed_agent(
        &self,
        name: &Scoped<AgentName>,
        agent: &StoredAgent,
    ) -> Result<Vec<u8>, StoreError> {
        self.seal_json(Label::definition(&name.sibling(&agent.revision)), agent)
    }

    /// Seals a value of JSON by the store's data key, if there is one.
    pub(super) fn seal_json(
        &self,
        label: Label<'_>,
        value: &impl serde::Serialize,
    ) -> Result<Vec<u8>, StoreError> {
        let json = encode::json(value)?;
        match self.sealer() {
            Some(sealer) => Ok(sealer.seal(label, json.into())?.into_owned()),
            None => Ok(json),
        }
    }
}

/// A change of wrapped data keys.
pub(super) enum KeyWrite {
    /// Each conversation has the key that is expected, and the new one.
    Replace(Vec<(Scoped<ConversationId>, Vec<u8>, Vec<u8>)>),
    /// What belongs to no conversation and was plain is sealed.
    Seal(Vec<SealedRow>),
    /// The store's, if there is a new one, and the keys that are not in use any more.
    Retire { store_key: Option<Vec<u8>>, retired: Vec<String> },
}

impl KeyWrite {
    pub(super) fn apply(&self, to: &mut OpenTables<'_>) -> Result<bool, Error> {
        match self {
            Self::Replace(replaced) => {
                for (id, expected, next) in replaced {
                    replace_key(to, id, expected, next)?;
                }
            }
            Self::Seal(rows) => sealing_pass::replace(to, rows)?,
            Self::Retire { store_key, retired } => {
                let mut table = to.transaction.open_table(ENCRYPTION)?;
                if let Some(store_key) = store_key {
                    table.insert(STORE_KEY, store_key.as_slice())?;
                }
                for id in retired {
                    table.remove(id.as_str())?;
                }
            }
        }
        Ok(true)
    }
}

/// Replaces the wrapped data key of a conversation, if it is still this one.
fn replace_key(
    to: &mut OpenTables<'_>,
    id: &Scoped<ConversationId>,
    expected: &[u8],
    next: &[u8],
) -> Result<(), Error> {
    let heads = &mut to.of(id)?.heads;
    let Some(json) = heads.get(id.as_str())?.map(|json| json.value().to_vec()) else {
        return Ok(());
    };
    let mut record: Record = tables::parse("head", &json)?;
    if record.wrapped_key() == expected {
        record.key = Some(BASE64_STANDARD.encode(next));
        let json = serde_json::to_vec(&record).map_err(|it| Error::Corrupted(it.to_string()))?;
        heads.insert(id.as_str(), json.as_slice())?;
    }
    Ok(())
}

/// A conversation, and its data key as it is stored.
type WrappedKey = (Scoped<ConversationId>, Vec<u8>);

/// The next conversations of a tenant after this one, with their wrapped data keys.
fn wrapped_keys(
    from: &ReadTransaction,
    tenant: &Tenant,
    after: Option<&str>,
) -> Result<Vec<WrappedKey>, Error> {
    let Some(heads) = tables::HEADS.open(from, tenant)? else { return Ok(Vec::new()) };
    let start = after.map_or(Bound::Unbounded, Bound::Excluded);
    let rows = heads.range::<&str>((start, Bound::Unbounded))?.take(CONVERSATIONS_AT_ONCE);
    let rows = rows.map(|row| {
        let (id, json) = row?;
        let record: Record = tables::parse("head", json.value())?;
        Ok((tables::id(id.value())?, record.wrapped_key()))
    });
    rows.collect()
}

impl Embedded {
    /// Has all data keys wrapped by the first key of the key file.
    pub(super) async fn rewrap_all(&self) -> Result<Option<Rewrapped>, StoreError> {
        let Some(sealer) = self.sealer().filter(|sealer| sealer.seals()) else { return Ok(None) };
        let mut pass = RewrapPass::default();
        for tenant in self.tenants().await? {
            let mut after: Option<String> = None;
            loop {
                let (of, last) = (tenant.clone(), after.take());
                let rows = self.read(move |from| wrapped_keys(from, &of, last.as_deref())).await?;
                after = rows.last().map(|(id, _)| id.as_str().to_owned());
                let mut replaced = Vec::new();
                for (id, wrapped) in rows {
                    if let Some(next) = pass.look_at(sealer, id.as_str(), &wrapped)? {
                        replaced.push((id, wrapped, next));
                    }
                }
                if !replaced.is_empty() {
                    pass.done.rewrapped += replaced.len() as u64;
                    self.write(Write::Keys(KeyWrite::Replace(replaced))).await?;
                }
                if after.is_none() {
                    break;
                }
            }
        }
        pass.done.sealed = self.seal_plain().await?;
        let noted = self.read(|from| noted_keys(from)).await?;
        let store_key =
            noted.get(STORE_KEY).map(|it| sealer.rewrapped(STORE_KEY, it)).transpose()?;
        let (store_key, retired) = (store_key.flatten(), pass.unneeded(sealer, &noted));
        pass.done.retired = retired.clone();
        self.write(Write::Keys(KeyWrite::Retire { store_key, retired })).await?;
        Ok(Some(pass.done))
    }
}
