//! The operators' audit in the file: an entry and its effect share one transaction.

use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};

use abide_actors::journal::{ResponseScope, StoreError, StoredResponse};
use abide_conversation::{Revision, Scoped, Tenant};
use async_trait::async_trait;
use redb::{Error, ReadableTable, TableError, WriteTransaction};

use super::super::operations::{
    ChainEntry, Effect, MAX_OPERATIONS, Operation, OperationLog, OperationOutcome,
};
use super::super::sealing::{Label, Sealer};
use super::super::{HistoryEntry, RolloutChange, StoredAgent};
use super::encryption::{self, Snapshot};
use super::notices::NoticeWrite;
use super::revisions::{self, EncodedRollout, RevisionChange};
use super::write::{OpenTables, Outcome, ReplaceAgent, Write};
use super::{Embedded, encode, tables};

/// The chain of the cluster; no tenant has this name.
const CLUSTER: &str = "";

/// An operation with its effect, encoded by the caller.
pub(super) struct Operate {
    operation: Operation,
    /// `None` if the effect follows.
    effect: Option<Write>,
    /// Whether there is nothing to write down where the effect finds nothing.
    needs_target: bool,
    /// Where the writer leaves the entry for the caller.
    entry: EntrySlot,
    sealer: Option<Arc<Sealer>>,
}

type EntrySlot = Arc<Mutex<Option<ChainEntry>>>;

#[async_trait]
impl OperationLog for Embedded {
    async fn operate(
        &self,
        operation: &Operation,
        effect: Effect,
    ) -> Result<OperationOutcome, StoreError> {
        let needs_target = effect.needs_target();
        let (operation, entry) = (operation.clone(), EntrySlot::default());
        let effect = self.encoded(effect)?;
        let (slot, sealer) = (Arc::clone(&entry), self.shared.sealer.clone());
        let operate = Operate { operation, effect, needs_target, entry: slot, sealer };
        let answer = self.write(Write::Operate(Box::new(operate))).await?;
        let entry = entry.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(OperationOutcome { answer, entry })
    }

    async fn operations(
        &self,
        tenant: Option<&Tenant>,
        after: u64,
        limit: usize,
    ) -> Result<Vec<ChainEntry>, StoreError> {
        let chain = name_of_chain(tenant).to_owned();
        self.read(move |from| entries(from, &chain, after, limit)).await
    }
}

impl Embedded {
    /// The write that puts a definition if `newest` is the newest revision of its name.
    pub(super) fn encoded_agent(
        &self,
        tenant: &Tenant,
        agent: &StoredAgent,
        response: Option<StoredResponse>,
        newest: Option<&Revision>,
    ) -> Result<ReplaceAgent, StoreError> {
        let name = Scoped::new(tenant, &agent.name);
        let scope = ResponseScope::Agent(name.clone());
        Ok(ReplaceAgent {
            newest: newest.map(Revision::to_string),
            entry: HistoryEntry::from(agent),
            json: self.sealed_agent(&name, agent)?,
            response: encode::response(&scope, response, self.sealer())?,
            name,
        })
    }

    fn encoded(&self, effect: Effect) -> Result<Option<Write>, StoreError> {
        let sealer = self.sealer();
        Ok(Some(match effect {
            Effect::Follows => return Ok(None),
            Effect::PutAgent { tenant, agent, response, newest } => Write::ReplaceAgent(
                self.encoded_agent(&tenant, &agent, response, newest.as_ref())?,
            ),
            Effect::DeleteAgent { name, response } => {
                let response =
                    encode::response(&ResponseScope::Agent(name.clone()), response, sealer)?;
                Write::DeleteAgent { name, response }
            }
            Effect::ChangeRollout(RolloutChange { name, rollout, response }) => {
                let response =
                    encode::response(&ResponseScope::Agent(name.clone()), response, sealer)?;
                let change = EncodedRollout { name, rollout, response };
                Write::ChangeRevisions(RevisionChange::RollOut(change))
            }
            Effect::ReplaceDecision { agent, decision } => {
                let label = Label { kind: "decision", owner: agent.as_str(), part: "" };
                let json = Some(self.seal_json(label, &decision)?);
                Write::SetDecision { agent, id: decision.id, json }
            }
            Effect::ChangeKey(change) => {
                let json = encode::changed_key(&change)?;
                Write::ChangeKey { change, json }
            }
            Effect::DeleteBlob(id) => Write::DeleteBlob { id },
            Effect::ChangeWebhooks(change) => {
                Write::Notice(NoticeWrite::Change(self.encoded_webhooks(&change)?))
            }
        }))
    }
}

/// Applies the effect, and writes the entry unless there was nothing to do. A refused write has
/// changed nothing.
pub(super) fn apply(tables: &mut OpenTables<'_>, operate: &Operate) -> Result<Outcome, Error> {
    let answer = match &operate.effect {
        Some(effect) if operate.needs_target && !has_target(tables, effect)? => {
            return Ok(Ok(false));
        }
        Some(effect) => match tables.apply(effect)? {
            Ok(answer) => answer,
            Err(refused) => return Ok(Err(refused)),
        },
        None => true,
    };
    if answer || !operate.needs_target {
        let entry = record(tables.transaction, operate)?;
        *operate.entry.lock().unwrap_or_else(PoisonError::into_inner) = Some(entry);
    }
    Ok(Ok(answer))
}

/// Whether the effect finds what it changes, where it would write something even if it did not.
fn has_target(tables: &mut OpenTables<'_>, effect: &Write) -> Result<bool, Error> {
    match effect {
        Write::DeleteAgent { name, .. } => {
            Ok(tables.of(name)?.agents.get(name.as_str())?.is_some())
        }
        Write::SetDecision { agent, id, .. } => {
            Ok(tables.decisions.get((agent.as_str(), id.as_str()))?.is_some())
        }
        Write::ChangeRevisions(RevisionChange::RollOut(change)) => {
            revisions::may_change_rollout(tables, change)
        }
        Write::Notice(write) => write.has_target(tables.transaction),
        _ => Ok(true),
    }
}

/// Writes the entry into its chains. Returns that of the cluster.
fn record(transaction: &WriteTransaction, operate: &Operate) -> Result<ChainEntry, Error> {
    if let Some(tenant) = &operate.operation.tenant {
        append(transaction, tenant.as_str(), operate)?;
    }
    append(transaction, CLUSTER, operate)
}

fn append(
    transaction: &WriteTransaction,
    chain: &str,
    Operate { operation, sealer, .. }: &Operate,
) -> Result<ChainEntry, Error> {
    let sealer = sealer.as_deref();
    let mut table = transaction.open_table(tables::OPERATIONS)?;
    let last = table.range((chain, 0)..=(chain, u64::MAX))?.next_back().transpose()?;
    let last = last.map(|(key, stored)| opened(sealer, chain, key.value().1, stored.value()));
    let end = last.transpose()?.map(|last| last.end()).unwrap_or_default();
    let corrupt = |error: &dyn std::fmt::Display| Error::Corrupted(format!("operation: {error}"));
    let entry = ChainEntry::after(&end, operation).map_err(|error| corrupt(&error))?;
    let stored = sealed(sealer, chain, &entry).map_err(|error| corrupt(&error))?;
    table.insert((chain, entry.seq()), stored.as_slice())?;
    if let Some(surplus) = entry.seq().checked_sub(MAX_OPERATIONS) {
        table.remove((chain, surplus))?;
    }
    Ok(entry)
}

/// An entry as it is stored in a chain.
pub(super) fn sealed(
    sealer: Option<&Sealer>,
    chain: &str,
    entry: &ChainEntry,
) -> Result<Vec<u8>, StoreError> {
    let (json, seq) = (encode::json(entry)?, entry.seq().to_string());
    match sealer {
        Some(sealer) => Ok(sealer.seal(Label::operation(chain, &seq), json.into())?.into_owned()),
        None => Ok(json),
    }
}

/// The entry of this `seq`, given what is stored in a chain.
fn opened(
    sealer: Option<&Sealer>,
    chain: &str,
    seq: u64,
    stored: &[u8],
) -> Result<ChainEntry, Error> {
    let seq = seq.to_string();
    match sealer {
        Some(sealer) => {
            let json = sealer.open(Label::operation(chain, &seq), stored.into());
            tables::parse("operation", &json.map_err(encryption::failed)?)
        }
        None => tables::parse("operation", stored),
    }
}

/// The name of the chain of a tenant, or of the cluster's.
pub(super) fn name_of_chain(tenant: Option<&Tenant>) -> &str {
    tenant.map_or(CLUSTER, Tenant::as_str)
}

/// Replaces an entry at the place that it has. Returns whether the chain still has it.
pub(super) fn replace(
    transaction: &WriteTransaction,
    chain: &str,
    seq: u64,
    json: &[u8],
) -> Result<bool, Error> {
    let mut table = transaction.open_table(tables::OPERATIONS)?;
    let is_there = table.get((chain, seq))?.is_some();
    if is_there {
        table.insert((chain, seq), json)?;
    }
    Ok(is_there)
}

fn entries(
    from: &Snapshot<'_>,
    chain: &str,
    after: u64,
    limit: usize,
) -> Result<Vec<ChainEntry>, Error> {
    let table = match from.open_table(tables::OPERATIONS) {
        Ok(table) => table,
        // A store of an earlier version that had no room for the table.
        Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let later = (Bound::Excluded((chain, after)), Bound::Included((chain, u64::MAX)));
    let rows = table.range::<(&str, u64)>(later)?.take(limit);
    rows.map(|row| {
        let (key, stored) = row?;
        opened(from.sealer, chain, key.value().1, stored.value())
    })
    .collect()
}
