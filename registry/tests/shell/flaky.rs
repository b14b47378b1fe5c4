//! A store in memory that can go away, or do what it is asked and lose the answer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use abide_actors::journal::{
    Answer, Commit, Head, Holder, Holding, InboxEntry, InboxFilter, Journal, Loaded, Refusal,
};
use abide_conversation::event::Event;
use abide_conversation::{AgentName, ConversationId, Revision, Timestamp};
use abide_registry::partition::Share;
use abide_registry::store::memory::Memory;
use abide_registry::store::{HeadFilter, ListRefusal, Page, Store, StoredAgent};
use async_trait::async_trait;

#[derive(Default)]
pub struct Flaky {
    inner: Arc<Memory>,
    pub away: AtomicBool,
    pub lose_answers: AtomicBool,
    /// Who wrote, in order.
    writes: Arc<Mutex<Vec<Write>>>,
}

/// A write that was done: to which conversation, and under which holding.
pub type Write = (ConversationId, Holding);

impl Flaky {
    /// One way of several to the same store.
    pub fn to(inner: Arc<Memory>, writes: Arc<Mutex<Vec<Write>>>) -> Self {
        Self { inner, writes, ..Self::default() }
    }

    fn up(&self) -> Result<&Memory, Refusal> {
        match self.away.load(Ordering::SeqCst) {
            true => Err(Refusal::Unavailable("away".to_owned())),
            false => Ok(&self.inner),
        }
    }
}

#[async_trait]
impl Journal for Flaky {
    async fn claim(
        &self,
        id: &ConversationId,
        me: &Holder,
        dead: Option<&Holder>,
    ) -> Result<Holding, Refusal> {
        self.up()?.claim(id, me, dead).await
    }

    async fn release(&self, id: &ConversationId, held: &Holding) -> Result<(), Refusal> {
        self.up()?.release(id, held).await
    }

    async fn delete(
        &self,
        id: &ConversationId,
        held: &Holding,
        answer: Option<Answer>,
    ) -> Result<(), Refusal> {
        self.up()?.delete(id, held, answer).await
    }

    async fn append(
        &self,
        id: &ConversationId,
        held: &Holding,
        commit: Commit,
    ) -> Result<(), Refusal> {
        self.up()?.append(id, held, commit).await?;
        self.writes.lock().unwrap().push((id.clone(), held.clone()));
        match self.lose_answers.swap(false, Ordering::SeqCst) {
            true => Err(Refusal::Unavailable("the answer was lost".to_owned())),
            false => Ok(()),
        }
    }

    async fn load(&self, id: &ConversationId) -> Result<Option<Loaded>, Refusal> {
        self.up()?.load(id).await
    }

    async fn events(
        &self,
        id: &ConversationId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Event>, Refusal> {
        self.up()?.events(id, after, limit).await
    }

    async fn events_before(
        &self,
        id: &ConversationId,
        before: u64,
        limit: usize,
    ) -> Result<Vec<Event>, Refusal> {
        self.up()?.events_before(id, before, limit).await
    }

    async fn answer(
        &self,
        scope: &str,
        key: &str,
        now: Timestamp,
    ) -> Result<Option<Answer>, Refusal> {
        self.up()?.answer(scope, key, now).await
    }
}

#[async_trait]
impl Store for Flaky {
    async fn holding(&self, id: &ConversationId) -> Result<Option<Holding>, Refusal> {
        self.up()?.holding(id).await
    }

    async fn head(&self, id: &ConversationId) -> Result<Option<Head>, Refusal> {
        self.up()?.head(id).await
    }

    async fn conversations(
        &self,
        filter: &HeadFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<(ConversationId, Head)>, ListRefusal> {
        self.up()?.conversations(filter, cursor, limit).await
    }

    async fn inbox(
        &self,
        filter: &InboxFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<InboxEntry>, ListRefusal> {
        self.up()?.inbox(filter, cursor, limit).await
    }

    async fn alarms(&self, limit: usize) -> Result<Vec<(ConversationId, Timestamp)>, Refusal> {
        self.up()?.alarms(limit).await
    }

    async fn due(
        &self,
        share: &Share,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(ConversationId, Timestamp)>, Refusal> {
        self.up()?.due(share, until, limit).await
    }

    async fn active(
        &self,
        share: &Share,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<(ConversationId, Option<Holding>)>, ListRefusal> {
        self.up()?.active(share, cursor, limit).await
    }

    async fn reserve(&self, scope: &str, answer: Answer, now: Timestamp) -> Result<bool, Refusal> {
        self.up()?.reserve(scope, answer, now).await
    }

    async fn put_agent(&self, agent: StoredAgent, answer: Option<Answer>) -> Result<bool, Refusal> {
        self.up()?.put_agent(agent, answer).await
    }

    async fn agent(&self, name: &AgentName) -> Result<Option<StoredAgent>, Refusal> {
        self.up()?.agent(name).await
    }

    async fn newest(&self, name: &AgentName) -> Result<Option<Revision>, Refusal> {
        self.up()?.newest(name).await
    }

    async fn revision(&self, revision: &Revision) -> Result<Option<StoredAgent>, Refusal> {
        self.up()?.revision(revision).await
    }

    async fn agents(&self) -> Result<Vec<StoredAgent>, Refusal> {
        self.up()?.agents().await
    }

    async fn delete_agent(
        &self,
        name: &AgentName,
        answer: Option<Answer>,
    ) -> Result<bool, Refusal> {
        self.up()?.delete_agent(name, answer).await
    }
}
