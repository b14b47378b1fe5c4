//! The store that forgets everything with its process: the reference for the others, and for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use abide_actors::journal::{
    Answer, Commit, Head, Holder, Holding, InboxEntry, InboxFilter, Journal, Loaded, Refusal,
};
use abide_conversation::{AgentName, CallId, ConversationId, Event, Revision, State, Timestamp};
use async_trait::async_trait;

use super::super::agents;
use super::claims::Claims;
use super::paging::{self, InboxKey};
use super::rules;
use super::{HeadFilter, ListRefusal, Page, Store, StoredAgent};

/// Ordered maps behind one lock; every call is one step, and nothing is ever unavailable.
#[derive(Debug, Default)]
pub struct Memory {
    tables: Mutex<Tables>,
}

#[derive(Debug, Default)]
struct Tables {
    claims: Claims,
    conversations: BTreeMap<ConversationId, Conversation>,
    inbox: BTreeMap<InboxKey, InboxEntry>,
    alarms: BTreeSet<(Timestamp, ConversationId)>,
    active: BTreeSet<ConversationId>,
    answers: BTreeMap<(String, String), Answer>,
    newest: BTreeMap<AgentName, Revision>,
    revisions: BTreeMap<Revision, StoredAgent>,
}

#[derive(Debug)]
struct Conversation {
    epoch: u64,
    head: Head,
    events: Vec<Event>,
    state: Option<State>,
    open: BTreeMap<(CallId, u32), Timestamp>,
}

impl Memory {
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tables {
    fn append(&mut self, id: &ConversationId, epoch: u64, commit: Commit) -> Result<(), Refusal> {
        let known = self.conversations.get(id).map(|known| known.head.last_seq);
        if !rules::follows(&commit, known) {
            return Err(Refusal::Conflict);
        }
        let old = self.conversations.remove(id);
        self.unmark(id, old.as_ref().map(|old| &old.head));
        let (mut events, mut state, mut open) = match old {
            Some(old) => (old.events, old.state, old.open),
            None => (Vec::new(), None, BTreeMap::new()),
        };
        for closed in commit.closed {
            if let Some(at) = open.remove(&(closed.call_id.clone(), closed.suspension)) {
                self.inbox.remove(&(at, id.clone(), closed.call_id, closed.suspension));
            }
        }
        let agent = &commit.head.agent;
        for pending in commit.opened {
            let call = pending.call_id.clone();
            open.insert((call.clone(), pending.suspension), pending.expires_at);
            let key = (pending.expires_at, id.clone(), call, pending.suspension);
            let entry = InboxEntry { conversation_id: id.clone(), agent: agent.clone(), pending };
            self.inbox.insert(key, entry);
        }
        self.mark(id, &commit.head);
        if let Some(now) = commit.events.last().map(|event| event.at) {
            self.answers.retain(|_, answer| now < answer.expires_at);
        }
        for answer in commit.answers {
            self.keep(id.as_str(), answer);
        }
        events.extend(commit.events);
        state = commit.state.or(state);
        let conversation = Conversation { epoch, head: commit.head, events, state, open };
        self.conversations.insert(id.clone(), conversation);
        Ok(())
    }

    fn delete(&mut self, id: &ConversationId) {
        let old = self.conversations.remove(id);
        self.unmark(id, old.as_ref().map(|old| &old.head));
        for ((call, suspension), at) in old.into_iter().flat_map(|old| old.open) {
            self.inbox.remove(&(at, id.clone(), call, suspension));
        }
        self.answers.retain(|(scope, _), _| scope != id.as_str());
    }

    fn mark(&mut self, id: &ConversationId, head: &Head) {
        self.alarms.extend(head.alarm.map(|at| (at, id.clone())));
        if head.active {
            self.active.insert(id.clone());
        }
    }

    fn unmark(&mut self, id: &ConversationId, head: Option<&Head>) {
        if let Some(at) = head.and_then(|head| head.alarm) {
            self.alarms.remove(&(at, id.clone()));
        }
        self.active.remove(id);
    }

    fn keep(&mut self, scope: &str, answer: Answer) {
        self.answers.insert((scope.to_owned(), answer.key.clone()), answer);
    }
}

#[async_trait]
impl Journal for Memory {
    async fn append(
        &self,
        id: &ConversationId,
        held: &Holding,
        commit: Commit,
    ) -> Result<(), Refusal> {
        let mut tables = self.tables();
        if !tables.claims.admits(id, held) {
            return Err(Refusal::Fenced);
        }
        tables.append(id, held.epoch, commit)?;
        tables.claims.wrote(id);
        Ok(())
    }

    async fn load(&self, id: &ConversationId) -> Result<Option<Loaded>, Refusal> {
        let tables = self.tables();
        let loaded = tables.conversations.get(id).map(|conversation| {
            let state = conversation.state.clone().unwrap_or_default();
            let later = conversation.events.iter().filter(|event| event.seq > state.seq);
            Loaded { events: later.cloned().collect(), state }
        });
        Ok(loaded)
    }

    async fn events(
        &self,
        id: &ConversationId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Event>, Refusal> {
        let tables = self.tables();
        let events = tables.conversations.get(id).into_iter().flat_map(|known| &known.events);
        Ok(events.filter(|event| event.seq > after).take(limit).cloned().collect())
    }

    async fn events_before(
        &self,
        id: &ConversationId,
        before: u64,
        limit: usize,
    ) -> Result<Vec<Event>, Refusal> {
        let tables = self.tables();
        let events = tables.conversations.get(id).map_or(&[][..], |known| &known.events);
        let newest = events.iter().rev().filter(|event| event.seq < before);
        Ok(newest.take(limit).cloned().collect())
    }

    async fn answer(
        &self,
        scope: &str,
        key: &str,
        now: Timestamp,
    ) -> Result<Option<Answer>, Refusal> {
        let tables = self.tables();
        let answer = tables.answers.get(&(scope.to_owned(), key.to_owned()));
        Ok(answer.filter(|answer| now < answer.expires_at).cloned())
    }

    async fn claim(
        &self,
        id: &ConversationId,
        me: &Holder,
        dead: Option<&Holder>,
    ) -> Result<Holding, Refusal> {
        let mut tables = self.tables();
        let written = tables.conversations.get(id).map_or(0, |known| known.epoch);
        Ok(tables.claims.claim(id, me, dead, written))
    }

    async fn release(&self, id: &ConversationId, held: &Holding) -> Result<(), Refusal> {
        self.tables().claims.release(id, held);
        Ok(())
    }

    async fn delete(
        &self,
        id: &ConversationId,
        held: &Holding,
        answer: Option<Answer>,
    ) -> Result<(), Refusal> {
        let mut tables = self.tables();
        if !tables.claims.admits(id, held) {
            return Err(Refusal::Fenced);
        }
        tables.delete(id);
        tables.claims.forget(id);
        if let Some(answer) = answer {
            tables.keep(id.as_str(), answer);
        }
        Ok(())
    }
}

#[async_trait]
impl Store for Memory {
    async fn holding(&self, id: &ConversationId) -> Result<Option<Holding>, Refusal> {
        Ok(self.tables().claims.present(id).cloned())
    }

    async fn head(&self, id: &ConversationId) -> Result<Option<Head>, Refusal> {
        Ok(self.tables().conversations.get(id).map(|known| known.head.clone()))
    }

    async fn conversations(
        &self,
        filter: &HeadFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<(ConversationId, Head)>, ListRefusal> {
        let after: Option<ConversationId> = paging::decode(cursor)?;
        let tables = self.tables();
        let rows = tables.conversations.range(from(after));
        let rows = rows.map(|(id, known)| Ok((id, (id.clone(), known.head.clone()))));
        paging::page(rows, limit, |(_, head)| filter.admits(head))
    }

    async fn inbox(
        &self,
        filter: &InboxFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<InboxEntry>, ListRefusal> {
        let after: Option<InboxKey> = paging::decode(cursor)?;
        let tables = self.tables();
        let rows = tables.inbox.range(from(after));
        let rows = rows.map(|(key, entry)| Ok((key, entry.clone())));
        paging::page(rows, limit, |entry| filter.admits(entry))
    }

    async fn alarms(&self, limit: usize) -> Result<Vec<(ConversationId, Timestamp)>, Refusal> {
        let tables = self.tables();
        Ok(tables.alarms.iter().take(limit).map(|(at, id)| (id.clone(), *at)).collect())
    }

    async fn active(
        &self,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<ConversationId>, ListRefusal> {
        let after: Option<ConversationId> = paging::decode(cursor)?;
        let tables = self.tables();
        let rows = tables.active.range(from(after)).map(|id| Ok((id, id.clone())));
        paging::page(rows, limit, |_| true)
    }

    async fn put_agent(&self, agent: StoredAgent, answer: Option<Answer>) -> Result<bool, Refusal> {
        let mut tables = self.tables();
        if let Some(answer) = answer {
            tables.keep(&agents::scope(&agent.name), answer);
        }
        let old = tables.newest.insert(agent.name.clone(), agent.revision.clone());
        tables.revisions.insert(agent.revision.clone(), agent);
        Ok(old.is_none())
    }

    async fn agent(&self, name: &AgentName) -> Result<Option<StoredAgent>, Refusal> {
        let tables = self.tables();
        let revision = tables.newest.get(name);
        Ok(revision.and_then(|revision| tables.revisions.get(revision)).cloned())
    }

    async fn revision(&self, revision: &Revision) -> Result<Option<StoredAgent>, Refusal> {
        Ok(self.tables().revisions.get(revision).cloned())
    }

    async fn agents(&self) -> Result<Vec<StoredAgent>, Refusal> {
        let tables = self.tables();
        let newest = tables.newest.values();
        Ok(newest.filter_map(|revision| tables.revisions.get(revision)).cloned().collect())
    }

    async fn delete_agent(
        &self,
        name: &AgentName,
        answer: Option<Answer>,
    ) -> Result<bool, Refusal> {
        let mut tables = self.tables();
        if let Some(answer) = answer {
            tables.keep(&agents::scope(name), answer);
        }
        Ok(tables.newest.remove(name).is_some())
    }
}

fn from<K>(after: Option<K>) -> (Bound<K>, Bound<K>) {
    (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::conformance::conformance;
    use super::Memory;

    conformance!(((), Arc::new(Memory::default()) as Arc<dyn super::Store>));
}
