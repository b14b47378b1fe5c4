//! One write of a batch: checked first, then applied as a whole.

mod lists;
mod names;
mod precondition;
mod responses;
mod rewrite;
mod sweep;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use abide_actors::journal::{
    Claim, ConversationSummary, ResponseScope, StoreError, StoredResponse,
};
use abide_actors::notices::OwedNotice;
use abide_conversation::{
    AgentName, BlobId, ConversationId, DecisionId, Scoped, Tenant, Timestamp,
};
use redb::{Error, ReadableTable, Table, WriteTransaction};

use super::super::staging::lost;
use super::super::usage::UsageEntry;
use super::super::{HistoryEntry, KeyChange, ScopedKeyId, commit_rules};
use super::api_keys;
use super::audit::{self, Audit};
use super::blob_names::{self, NameWrite};
use super::blobs::{self, NewBlob};
use super::encode::{Append, EncodedResponse};
use super::encryption::KeyWrite;
use super::erasures::{self, EncodedRewrite, ErasureWrite};
use super::listing::{ListTables, ListWrite};
use super::notices;
use super::operations;
use super::queues;
use super::revisions::{self, RevisionChange};
use super::schedules::{self, ScheduleChange};
use super::staging::{PromotedJournals, StageWrite};
use super::tables::{self, Nanos, Record, nanos};
use super::usage;
pub(super) use precondition::Precondition;

/// A write, encoded by the caller.
pub(super) enum Write {
    Append(Box<Append>),
    Delete {
        id: Scoped<ConversationId>,
        held: Claim,
        response: Option<EncodedResponse>,
        owed: Vec<OwedNotice>,
    },
    CountDeath {
        id: Scoped<ConversationId>,
        held: Claim,
    },
    ResetDeaths {
        id: Scoped<ConversationId>,
    },
    PutAgent {
        name: Scoped<AgentName>,
        entry: HistoryEntry,
        json: Vec<u8>,
        response: Option<EncodedResponse>,
    },
    ReplaceAgent(ReplaceAgent),
    ChangeRevisions(RevisionChange),
    DeleteAgent {
        name: Scoped<AgentName>,
        response: Option<EncodedResponse>,
    },
    Reserve {
        response: EncodedResponse,
        now: Timestamp,
    },
    SetDecision {
        agent: Scoped<AgentName>,
        id: DecisionId,
        json: Option<Vec<u8>>,
    },
    /// Returns whether what is stored was as it had been read.
    ReplaceDecision {
        agent: Scoped<AgentName>,
        id: DecisionId,
        read: Vec<u8>,
        json: Vec<u8>,
    },
    ChangeKey {
        change: KeyChange,
        json: Option<Vec<u8>>,
    },
    MarkKeysUsed {
        used: Vec<(ScopedKeyId, Timestamp)>,
    },
    PutBlob(Box<NewBlob>),
    DeleteBlob {
        id: Scoped<BlobId>,
    },
    Names(NameWrite),
    Audit(audit::EncodedEntry),
    Notice(notices::NoticeWrite),
    /// The entry of an operation, and its effect if the store has it.
    Operate(Box<operations::Operate>),
    ReplaceSchedule(Box<ScheduleChange>),
    Stage(StageWrite),
    List(Box<ListWrite>),
    Rewrite(Box<EncodedRewrite>),
    Erasure(Box<ErasureWrite>),
    Keys(KeyWrite),
}

/// A definition that is stored only if `newest` is the newest revision of its name.
pub(super) struct ReplaceAgent {
    pub(super) newest: Option<String>,
    pub(super) name: Scoped<AgentName>,
    pub(super) entry: HistoryEntry,
    pub(super) json: Vec<u8>,
    pub(super) response: Option<EncodedResponse>,
}

/// The outcome of a write: `true` if it did something. For an agent: whether its name was new, or
/// was there to be deleted.
pub(super) type Outcome = Result<bool, StoreError>;

/// The tables of one write transaction, opened once for all its writes.
pub(super) struct OpenTables<'t> {
    pub(super) transaction: &'t WriteTransaction,
    of_tenants: BTreeMap<Tenant, TenantTables<'t>>,
    pub(super) journal: Table<'t, (&'static str, u64), &'static [u8]>,
    pub(super) unswept: Table<'t, &'static str, ()>,
    /// The journals that imports move into the table, which are not to be swept.
    pub(super) promoted: &'t PromotedJournals,
    states: Table<'t, &'static str, (u32, &'static [u8])>,
    open: Table<'t, (&'static str, &'static str, u32), Nanos>,
    alarms: Table<'t, (Nanos, &'static str), ()>,
    active: Table<'t, &'static str, ()>,
    responses: Table<'t, (&'static str, &'static str), &'static [u8]>,
    expiries: Table<'t, (Nanos, &'static str, &'static str), ()>,
    pub(super) revisions: Table<'t, &'static str, &'static [u8]>,
    pub(super) decisions: Table<'t, (&'static str, &'static str), &'static [u8]>,
    audit: Audit<'t>,
    lists: ListTables<'t>,
}

/// The tables that each tenant has of its own, because they are listed.
pub(super) struct TenantTables<'t> {
    pub(super) heads: Table<'t, &'static str, &'static [u8]>,
    inbox: Table<'t, (Nanos, &'static str, &'static str, u32), &'static [u8]>,
    pub(super) agents: Table<'t, &'static str, &'static str>,
}

impl<'t> OpenTables<'t> {
    pub(super) fn new(
        transaction: &'t WriteTransaction,
        promoted: &'t PromotedJournals,
    ) -> Result<Self, Error> {
        Ok(Self {
            transaction,
            promoted,
            of_tenants: BTreeMap::new(),
            journal: transaction.open_table(tables::JOURNAL)?,
            unswept: transaction.open_table(tables::UNSWEPT)?,
            states: transaction.open_table(tables::STATES)?,
            open: transaction.open_table(tables::OPEN)?,
            alarms: transaction.open_table(tables::ALARMS)?,
            active: transaction.open_table(tables::ACTIVE)?,
            responses: transaction.open_table(tables::RESPONSES)?,
            expiries: transaction.open_table(tables::EXPIRIES)?,
            revisions: transaction.open_table(tables::REVISIONS)?,
            decisions: transaction.open_table(tables::DECISIONS)?,
            audit: Audit::open(transaction)?,
            lists: ListTables::new(transaction),
        })
    }

    /// The tables of the tenant of this id.
    pub(super) fn of<N>(&mut self, id: &Scoped<N>) -> Result<&mut TenantTables<'t>, Error> {
        let tenant = id.tenant();
        Ok(match self.of_tenants.entry(tenant) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(vacant) => {
                let (to, tenant) = (self.transaction, vacant.key().clone());
                vacant.insert(TenantTables {
                    heads: tables::HEADS.open_to_write(to, &tenant)?,
                    inbox: tables::INBOX.open_to_write(to, &tenant)?,
                    agents: tables::AGENTS.open_to_write(to, &tenant)?,
                })
            }
        })
    }

    /// Applies one write whose claim is the present one.
    ///
    /// A refused write has changed nothing; after an error the whole transaction must be dropped.
    pub(super) fn apply(&mut self, write: &Write) -> Result<Outcome, Error> {
        match write {
            Write::Append(append) => self.append(append),
            Write::Delete { id, held: _, response, owed } => {
                self.delete(id, owed)?;
                self.keep(response)?;
                Ok(Ok(true))
            }
            Write::CountDeath { id, held: _ } => {
                let was_at_work = self.active.get(id.as_str())?.is_some();
                if was_at_work {
                    let mut deaths = self.transaction.open_table(tables::DEATHS)?;
                    let count = deaths.get(id.as_str())?.map_or(0, |count| count.value());
                    deaths.insert(id.as_str(), count.saturating_add(1))?;
                }
                Ok(Ok(was_at_work))
            }
            Write::ResetDeaths { id } => self.reset_deaths(id.as_str()).map(|()| Ok(true)),
            Write::PutAgent { name, entry, json, response } => {
                let before = self.newest(name)?;
                self.put_agent(name, before.as_deref(), entry, json)?;
                self.keep(response)?;
                Ok(Ok(before.is_none()))
            }
            Write::ChangeRevisions(change) => revisions::change(self, change).map(Ok),
            Write::ReplaceAgent(replace) => self.replace_agent(replace).map(Ok),
            Write::DeleteAgent { name, response } => {
                let was_there = self.of(name)?.agents.remove(name.as_str())?.is_some();
                self.decisions.retain(|(agent, _), _| agent != name.as_str())?;
                revisions::end_rollout(self.transaction, name)?;
                self.keep(response)?;
                Ok(Ok(was_there))
            }
            Write::SetDecision { agent, id, json } => {
                let key = (agent.as_str(), id.as_str());
                let was_there = match json {
                    Some(json) => self.decisions.insert(key, json.as_slice())?.is_some(),
                    None => self.decisions.remove(key)?.is_some(),
                };
                Ok(Ok(was_there))
            }
            Write::ReplaceDecision { agent, id, read, json } => {
                let key = (agent.as_str(), id.as_str());
                let is_as_read = self
                    .decisions
                    .get(key)?
                    .is_some_and(|stored| stored.value() == read.as_slice());
                if is_as_read {
                    self.decisions.insert(key, json.as_slice())?;
                }
                Ok(Ok(is_as_read))
            }
            Write::ChangeKey { change, json } => {
                api_keys::change(self.transaction, change, json.as_deref()).map(Ok)
            }
            Write::MarkKeysUsed { used } => {
                api_keys::mark_used(self.transaction, used).map(|()| Ok(true))
            }
            Write::PutBlob(new) => blobs::put(self.transaction, new).map(Ok),
            Write::Names(write) => self.write_names(write).map(Ok),
            Write::DeleteBlob { id } => blobs::delete(self.transaction, id).map(Ok),
            Write::Notice(write) => write.apply(self.transaction).map(Ok),
            Write::Operate(operate) => operations::apply(self, operate),
            Write::ReplaceSchedule(change) => schedules::replace(self.transaction, change).map(Ok),
            Write::Stage(write) => self.stage(write),
            Write::List(write) => self.list(write).map(Ok),
            Write::Rewrite(write) => self.rewrite(write),
            Write::Erasure(write) => erasures::apply(self.transaction, write).map(Ok),
            Write::Keys(write) => write.apply(self).map(Ok),
            Write::Audit(entry) => {
                let exists = self.of(&entry.id)?.heads.get(entry.id.as_str())?.is_some();
                if exists {
                    self.audit.keep(entry)?;
                }
                Ok(Ok(exists))
            }
            Write::Reserve { response, now } => {
                let old = self.responses.get((response.scope.as_str(), response.key.as_str()))?;
                let old = old
                    .map(|json| tables::parse::<StoredResponse>("answer", json.value()))
                    .transpose()?;
                let is_free = old.is_none_or(|old| old.expires_at <= *now);
                if is_free {
                    self.keep([response])?;
                }
                Ok(Ok(is_free))
            }
        }
    }

    /// Returns whether the expected revision was the newest one.
    fn replace_agent(&mut self, replace: &ReplaceAgent) -> Result<bool, Error> {
        let ReplaceAgent { newest, name, entry, json, response } = replace;
        let present = self.newest(name)?;
        if present != *newest {
            return Ok(false);
        }
        self.put_agent(name, present.as_deref(), entry, json)?;
        self.keep(response)?;
        Ok(true)
    }

    fn newest(&mut self, name: &Scoped<AgentName>) -> Result<Option<String>, Error> {
        let newest = self.of(name)?.agents.get(name.as_str())?;
        Ok(newest.map(|newest| newest.value().to_owned()))
    }

    fn put_agent(
        &mut self,
        name: &Scoped<AgentName>,
        before: Option<&str>,
        entry: &HistoryEntry,
        json: &[u8],
    ) -> Result<(), Error> {
        self.revisions.insert(name.sibling(&entry.revision).as_str(), json)?;
        self.of(name)?.agents.insert(name.as_str(), entry.revision.as_str())?;
        revisions::put(self.transaction, name, before, entry)
    }

    fn append(&mut self, append: &Append) -> Result<Outcome, Error> {
        let commit = &append.commit;
        let old = self.summary(&append.id)?;
        let id = append.id.as_str();
        let last = match &append.staged {
            None => old.as_ref().map(|summary| summary.last_seq),
            Some(staged) if old.is_none() => Some(staged.last_seq),
            Some(_) => return Ok(Err(StoreError::Conflict)),
        };
        if !commit_rules::follows(commit, last) {
            return Ok(Err(StoreError::Conflict));
        }
        if let Some(staged) = &append.staged
            && !self.take_staged(staged)?
        {
            return Ok(Err(lost()));
        }
        for (event, json) in commit.events.iter().zip(append.events.iter()) {
            self.journal.insert((id, event.seq.get()), json.as_slice())?;
        }
        self.of(&append.id)?.heads.insert(id, append.record.as_slice())?;
        if let Some(json) = &append.state {
            self.states.insert(id, (tables::STATE_FORMAT, json.as_slice()))?;
        }
        self.update_indexes(id, old.as_ref(), Some(&commit.summary))?;
        let whole = append.entry.as_ref();
        self.lists.relist(&append.id, commit, whole, old.is_none())?;
        for closed in &commit.closed {
            self.close(&append.id, closed.call_id.as_str(), closed.suspension)?;
        }
        for (pending, json) in commit.opened.iter().zip(&append.entries) {
            let (call, suspension) = (pending.call_id.as_str(), pending.suspension);
            let at = nanos(pending.expires_at);
            self.close(&append.id, call, suspension)?;
            self.open.insert((id, call, suspension), at)?;
            self.of(&append.id)?.inbox.insert((at, id, call, suspension), json.as_slice())?;
        }
        if let Some(event) = commit.events.last() {
            self.remove_expired(event.at)?;
            self.audit.sweep(nanos(event.at))?;
        }
        blob_names::name(self.transaction, &append.id, &append.namings)?;
        self.keep(&append.responses)?;
        queues::replace(self.transaction, &append.id, commit.queued.as_deref())?;
        if let Some(entry) = UsageEntry::of(commit) {
            usage::count(self.transaction, &append.id, &entry)?;
        }
        notices::owe(self.transaction, &append.id, &commit.owed)?;
        if commit.resets_deaths {
            self.reset_deaths(id)?;
        }
        Ok(Ok(true))
    }

    fn reset_deaths(&self, id: &str) -> Result<(), Error> {
        self.transaction.open_table(tables::DEATHS)?.remove(id)?;
        Ok(())
    }

    fn delete(
        &mut self,
        deleted: &Scoped<ConversationId>,
        owed: &[OwedNotice],
    ) -> Result<(), Error> {
        notices::owe(self.transaction, deleted, owed)?;
        let old = self.summary(deleted)?;
        let id = deleted.as_str();
        self.update_indexes(id, old.as_ref(), None)?;
        self.audit.forget(id)?;
        blob_names::drop_names(self.transaction, deleted)?;
        self.of(deleted)?.heads.remove(id)?;
        self.states.remove(id)?;
        self.reset_deaths(id)?;
        queues::replace(self.transaction, deleted, Some(&[]))?;
        self.lists.replace(deleted, None)?;
        if old.is_some() {
            self.unswept.insert(id, ())?;
        }
        let open = self.open.range((id, "", 0)..)?;
        let mut calls = Vec::new();
        for row in open {
            let row = row?;
            let (conversation, call, suspension) = row.0.value();
            if conversation != id {
                break;
            }
            calls.push((call.to_owned(), suspension));
        }
        for (call, suspension) in calls {
            self.close(deleted, &call, suspension)?;
        }
        self.forget_responses(&ResponseScope::Conversation(deleted.clone()).text())
    }

    fn summary(
        &mut self,
        id: &Scoped<ConversationId>,
    ) -> Result<Option<ConversationSummary>, Error> {
        let Some(json) = self.of(id)?.heads.get(id.as_str())? else { return Ok(None) };
        let record: Record = tables::parse("head", json.value())?;
        Ok(Some(record.summary))
    }

    fn update_indexes(
        &mut self,
        id: &str,
        old: Option<&ConversationSummary>,
        new: Option<&ConversationSummary>,
    ) -> Result<(), Error> {
        let (was, is) =
            (old.and_then(|summary| summary.alarm), new.and_then(|summary| summary.alarm));
        if was != is {
            if let Some(at) = was {
                self.alarms.remove((nanos(at), id))?;
            }
            if let Some(at) = is {
                self.alarms.insert((nanos(at), id), ())?;
            }
        }
        match (old.is_some_and(|summary| summary.active), new.is_some_and(|summary| summary.active))
        {
            (false, true) => self.active.insert(id, ()).map(|_| ())?,
            (true, false) => self.active.remove(id).map(|_| ())?,
            (true, true) | (false, false) => {}
        }
        Ok(())
    }

    fn close(
        &mut self,
        id: &Scoped<ConversationId>,
        call: &str,
        suspension: u32,
    ) -> Result<(), Error> {
        let at = self.open.remove((id.as_str(), call, suspension))?.map(|at| at.value());
        if let Some(at) = at {
            self.of(id)?.inbox.remove((at, id.as_str(), call, suspension))?;
        }
        Ok(())
    }
}
