//! The revisions of agents in the file: the history of each agent is one row.

use abide_actors::journal::StoreError;
use abide_conversation::{AgentName, Revision, Scoped, Tenant};
use async_trait::async_trait;
use redb::WriteTransaction;
use redb::{Error, ReadTransaction, ReadableTable, Table, TableDefinition, TableError};

use super::super::StoredAgent;
use super::super::revisions::{History, HistoryEntry, note, take_droppable};
use super::write::{OpenTables, Write};
use super::{Embedded, encode, tables};

/// Agent → its revisions, the one that was put last at the front.
const HISTORIES: TableDefinition<&str, &[u8]> = TableDefinition::new("histories");

/// A change of the revisions that are not the newest.
pub(super) enum RevisionChange {
    Add(Added),
    Drop(Dropped),
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
        self.read_row(|from| read(from, name))
    }

    async fn add_revision(&self, tenant: &Tenant, agent: StoredAgent) -> Result<(), StoreError> {
        let (name, json) = (Scoped::new(tenant, &agent.name), encode::json(&agent)?);
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
    write(&mut table, name, &history)
}

/// Returns whether there was anything to do.
pub(super) fn change(to: &mut OpenTables<'_>, change: &RevisionChange) -> Result<bool, Error> {
    match change {
        RevisionChange::Add(added) => add(to, added),
        RevisionChange::Drop(dropped) => drop_all(to, dropped),
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
    let gone = take_droppable(&mut history, newest.as_ref(), revisions, *spared);
    for revision in &gone {
        to.revisions.remove(name.sibling(revision).as_str())?;
    }
    write(&mut table, name, &history)?;
    Ok(!gone.is_empty())
}

fn read(from: &ReadTransaction, name: &Scoped<AgentName>) -> Result<Vec<HistoryEntry>, Error> {
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
