//! The revisions of agents in the file: the history of each agent is one row.

use abide_actors::journal::StoreError;
use abide_conversation::{AgentName, Revision, Scoped, Tenant};
use async_trait::async_trait;
use redb::WriteTransaction;
use redb::{Error, ReadTransaction, ReadableTable, Table, TableDefinition, TableError};

use super::super::revisions::{
    CurrentNames, History, HistoryEntry, may_change, note, take_droppable,
};
use super::super::{CurrentRevisions, Rollout, StoredAgent};
use super::encode::EncodedResponse;
use super::write::{OpenTables, Write};
use super::{Embedded, read, tables};

/// Agent → its revisions, the one that was put last at the front.
const HISTORIES: TableDefinition<&str, &[u8]> = TableDefinition::new("histories");

/// Agent → the revision that a share of its conversations runs on, and the share.
const ROLLOUTS: TableDefinition<&str, &[u8]> = TableDefinition::new("rollouts");

/// A change of the revisions that are not the newest.
pub(super) enum RevisionChange {
    Add(Added),
    Drop(Dropped),
    RollOut(EncodedRollout),
}

/// A rollout that begins, changes or ends.
pub(super) struct EncodedRollout {
    pub(super) name: Scoped<AgentName>,
    pub(super) rollout: Option<Rollout>,
    pub(super) response: Option<EncodedResponse>,
}

/// A revision that comes before all others.
pub(super) struct Added {
    name: Scoped<AgentName>,
    revision: Revision,
    json: Vec<u8>,
}

/// Revisions that go unless they are newer than they seemed.
pub(super) struct Dropped {
    name: Scoped<AgentName>,
    revisions: Vec<Revision>,
    spared: usize,
}

#[async_trait]
impl History for Embedded {
    async fn history(&self, name: &Scoped<AgentName>) -> Result<Vec<HistoryEntry>, StoreError> {
        self.read_row(|from| read_history(from, name))
    }

    async fn current_revisions(
        &self,
        name: &Scoped<AgentName>,
    ) -> Result<Option<CurrentRevisions>, StoreError> {
        self.read_row(|from| {
            let Some(newest) = read::newest(from, name)? else { return Ok(None) };
            let rollout = match from.open_table(ROLLOUTS) {
                Ok(table) => stored_rollout(&table, name)?,
                // There never was a rollout.
                Err(TableError::TableDoesNotExist(_)) => None,
                Err(error) => return Err(error.into()),
            };
            Ok(Some(CurrentRevisions { newest, rollout }))
        })
    }

    async fn add_revision(&self, tenant: &Tenant, agent: StoredAgent) -> Result<(), StoreError> {
        let name = Scoped::new(tenant, &agent.name);
        let json = self.sealed_agent(&name, &agent)?;
        let added = Added { name, revision: agent.revision, json };
        self.write(Write::ChangeRevisions(RevisionChange::Add(added))).await.map(drop)
    }

    async fn drop_revisions(
        &self,
        name: &Scoped<AgentName>,
        revisions: &[Revision],
        spared: usize,
    ) -> Result<(), StoreError> {
        let (name, revisions) = (name.clone(), revisions.to_vec());
        let dropped = Dropped { name, revisions, spared };
        self.write(Write::ChangeRevisions(RevisionChange::Drop(dropped))).await.map(drop)
    }
}

/// Notes that a revision replaces another one, or none, as the newest of a name.
pub(super) fn put(
    to: &WriteTransaction,
    name: &Scoped<AgentName>,
    before: Option<&str>,
    entry: &HistoryEntry,
) -> Result<(), Error> {
    let mut table = to.open_table(HISTORIES)?;
    let mut history = stored(&table, name)?;
    note(&mut history, before.map(Revision::new).as_ref(), entry.clone());
    write(&mut table, name, &history)?;
    let mut rollouts = to.open_table(ROLLOUTS)?;
    let is_over = stored_rollout(&rollouts, name)?.is_some_and(|it| it.revision == entry.revision);
    if is_over {
        rollouts.remove(name.as_str())?;
    }
    Ok(())
}

/// Returns whether there was anything to do.
pub(super) fn change(to: &mut OpenTables<'_>, change: &RevisionChange) -> Result<bool, Error> {
    match change {
        RevisionChange::Add(added) => add(to, added),
        RevisionChange::Drop(dropped) => drop_all(to, dropped),
        RevisionChange::RollOut(change) => change_rollout(to, change),
    }
}

fn add(to: &mut OpenTables<'_>, added: &Added) -> Result<bool, Error> {
    let Added { name, revision, json } = added;
    let key = name.sibling(revision);
    if to.revisions.get(key.as_str())?.is_some() {
        return Ok(false);
    }
    to.revisions.insert(key.as_str(), json.as_slice())?;
    let mut table = to.transaction.open_table(HISTORIES)?;
    let mut history = stored(&table, name)?;
    history.push(HistoryEntry { revision: revision.clone(), put_at: None });
    write(&mut table, name, &history)?;
    Ok(true)
}

fn drop_all(to: &mut OpenTables<'_>, dropped: &Dropped) -> Result<bool, Error> {
    let Dropped { name, revisions, spared } = dropped;
    let newest = to.of(name)?.agents.get(name.as_str())?;
    let newest = newest.map(|newest| Revision::new(newest.value()));
    let mut table = to.transaction.open_table(HISTORIES)?;
    let mut history = stored(&table, name)?;
    let rollout = stored_rollout(&to.transaction.open_table(ROLLOUTS)?, name)?;
    let current = CurrentNames { newest: newest.as_ref(), rollout: rollout.as_ref() };
    let gone = take_droppable(&mut history, &current, revisions, *spared);
    for revision in &gone {
        to.revisions.remove(name.sibling(revision).as_str())?;
    }
    write(&mut table, name, &history)?;
    Ok(!gone.is_empty())
}

/// Whether the change finds what it needs.
pub(super) fn may_change_rollout(
    to: &mut OpenTables<'_>,
    change: &EncodedRollout,
) -> Result<bool, Error> {
    let EncodedRollout { name, rollout, .. } = change;
    let newest = to.of(name)?.agents.get(name.as_str())?;
    let newest = newest.map(|newest| Revision::new(newest.value()));
    let present = stored_rollout(&to.transaction.open_table(ROLLOUTS)?, name)?;
    let exists = match rollout {
        Some(next) => to.revisions.get(name.sibling(&next.revision).as_str())?.is_some(),
        None => false,
    };
    Ok(may_change(newest.as_ref(), present.as_ref(), rollout.as_ref(), |_| exists))
}

fn change_rollout(to: &mut OpenTables<'_>, change: &EncodedRollout) -> Result<bool, Error> {
    let EncodedRollout { name, rollout, response } = change;
    let mut table = to.transaction.open_table(ROLLOUTS)?;
    match rollout {
        Some(rollout) => {
            let json = serde_json::to_vec(rollout);
            let json = json.map_err(|error| Error::Corrupted(format!("rollout: {error}")))?;
            table.insert(name.as_str(), json.as_slice())?;
        }
        None => drop(table.remove(name.as_str())?),
    }
    drop(table);
    to.keep(response)?;
    Ok(true)
}

/// Ends the rollout of a name that is deleted.
pub(super) fn end_rollout(to: &WriteTransaction, name: &Scoped<AgentName>) -> Result<(), Error> {
    to.open_table(ROLLOUTS)?.remove(name.as_str())?;
    Ok(())
}

fn stored_rollout(
    table: &impl ReadableTable<&'static str, &'static [u8]>,
    name: &Scoped<AgentName>,
) -> Result<Option<Rollout>, Error> {
    let json = table.get(name.as_str())?;
    json.map(|json| tables::parse("rollout", json.value())).transpose()
}

fn read_history(
    from: &ReadTransaction,
    name: &Scoped<AgentName>,
) -> Result<Vec<HistoryEntry>, Error> {
    match from.open_table(HISTORIES) {
        Ok(table) => stored(&table, name),
        // No agent was put since there are histories.
        Err(TableError::TableDoesNotExist(_)) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

fn stored(
    table: &impl ReadableTable<&'static str, &'static [u8]>,
    name: &Scoped<AgentName>,
) -> Result<Vec<HistoryEntry>, Error> {
    let json = table.get(name.as_str())?;
    let history = json.map(|json| tables::parse("history", json.value())).transpose()?;
    Ok(history.unwrap_or_default())
}

fn write(
    table: &mut Table<'_, &'static str, &'static [u8]>,
    name: &Scoped<AgentName>,
    history: &[HistoryEntry],
) -> Result<(), Error> {
    let json = serde_json::to_vec(history);
    let json = json.map_err(|error| Error::Corrupted(format!("history: {error}")))?;
    table.insert(name.as_str(), json.as_slice())?;
    Ok(())
}
