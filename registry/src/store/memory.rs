//! The store in memory, lost with its process: the reference for the other stores, and for tests.

mod audit;
mod blobs;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use abide_actors::blobs::Blob;
use abide_actors::identity::Epoch;
use abide_actors::journal::{
    Claim, ClaimedConversation, Commit, ConversationSummary, Holder, InboxEntry, InboxFilter,
    Journal, StoreError, StoredConversation, StoredResponse,
};
use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::{
    AgentName, BlobId, CallId, ConversationId, DecisionId, Event, Revision, Seq, State, Timestamp,
};
use async_trait::async_trait;

use super::claims::Claims;
use super::commit_rules;
use super::paging::{self, InboxKey};
use super::{
    KeyChange, KeyList, ListError, Page, Store, StoredAgent, StoredKey, SummaryFilter, agent_scope,
};
use crate::partition::{Partition, PartitionSet};

/// Ordered maps behind one lock: every call is atomic, and the store is never unavailable.
#[derive(Debug, Default)]
pub struct Memory {
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    claims: Claims,
    conversations: BTreeMap<ConversationId, Conversation>,
    /// How many holders of a conversation died while it was at work.
    deaths: BTreeMap<ConversationId, u32>,
    inbox: BTreeMap<InboxKey, InboxEntry>,
    alarms: BTreeSet<(Timestamp, ConversationId)>,
    active: BTreeSet<ConversationId>,
    responses: BTreeMap<(String, String), StoredResponse>,
    /// Expiry, scope, key of a response.
    expiries: BTreeSet<(Timestamp, String, String)>,
    newest: BTreeMap<AgentName, Revision>,
    revisions: BTreeMap<Revision, StoredAgent>,
    decisions: BTreeMap<(AgentName, DecisionId), RememberedDecision>,
    keys: BTreeMap<String, StoredKey>,
    keys_version: u64,
    keys_used: BTreeMap<String, Timestamp>,
    blobs: BTreeMap<BlobId, Blob>,
    audit: audit::Entries,
}

#[derive(Debug)]
struct Conversation {
    epoch: Epoch,
    summary: ConversationSummary,
    events: Vec<Event>,
    state: Option<Arc<State>>,
    open: BTreeMap<(CallId, u32), Timestamp>,
}

impl Conversation {
    /// The events from `seq + 1` on. The first event is 1, and there are no gaps.
    fn after(&self, seq: Seq) -> &[Event] {
        let at = usize::try_from(seq.get()).unwrap_or(usize::MAX).min(self.events.len());
        &self.events[at..]
    }

    /// The events up to `seq - 1`.
    fn before(&self, seq: Seq) -> &[Event] {
        let at = usize::try_from(seq.get().saturating_sub(1)).unwrap_or(usize::MAX);
        &self.events[..at.min(self.events.len())]
    }

    /// The keys of its inbox entries, in order: no more than its one turn has calls.
    fn inbox_keys(&self, id: &ConversationId) -> BTreeSet<InboxKey> {
        let key = |((call, suspension), at): (&(CallId, u32), &Timestamp)| {
            (*at, id.clone(), call.clone(), *suspension)
        };
        self.open.iter().map(key).collect()
    }
}

impl Memory {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tables {
    fn claim(&mut self, id: &ConversationId, me: &Holder, dead: Option<&Holder>) -> Claim {
        let stored_epoch = self.conversations.get(id).map_or(Epoch::ZERO, |known| known.epoch);
        self.claims.claim(id, me, dead, stored_epoch)
    }

    fn load(&self, id: &ConversationId) -> Option<StoredConversation> {
        let conversation = self.conversations.get(id)?;
        let state = conversation.state.as_deref().cloned().unwrap_or_default();
        let (events, cached_seq) = (conversation.after(state.seq).to_vec(), state.seq);
        Some(StoredConversation { state, events, cached_seq })
    }

    fn append(
        &mut self,
        id: &ConversationId,
        epoch: Epoch,
        commit: Commit,
    ) -> Result<(), StoreError> {
        let known = self.conversations.get(id).map(|known| known.summary.last_seq);
        if !commit_rules::follows(&commit, known) {
            return Err(StoreError::Conflict);
        }
        let old = self.conversations.remove(id);
        self.remove_from_indexes(id, old.as_ref().map(|old| &old.summary));
        let (mut events, mut state, mut open) = match old {
            Some(old) => (old.events, old.state, old.open),
            None => (Vec::new(), None, BTreeMap::new()),
        };
        for closed in commit.closed {
            if let Some(at) = open.remove(&(closed.call_id.clone(), closed.suspension)) {
                self.inbox.remove(&(at, id.clone(), closed.call_id, closed.suspension));
            }
        }
        let (agent, participants) = (&commit.summary.agent, &commit.summary.participants);
        for pending in commit.opened {
            let call = pending.call_id.clone();
            open.insert((call.clone(), pending.suspension), pending.expires_at);
            let key = (pending.expires_at, id.clone(), call, pending.suspension);
            let (conversation_id, agent) = (id.clone(), agent.clone());
            let participants = participants.clone();
            let entry = InboxEntry { conversation_id, agent, participants, pending };
            self.inbox.insert(key, entry);
        }
        self.add_to_indexes(id, &commit.summary);
        if commit.resets_deaths {
            self.deaths.remove(id);
        }
        if let Some(now) = commit.events.last().map(|event| event.at) {
            self.remove_expired(now);
        }
        for response in commit.responses {
            self.keep(id.as_str(), response);
        }
        events.extend(commit.events.iter().cloned());
        state = commit.state.or(state);
        let conversation = Conversation { epoch, summary: commit.summary, events, state, open };
        self.conversations.insert(id.clone(), conversation);
        Ok(())
    }

    fn delete(&mut self, id: &ConversationId) {
        self.audit.remove(id);
        self.deaths.remove(id);
        let old = self.conversations.remove(id);
        self.remove_from_indexes(id, old.as_ref().map(|old| &old.summary));
        for ((call, suspension), at) in old.into_iter().flat_map(|old| old.open) {
            self.inbox.remove(&(at, id.clone(), call, suspension));
        }
        let scope = id.as_str();
        let first = (scope.to_owned(), String::new());
        let found = self.responses.range(first..).take_while(|((owner, _), _)| owner == scope);
        let found: Vec<_> =
            found.map(|((_, key), response)| (key.clone(), response.expires_at)).collect();
        for (key, at) in found {
            self.responses.remove(&(scope.to_owned(), key.clone()));
            self.expiries.remove(&(at, scope.to_owned(), key));
        }
    }

    fn remove_expired(&mut self, now: Timestamp) {
        while self.expiries.first().is_some_and(|(at, _, _)| *at <= now) {
            if let Some((_, scope, key)) = self.expiries.pop_first() {
                self.responses.remove(&(scope, key));
            }
        }
    }

    fn add_to_indexes(&mut self, id: &ConversationId, summary: &ConversationSummary) {
        self.alarms.extend(summary.alarm.map(|at| (at, id.clone())));
        if summary.active {
            self.active.insert(id.clone());
        }
    }

    fn remove_from_indexes(&mut self, id: &ConversationId, summary: Option<&ConversationSummary>) {
        if let Some(at) = summary.and_then(|summary| summary.alarm) {
            self.alarms.remove(&(at, id.clone()));
        }
        self.active.remove(id);
    }

    /// Returns whether the name was new.
    fn put_agent(&mut self, agent: StoredAgent, response: Option<StoredResponse>) -> bool {
        if let Some(response) = response {
            self.keep(&agent_scope(&agent.name), response);
        }
        let old = self.newest.insert(agent.name.clone(), agent.revision.clone());
        self.revisions.insert(agent.revision.clone(), agent);
        old.is_none()
    }

    fn keep(&mut self, scope: &str, response: StoredResponse) {
        let key = response.key.clone();
        let at = response.expires_at;
        if let Some(old) = self.responses.insert((scope.to_owned(), key.clone()), response) {
            self.expiries.remove(&(old.expires_at, scope.to_owned(), key.clone()));
        }
        self.expiries.insert((at, scope.to_owned(), key));
    }
}

#[async_trait]
impl Journal for Memory {
    async fn append(
        &self,
        id: &ConversationId,
        held: &Claim,
        commit: Commit,
    ) -> Result<(), StoreError> {
        let mut tables = self.tables();
        if !tables.claims.admits(id, held) {
            return Err(StoreError::Fenced);
        }
        tables.append(id, held.epoch, commit)
    }

    async fn load(&self, id: &ConversationId) -> Result<Option<StoredConversation>, StoreError> {
        Ok(self.tables().load(id))
    }

    async fn claim_and_load(
        &self,
        id: &ConversationId,
        me: &Holder,
        dead: Option<&Holder>,
    ) -> Result<ClaimedConversation, StoreError> {
        let mut tables = self.tables();
        let holder_before = tables.claims.present(id).map(|before| before.holder.clone());
        let claim = tables.claim(id, me, dead);
        if claim.holder != *me {
            return Ok(ClaimedConversation { claim, deaths: 0, stored: None });
        }
        if holder_before.is_some_and(|before| before != *me) && tables.active.contains(id) {
            *tables.deaths.entry(id.clone()).or_default() += 1;
        }
        let deaths = tables.deaths.get(id).copied().unwrap_or_default();
        Ok(ClaimedConversation { claim, deaths, stored: tables.load(id) })
    }

    async fn reset_deaths(&self, id: &ConversationId) -> Result<(), StoreError> {
        self.tables().deaths.remove(id);
        Ok(())
    }

    async fn events(
        &self,
        id: &ConversationId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let tables = self.tables();
        let events = tables.conversations.get(id).map_or(&[][..], |known| known.after(after));
        Ok(events.iter().take(limit).cloned().collect())
    }

    async fn events_before(
        &self,
        id: &ConversationId,
        before: Seq,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let tables = self.tables();
        let events = tables.conversations.get(id).map_or(&[][..], |known| known.before(before));
        Ok(events.iter().rev().take(limit).cloned().collect())
    }

    async fn stored_response(
        &self,
        scope: &str,
        key: &str,
        now: Timestamp,
    ) -> Result<Option<StoredResponse>, StoreError> {
        let tables = self.tables();
        let response = tables.responses.get(&(scope.to_owned(), key.to_owned()));
        Ok(response.filter(|response| now < response.expires_at).cloned())
    }

    async fn claim(
        &self,
        id: &ConversationId,
        me: &Holder,
        dead: Option<&Holder>,
    ) -> Result<Claim, StoreError> {
        Ok(self.tables().claim(id, me, dead))
    }

    async fn release(&self, id: &ConversationId, held: &Claim) -> Result<(), StoreError> {
        self.tables().claims.release(id, held);
        Ok(())
    }

    async fn delete(
        &self,
        id: &ConversationId,
        held: &Claim,
        response: Option<StoredResponse>,
    ) -> Result<(), StoreError> {
        let mut tables = self.tables();
        if !tables.claims.admits(id, held) {
            return Err(StoreError::Fenced);
        }
        tables.delete(id);
        tables.claims.release(id, held);
        if let Some(response) = response {
            tables.keep(id.as_str(), response);
        }
        Ok(())
    }
}

#[async_trait]
impl Store for Memory {
    async fn current_claim(&self, id: &ConversationId) -> Result<Option<Claim>, StoreError> {
        Ok(self.tables().claims.present(id).cloned())
    }

    async fn summary(
        &self,
        id: &ConversationId,
    ) -> Result<Option<ConversationSummary>, StoreError> {
        Ok(self.tables().conversations.get(id).map(|known| known.summary.clone()))
    }

    async fn conversations(
        &self,
        filter: &SummaryFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<(ConversationId, ConversationSummary)>, ListError> {
        let after: Option<ConversationId> = paging::decode(cursor)?;
        let tables = self.tables();
        let rows = tables.conversations.range(after_key(after));
        let rows = rows.map(|(id, known)| Ok((id, (id.clone(), known.summary.clone()))));
        paging::page(rows, limit, |(_, summary)| filter.admits(summary))
    }

    async fn inbox(
        &self,
        filter: &InboxFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<InboxEntry>, ListError> {
        let after: Option<InboxKey> = paging::decode(cursor)?;
        let tables = self.tables();
        if let Some(id) = &filter.conversation {
            let keys = tables.conversations.get(id).map(|known| known.inbox_keys(id));
            let keys =
                keys.unwrap_or_default().into_iter().filter(|key| Some(key) > after.as_ref());
            let rows = keys.filter_map(|key| {
                let entry = tables.inbox.get(&key)?.clone();
                Some(Ok((key, entry)))
            });
            return paging::page(rows, limit, |entry| filter.admits(entry));
        }
        let rows = tables.inbox.range(after_key(after));
        let rows = rows.map(|(key, entry)| Ok((key, entry.clone())));
        paging::page(rows, limit, |entry| filter.admits(entry))
    }

    async fn alarms(&self, limit: usize) -> Result<Vec<(ConversationId, Timestamp)>, StoreError> {
        let tables = self.tables();
        Ok(tables.alarms.iter().take(limit).map(|(at, id)| (id.clone(), *at)).collect())
    }

    async fn due_alarms(
        &self,
        partitions: &PartitionSet,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(ConversationId, Timestamp)>, StoreError> {
        let tables = self.tables();
        let due = tables.alarms.iter().take_while(|(at, _)| *at <= until);
        let in_share = due.filter(|(_, id)| partitions.contains(Partition::from(id)));
        Ok(in_share.take(limit).map(|(at, id)| (id.clone(), *at)).collect())
    }

    async fn active(
        &self,
        partitions: &PartitionSet,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<(ConversationId, Option<Claim>)>, ListError> {
        let after: Option<ConversationId> = paging::decode(cursor)?;
        let tables = self.tables();
        let row = |id: &ConversationId| (id.clone(), tables.claims.present(id).cloned());
        let rows = tables.active.range(after_key(after)).map(|id| Ok((id, row(id))));
        paging::page(rows, limit, |(id, _)| partitions.contains(Partition::from(id)))
    }

    async fn reserve(
        &self,
        scope: &str,
        response: StoredResponse,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let mut tables = self.tables();
        let old = tables.responses.get(&(scope.to_owned(), response.key.clone()));
        let is_free = old.is_none_or(|old| old.expires_at <= now);
        if is_free {
            tables.keep(scope, response);
        }
        Ok(is_free)
    }

    async fn put_agent(
        &self,
        agent: StoredAgent,
        response: Option<StoredResponse>,
    ) -> Result<bool, StoreError> {
        Ok(self.tables().put_agent(agent, response))
    }

    async fn put_agent_if(
        &self,
        agent: StoredAgent,
        response: Option<StoredResponse>,
        newest: Option<&Revision>,
    ) -> Result<bool, StoreError> {
        let mut tables = self.tables();
        let is_newest = tables.newest.get(&agent.name) == newest;
        if is_newest {
            tables.put_agent(agent, response);
        }
        Ok(is_newest)
    }

    async fn agent(&self, name: &AgentName) -> Result<Option<StoredAgent>, StoreError> {
        let tables = self.tables();
        let revision = tables.newest.get(name);
        Ok(revision.and_then(|revision| tables.revisions.get(revision)).cloned())
    }

    async fn revision(&self, revision: &Revision) -> Result<Option<StoredAgent>, StoreError> {
        Ok(self.tables().revisions.get(revision).cloned())
    }

    async fn agents(&self) -> Result<Vec<StoredAgent>, StoreError> {
        let tables = self.tables();
        let newest = tables.newest.values();
        Ok(newest.filter_map(|revision| tables.revisions.get(revision)).cloned().collect())
    }

    async fn delete_agent(
        &self,
        name: &AgentName,
        response: Option<StoredResponse>,
    ) -> Result<bool, StoreError> {
        let mut tables = self.tables();
        if let Some(response) = response {
            tables.keep(&agent_scope(name), response);
        }
        tables.decisions.retain(|(agent, _), _| agent != name);
        Ok(tables.newest.remove(name).is_some())
    }

    async fn set_decision(
        &self,
        agent: &AgentName,
        id: &DecisionId,
        decision: Option<&RememberedDecision>,
    ) -> Result<bool, StoreError> {
        let (key, decisions) = ((agent.clone(), id.clone()), &mut self.tables().decisions);
        let before = match decision {
            Some(decision) => decisions.insert(key, decision.clone()),
            None => decisions.remove(&key),
        };
        Ok(before.is_some())
    }

    async fn decisions(&self, agent: &AgentName) -> Result<Vec<RememberedDecision>, StoreError> {
        let tables = self.tables();
        let found = tables.decisions.iter().filter(|((owner, _), _)| owner == agent);
        Ok(found.map(|(_, decision)| decision.clone()).collect())
    }

    async fn change_key(&self, change: KeyChange) -> Result<bool, StoreError> {
        let tables = &mut *self.tables();
        let was_there = tables.keys.contains_key(change.id());
        match change {
            KeyChange::Update(_) if !was_there => return Ok(false),
            KeyChange::Add(key) | KeyChange::Update(key) => {
                tables.keys.insert(key.id.clone(), key);
            }
            KeyChange::Remove(id) => {
                tables.keys.remove(&id);
                tables.keys_used.remove(&id);
            }
        }
        tables.keys_version += 1;
        Ok(was_there)
    }

    async fn keys(&self, known: Option<u64>) -> Result<Option<KeyList>, StoreError> {
        let tables = self.tables();
        let version = tables.keys_version;
        let list = || KeyList { version, keys: tables.keys.values().cloned().collect() };
        Ok((known != Some(version)).then(list))
    }

    async fn mark_keys_used(&self, used: &[(String, Timestamp)]) -> Result<(), StoreError> {
        let tables = &mut *self.tables();
        for (id, at) in used.iter().filter(|(id, _)| tables.keys.contains_key(id)) {
            let last = tables.keys_used.entry(id.clone()).or_insert(*at);
            *last = (*last).max(*at);
        }
        Ok(())
    }

    async fn keys_used(&self) -> Result<BTreeMap<String, Timestamp>, StoreError> {
        Ok(self.tables().keys_used.clone())
    }
}

fn after_key<K>(after: Option<K>) -> (Bound<K>, Bound<K>) {
    (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::conformance::conformance;
    use super::Memory;

    conformance!(((), Arc::new(Memory::default()) as Arc<dyn super::Store>));
}
