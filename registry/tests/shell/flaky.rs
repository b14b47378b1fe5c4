//! A store in memory that can go away, stop at a write, or do what it is asked and lose the answer.

mod aside;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use abide_actors::journal::{
    Claim, Commit, ConversationSummary, Holder, InboxEntry, InboxFilter, Journal, StoreError,
    StoredConversation, StoredResponse,
};
use abide_conversation::event::Event;
use abide_conversation::remembered::RememberedDecision;
use abide_conversation::{AgentName, ConversationId, DecisionId, Revision, Timestamp};
use abide_registry::partition::PartitionSet;
use abide_registry::store::memory::Memory;
use abide_registry::store::{HeadFilter, ListError, Page, Store, StoredAgent};
use async_trait::async_trait;
use tokio::sync::{Semaphore, watch};

/// Stops the world at one write, so that a test can do its worst right there.
pub struct Checkpoint {
    /// Which of all writes, from 0.
    at: usize,
    /// Whether it stops before the write is done, or after.
    before: bool,
    seen: AtomicUsize,
    reached: watch::Sender<Option<ConversationId>>,
    /// A permit lets it go on.
    pub go: Semaphore,
    /// Whether the writer is told that the store was away.
    pub refuse: AtomicBool,
}

impl Checkpoint {
    pub fn new(at: usize, before: bool) -> Arc<Self> {
        let (seen, refuse) = Default::default();
        let (reached, go) = (watch::Sender::new(None), Semaphore::new(0));
        Arc::new(Self { at, before, seen, reached, go, refuse })
    }

    /// Waits until the write is reached; says whose it is.
    pub async fn reached(&self) -> ConversationId {
        let mut reached = self.reached.subscribe();
        let id = reached.wait_for(Option::is_some).await.unwrap().clone();
        id.unwrap()
    }

    /// How many writes there were.
    pub fn seen(&self) -> usize {
        self.seen.load(Ordering::SeqCst)
    }

    /// `Err` if the writer is to be refused.
    async fn stop(&self, id: &ConversationId) -> Result<(), StoreError> {
        self.reached.send_replace(Some(id.clone()));
        self.go.acquire().await.unwrap().forget();
        match self.refuse.load(Ordering::SeqCst) {
            true => Err(StoreError::Unavailable("as the test wants it".to_owned())),
            false => Ok(()),
        }
    }
}

#[derive(Default)]
pub struct Flaky {
    inner: Arc<Memory>,
    pub away: AtomicBool,
    pub lose_answers: AtomicBool,
    /// It takes neither blobs nor entries of the audit.
    pub full: AtomicBool,
    /// How often it took none.
    pub refused: AtomicUsize,
    pub checkpoint: Mutex<Option<Arc<Checkpoint>>>,
    /// Who wrote, in order.
    writes: Arc<Mutex<Vec<Write>>>,
}

/// A write that was done: to which conversation, and under which holding.
pub type Write = (ConversationId, Claim);

impl Flaky {
    /// One way of several to the same store.
    pub fn to(inner: Arc<Memory>, writes: Arc<Mutex<Vec<Write>>>) -> Self {
        Self { inner, writes, ..Self::default() }
    }

    fn has_room(&self) -> Result<&Memory, StoreError> {
        if !self.full.load(Ordering::SeqCst) {
            return self.up();
        }
        self.refused.fetch_add(1, Ordering::SeqCst);
        Err(StoreError::Unavailable("full".to_owned()))
    }

    fn up(&self) -> Result<&Memory, StoreError> {
        match self.away.load(Ordering::SeqCst) {
            true => Err(StoreError::Unavailable("away".to_owned())),
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
    ) -> Result<Claim, StoreError> {
        self.up()?.claim(id, me, dead).await
    }

    async fn release(&self, id: &ConversationId, held: &Claim) -> Result<(), StoreError> {
        self.up()?.release(id, held).await
    }

    async fn delete(
        &self,
        id: &ConversationId,
        held: &Claim,
        answer: Option<StoredResponse>,
    ) -> Result<(), StoreError> {
        self.up()?.delete(id, held, answer).await
    }

    async fn append(
        &self,
        id: &ConversationId,
        held: &Claim,
        commit: Commit,
    ) -> Result<(), StoreError> {
        let checkpoint = self.checkpoint.lock().unwrap().clone();
        let checkpoint =
            checkpoint.filter(|stop| stop.seen.fetch_add(1, Ordering::SeqCst) == stop.at);
        if let Some(stop) = checkpoint.as_ref().filter(|stop| stop.before) {
            stop.stop(id).await?;
        }
        self.up()?.append(id, held, commit).await?;
        self.writes.lock().unwrap().push((id.clone(), held.clone()));
        if let Some(stop) = checkpoint.filter(|stop| !stop.before) {
            stop.stop(id).await?;
        }
        match self.lose_answers.swap(false, Ordering::SeqCst) {
            true => Err(StoreError::Unavailable("the answer was lost".to_owned())),
            false => Ok(()),
        }
    }

    async fn load(&self, id: &ConversationId) -> Result<Option<StoredConversation>, StoreError> {
        self.up()?.load(id).await
    }

    async fn events(
        &self,
        id: &ConversationId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        self.up()?.events(id, after, limit).await
    }

    async fn events_before(
        &self,
        id: &ConversationId,
        before: u64,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        self.up()?.events_before(id, before, limit).await
    }

    async fn answer(
        &self,
        scope: &str,
        key: &str,
        now: Timestamp,
    ) -> Result<Option<StoredResponse>, StoreError> {
        self.up()?.answer(scope, key, now).await
    }
}

#[async_trait]
impl Store for Flaky {
    async fn holding(&self, id: &ConversationId) -> Result<Option<Claim>, StoreError> {
        self.up()?.holding(id).await
    }

    async fn head(&self, id: &ConversationId) -> Result<Option<ConversationSummary>, StoreError> {
        self.up()?.head(id).await
    }

    async fn conversations(
        &self,
        filter: &HeadFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<(ConversationId, ConversationSummary)>, ListError> {
        self.up()?.conversations(filter, cursor, limit).await
    }

    async fn inbox(
        &self,
        filter: &InboxFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<InboxEntry>, ListError> {
        self.up()?.inbox(filter, cursor, limit).await
    }

    async fn alarms(&self, limit: usize) -> Result<Vec<(ConversationId, Timestamp)>, StoreError> {
        self.up()?.alarms(limit).await
    }

    async fn due(
        &self,
        share: &PartitionSet,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(ConversationId, Timestamp)>, StoreError> {
        self.up()?.due(share, until, limit).await
    }

    async fn active(
        &self,
        share: &PartitionSet,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<(ConversationId, Option<Claim>)>, ListError> {
        self.up()?.active(share, cursor, limit).await
    }

    async fn reserve(
        &self,
        scope: &str,
        answer: StoredResponse,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.up()?.reserve(scope, answer, now).await
    }

    async fn put_agent(
        &self,
        agent: StoredAgent,
        answer: Option<StoredResponse>,
    ) -> Result<bool, StoreError> {
        self.up()?.put_agent(agent, answer).await
    }

    async fn agent(&self, name: &AgentName) -> Result<Option<StoredAgent>, StoreError> {
        self.up()?.agent(name).await
    }

    async fn newest(&self, name: &AgentName) -> Result<Option<Revision>, StoreError> {
        self.up()?.newest(name).await
    }

    async fn revision(&self, revision: &Revision) -> Result<Option<StoredAgent>, StoreError> {
        self.up()?.revision(revision).await
    }

    async fn agents(&self) -> Result<Vec<StoredAgent>, StoreError> {
        self.up()?.agents().await
    }

    async fn delete_agent(
        &self,
        name: &AgentName,
        answer: Option<StoredResponse>,
    ) -> Result<bool, StoreError> {
        self.up()?.delete_agent(name, answer).await
    }

    async fn set_decision(
        &self,
        agent: &AgentName,
        id: &DecisionId,
        decision: Option<&RememberedDecision>,
    ) -> Result<bool, StoreError> {
        self.up()?.set_decision(agent, id, decision).await
    }

    async fn decisions(&self, agent: &AgentName) -> Result<Vec<RememberedDecision>, StoreError> {
        self.up()?.decisions(agent).await
    }
}
