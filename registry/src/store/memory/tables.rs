//! The maps behind the lock of the memory store, and the changes that several calls share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use abide_actors::blobs::{Blob, blobs_of_commit};
use abide_actors::identity::Epoch;
use abide_actors::journal::{
    Claim, Commit, ConversationSummary, Holder, InboxEntry, ResponseScope, StoreError,
    StoredConversation, StoredResponse,
};
use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::{
    AgentName, BlobId, CallId, ConversationId, DecisionId, Event, Revision, Scoped, Seq, State,
    Tenant, Timestamp,
};

use super::super::Occupancy;
use super::super::blob_names::Naming;
use super::super::claims::Claims;
use super::super::commit_rules;
use super::super::paging::InboxKey;
use super::super::revisions::{HistoryEntry, note};
use super::super::{KeyChange, Rollout, ScopedKeyId, StoredAgent, StoredKey};

#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) claims: Claims,
    pub(super) conversations: BTreeMap<Scoped<ConversationId>, Conversation>,
    /// How many holders of a conversation died while it was at work.
    pub(super) deaths: BTreeMap<Scoped<ConversationId>, u32>,
    pub(super) inbox: BTreeMap<InboxKey, InboxEntry>,
    pub(super) alarms: BTreeSet<(Timestamp, Scoped<ConversationId>)>,
    pub(super) active: BTreeSet<Scoped<ConversationId>>,
    pub(super) index: super::listing::Index,
    pub(super) responses: BTreeMap<(ResponseScope, String), StoredResponse>,
    /// Expiry, scope, key of a response.
    pub(super) expiries: BTreeSet<(Timestamp, ResponseScope, String)>,
    pub(super) newest: BTreeMap<Scoped<AgentName>, Revision>,
    pub(super) revisions: BTreeMap<Scoped<Revision>, StoredAgent>,
    pub(super) histories: super::revisions::Histories,
    pub(super) staged: super::staging::StagedEvents,
    pub(super) rollouts: BTreeMap<Scoped<AgentName>, Rollout>,
    pub(super) decisions: BTreeMap<(Scoped<AgentName>, DecisionId), RememberedDecision>,
    pub(super) keys: BTreeMap<ScopedKeyId, StoredKey>,
    pub(super) keys_version: u64,
    pub(super) keys_used: BTreeMap<ScopedKeyId, Timestamp>,
    pub(super) blobs: BTreeMap<Scoped<BlobId>, Blob>,
    pub(super) blob_names: super::blobs::Names,
    pub(super) audit: super::audit::Entries,
    pub(super) operations: super::operations::Chains,
    pub(super) schedules: super::schedules::Table,
    pub(super) erasures: super::erasures::Table,
    pub(super) usage: super::usage::DayTables,
    pub(super) notices: super::notices::Notices,
    pub(super) waiting: super::queues::Waiting,
}

impl Tables {
    /// The tenants of anything.
    pub(super) fn all_tenants(&self) -> BTreeSet<Tenant> {
        let conversations = self.conversations.keys().map(Scoped::tenant);
        let agents = self.revisions.keys().map(Scoped::tenant);
        let schedules = self.schedules.keys().map(Scoped::tenant);
        let webhooks = self.notices.webhooks.keys().map(Scoped::tenant);
        let keys = self.keys.keys().map(Scoped::tenant);
        conversations.chain(agents).chain(schedules).chain(webhooks).chain(keys).collect()
    }
}

#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) epoch: Epoch,
    pub(super) summary: ConversationSummary,
    pub(super) events: Vec<Event>,
    pub(super) state: Option<Arc<State>>,
    pub(super) open: BTreeMap<(CallId, u32), Timestamp>,
}

impl Conversation {
    /// The events from `seq + 1` on. The first event is 1, and there are no gaps.
    pub(super) fn after(&self, seq: Seq) -> &[Event] {
        let at = usize::try_from(seq.get()).unwrap_or(usize::MAX).min(self.events.len());
        &self.events[at..]
    }

    /// The events up to `seq - 1`.
    pub(super) fn before(&self, seq: Seq) -> &[Event] {
        let at = usize::try_from(seq.get().saturating_sub(1)).unwrap_or(usize::MAX);
        &self.events[..at.min(self.events.len())]
    }

    /// The keys of its inbox entries, in order: no more than its one turn has calls.
    pub(super) fn inbox_keys(&self, id: &Scoped<ConversationId>) -> BTreeSet<InboxKey> {
        let key = |((call, suspension), at): (&(CallId, u32), &Timestamp)| {
            (*at, id.clone(), call.clone(), *suspension)
        };
        self.open.iter().map(key).collect()
    }
}

impl Tables {
    pub(super) fn claim(
        &mut self,
        id: &Scoped<ConversationId>,
        me: &Holder,
        dead: Option<&Holder>,
    ) -> Claim {
        let stored_epoch = self.conversations.get(id).map_or(Epoch::ZERO, |known| known.epoch);
        self.claims.claim(id, me, dead, stored_epoch)
    }

    pub(super) fn occupancy(&self, id: &Scoped<ConversationId>) -> Occupancy {
        Occupancy::new(self.claims.present(id).cloned(), self.conversations.contains_key(id))
    }

    pub(super) fn load(&self, id: &Scoped<ConversationId>) -> Option<StoredConversation> {
        let conversation = self.conversations.get(id)?;
        let state = conversation.state.as_deref().cloned().unwrap_or_default();
        let (events, cached_seq) = (conversation.after(state.seq).to_vec(), state.seq);
        Some(StoredConversation { state, events, cached_seq })
    }

    pub(super) fn append(
        &mut self,
        id: &Scoped<ConversationId>,
        epoch: Epoch,
        commit: Commit,
    ) -> Result<(), StoreError> {
        let known = self.conversations.get(id).map(|known| known.summary.last_seq);
        if !commit_rules::follows(&commit, known) {
            return Err(StoreError::Conflict);
        }
        self.name_blobs(id, Naming::all(id, blobs_of_commit(&commit)?));
        super::usage::count(&mut self.usage, id, &commit);
        self.notices.owe(id, &commit.owed);
        if let Some(queued) = &commit.queued {
            self.waiting.replace(id, queued);
        }
        let old = self.conversations.remove(id);
        self.remove_from_indexes(id, old.as_ref().map(|old| &old.summary));
        self.index.relist(id, &commit, old.is_none());
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
            let (conversation_id, agent) = (id.local(), agent.clone());
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
            self.keep(&ResponseScope::Conversation(id.clone()), response);
        }
        events.extend(commit.events.iter().cloned());
        state = commit.state.or(state);
        let conversation = Conversation { epoch, summary: commit.summary, events, state, open };
        self.conversations.insert(id.clone(), conversation);
        Ok(())
    }

    pub(super) fn delete(&mut self, id: &Scoped<ConversationId>) {
        self.audit.remove(id);
        self.drop_blob_names(id);
        self.deaths.remove(id);
        self.waiting.replace(id, &[]);
        self.index.replace(id, None);
        let old = self.conversations.remove(id);
        self.remove_from_indexes(id, old.as_ref().map(|old| &old.summary));
        for ((call, suspension), at) in old.into_iter().flat_map(|old| old.open) {
            self.inbox.remove(&(at, id.clone(), call, suspension));
        }
        let scope = ResponseScope::Conversation(id.clone());
        let first = (scope.clone(), String::new());
        let found = self.responses.range(first..).take_while(|((owner, _), _)| *owner == scope);
        let found: Vec<_> =
            found.map(|((_, key), response)| (key.clone(), response.expires_at)).collect();
        for (key, at) in found {
            self.responses.remove(&(scope.clone(), key.clone()));
            self.expiries.remove(&(at, scope.clone(), key));
        }
    }

    pub(super) fn remove_expired(&mut self, now: Timestamp) {
        while self.expiries.first().is_some_and(|(at, _, _)| *at <= now) {
            if let Some((_, scope, key)) = self.expiries.pop_first() {
                self.responses.remove(&(scope, key));
            }
        }
    }

    pub(super) fn add_to_indexes(
        &mut self,
        id: &Scoped<ConversationId>,
        summary: &ConversationSummary,
    ) {
        self.alarms.extend(summary.alarm.map(|at| (at, id.clone())));
        if summary.active {
            self.active.insert(id.clone());
        }
    }

    pub(super) fn remove_from_indexes(
        &mut self,
        id: &Scoped<ConversationId>,
        summary: Option<&ConversationSummary>,
    ) {
        if let Some(at) = summary.and_then(|summary| summary.alarm) {
            self.alarms.remove(&(at, id.clone()));
        }
        self.active.remove(id);
    }

    /// Returns whether the name was new.
    pub(super) fn put_agent(
        &mut self,
        tenant: &Tenant,
        agent: StoredAgent,
        response: Option<StoredResponse>,
    ) -> bool {
        let name = Scoped::new(tenant, &agent.name);
        if let Some(response) = response {
            self.keep(&ResponseScope::Agent(name.clone()), response);
        }
        let revision = name.sibling(&agent.revision);
        let old = self.newest.insert(name.clone(), agent.revision.clone());
        if self.rollouts.get(&name).is_some_and(|rollout| rollout.revision == agent.revision) {
            self.rollouts.remove(&name);
        }
        let history = self.histories.entry(name).or_default();
        note(history, old.as_ref(), HistoryEntry::from(&agent));
        self.revisions.insert(revision, agent);
        old.is_none()
    }

    /// Returns whether the name was there.
    pub(super) fn delete_agent(
        &mut self,
        name: &Scoped<AgentName>,
        response: Option<StoredResponse>,
    ) -> bool {
        if let Some(response) = response {
            self.keep(&ResponseScope::Agent(name.clone()), response);
        }
        self.decisions.retain(|(agent, _), _| agent != name);
        self.rollouts.remove(name);
        self.newest.remove(name).is_some()
    }

    /// Returns whether the decision was there.
    pub(super) fn set_decision(
        &mut self,
        agent: &Scoped<AgentName>,
        id: &DecisionId,
        decision: Option<&RememberedDecision>,
    ) -> bool {
        let key = (agent.clone(), id.clone());
        let before = match decision {
            Some(decision) => self.decisions.insert(key, decision.clone()),
            None => self.decisions.remove(&key),
        };
        before.is_some()
    }

    /// Returns whether the key was there.
    pub(super) fn change_key(&mut self, change: KeyChange) -> bool {
        let id = change.id();
        let was_there = self.keys.contains_key(&id);
        match change {
            KeyChange::Update(_) if !was_there => return false,
            KeyChange::Add(key) | KeyChange::Update(key) => {
                self.keys.insert(id, key);
            }
            KeyChange::Remove(_) => {
                self.keys.remove(&id);
                self.keys_used.remove(&id);
            }
        }
        self.keys_version += 1;
        was_there
    }

    pub(super) fn keep(&mut self, scope: &ResponseScope, response: StoredResponse) {
        let key = response.key.clone();
        let at = response.expires_at;
        if let Some(old) = self.responses.insert((scope.clone(), key.clone()), response) {
            self.expiries.remove(&(old.expires_at, scope.clone(), key.clone()));
        }
        self.expiries.insert((at, scope.clone(), key));
    }
}
