//! A memory store that can become unreachable, stop at a chosen write, or carry out a write and
//! lose the reply.

mod blobs_and_audit;
mod erasures;
mod outbox;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use abide_actors::journal::{
    Claim, ClaimedConversation, Commit, ConversationSummary, Holder, InboxEntry, InboxFilter,
    Journal, ResponseScope, Rewrite, StoreError, StoredConversation, StoredResponse,
};
use abide_actors::notices::OwedNotice;
use abide_conversation::event::Event;
use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::{
    AgentName, ConversationId, DecisionId, Revision, Scoped, Seq, Tenant, Timestamp,
};
use abide_registry::partition::PartitionSet;
use abide_registry::store::memory::Memory;
use abide_registry::store::{
    KeyChange, KeyList, ListError, Occupancy, Page, ScopedKeyId, Store, StoredAgent, SummaryFilter,
};
use async_trait::async_trait;
use tokio::sync::{Semaphore, watch};

/// Stops the writer at one write, so that a test can act at exactly this moment.
pub struct Checkpoint {
    /// The number of the write, counted from 0.
    write_number: usize,
    /// Whether the writer stops before the write is done, or after.
    before: bool,
    writes: AtomicUsize,
    reached: watch::Sender<Option<Scoped<ConversationId>>>,
    /// A permit lets the writer go on.
    pub resume: Semaphore,
    /// Whether the writer gets the error of an unreachable store when it goes on.
    pub refuse: AtomicBool,
}

impl Checkpoint {
    pub fn new(write_number: usize, before: bool) -> Arc<Self> {
        Arc::new(Self {
            write_number,
            before,
            writes: AtomicUsize::default(),
            reached: watch::Sender::new(None),
            resume: Semaphore::new(0),
            refuse: AtomicBool::default(),
        })
    }

    /// Waits until the write is reached. Returns the conversation that it belongs to.
    pub async fn wait_until_reached(&self) -> Scoped<ConversationId> {
        let mut reached = self.reached.subscribe();
        let id = reached.wait_for(Option::is_some).await.unwrap().clone();
        id.unwrap()
    }

    /// The number of writes so far.
    pub fn write_count(&self) -> usize {
        self.writes.load(Ordering::SeqCst)
    }

    /// Holds the writer until the test resumes it. `Err` if the test chose to refuse the write.
    async fn hold(&self, id: &Scoped<ConversationId>) -> Result<(), StoreError> {
        self.reached.send_replace(Some(id.clone()));
        self.resume.acquire().await.unwrap().forget();
        if self.refuse.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable("refused by the test".to_owned()));
        }
        Ok(())
    }
}

#[derive(Default)]
pub struct FlakyStore {
    inner: Arc<Memory>,
    /// While set, every operation fails.
    pub unreachable: AtomicBool,
    /// Loses the reply of the next append that succeeds.
    pub lose_replies: AtomicBool,
    /// While set, neither blobs nor audit entries are accepted.
    pub full: AtomicBool,
    /// While set, conversations that do not exist cannot be claimed.
    pub refuse_new: AtomicBool,
    /// While set, no journal is rewritten.
    pub refuse_rewrites: AtomicBool,
    /// While set, lists show no conversation, as while their index is rebuilt.
    pub lists_nothing: AtomicBool,
    /// Conversations whose journals cannot be read.
    pub damaged: Mutex<BTreeSet<Scoped<ConversationId>>>,
    /// An event that cannot be read, where the others of its conversation can.
    pub damaged_event: Mutex<Option<(Scoped<ConversationId>, Seq)>>,
    /// A tenant whose definitions of agents cannot be read.
    pub damaged_tenant: Mutex<Option<Tenant>>,
    /// How many blobs and audit entries were refused while the store was full.
    pub refusals: AtomicUsize,
    pub checkpoint: Mutex<Option<Arc<Checkpoint>>>,
    /// How often what deletions have left was overwritten.
    pub overwritings: AtomicUsize,
    /// How often it was asked who holds a conversation.
    pub claim_reads: AtomicUsize,
    /// How often an agent's revisions or decisions were asked for.
    pub agent_reads: AtomicUsize,
    /// How often a journal was read from its beginning.
    pub whole_reads: AtomicUsize,
    /// The events that holders read of their own conversations, as often as they read them.
    pub own_reads: Mutex<Vec<Event>>,
    /// Has the next schedule tick once that is about to be removed.
    pub ticks_first: AtomicBool,
    /// Revokes the next decision that is about to be replaced.
    pub revokes_first: AtomicBool,
    /// While set, changes of schedules and holds let others go first, once each.
    pub in_steps: AtomicBool,
    /// From where lost names were looked for, one conversation at a time.
    pub name_looks: Mutex<Vec<Option<String>>>,
    /// The finished writes, in order.
    writes: Arc<Mutex<Vec<Write>>>,
}

/// A finished write: its conversation, and the claim under which it was written.
pub type Write = (Scoped<ConversationId>, Claim);

impl FlakyStore {
    /// One of several flaky connections to the same store.
    pub fn sharing(inner: Arc<Memory>, writes: Arc<Mutex<Vec<Write>>>) -> Self {
        Self { inner, writes, ..Self::default() }
    }

    /// The store, if it accepts blobs and audit entries.
    fn with_room(&self) -> Result<&Memory, StoreError> {
        if !self.full.load(Ordering::SeqCst) {
            return self.reachable();
        }
        self.refusals.fetch_add(1, Ordering::SeqCst);
        Err(StoreError::Unavailable("full".to_owned()))
    }

    /// The store, if it can read the journal of the conversation.
    fn readable(&self, id: &Scoped<ConversationId>) -> Result<&Memory, StoreError> {
        if self.damaged.lock().unwrap().contains(id) {
            return Err(StoreError::Unreadable(format!("{id}: it was changed")));
        }
        self.reachable()
    }

    /// These events of the conversation, if none of them is damaged.
    fn undamaged(
        &self,
        id: &Scoped<ConversationId>,
        events: Vec<Event>,
    ) -> Result<Vec<Event>, StoreError> {
        let damaged = self.damaged_event.lock().unwrap();
        let is_damaged =
            |event: &Event| damaged.as_ref().is_some_and(|(of, seq)| of == id && *seq == event.seq);
        if events.iter().any(is_damaged) {
            return Err(StoreError::Unreadable(format!("{id}: it was changed")));
        }
        Ok(events)
    }

    /// The store, when others have had their turn if that is so asked.
    async fn in_turn(&self) -> Result<&Memory, StoreError> {
        if self.in_steps.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        self.reachable()
    }

    fn reachable(&self) -> Result<&Memory, StoreError> {
        if self.unreachable.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable("unreachable".to_owned()));
        }
        Ok(&self.inner)
    }
}

impl FlakyStore {
    /// Appends, with what a test has happen around that.
    async fn write(
        &self,
        id: &Scoped<ConversationId>,
        append: impl Future<Output = Result<Claim, StoreError>>,
    ) -> Result<Claim, StoreError> {
        let checkpoint = self.checkpoint.lock().unwrap().clone();
        let checkpoint = checkpoint
            .filter(|stop| stop.writes.fetch_add(1, Ordering::SeqCst) == stop.write_number);
        if let Some(stop) = checkpoint.as_ref().filter(|stop| stop.before) {
            stop.hold(id).await?;
        }
        let held = append.await?;
        self.writes.lock().unwrap().push((id.clone(), held.clone()));
        if let Some(stop) = checkpoint.filter(|stop| !stop.before) {
            stop.hold(id).await?;
        }
        if self.lose_replies.swap(false, Ordering::SeqCst) {
            return Err(StoreError::Unavailable("the reply was lost".to_owned()));
        }
        Ok(held)
    }
}

#[async_trait]
impl Journal for FlakyStore {
    async fn claim(
        &self,
        id: &Scoped<ConversationId>,
        me: &Holder,
        dead: Option<&Holder>,
    ) -> Result<Claim, StoreError> {
        let inner = self.reachable()?;
        if self.refuse_new.load(Ordering::SeqCst) && inner.summary(id).await?.is_none() {
            return Err(StoreError::Unavailable("full".to_owned()));
        }
        inner.claim(id, me, dead).await
    }

    async fn release(&self, id: &Scoped<ConversationId>, held: &Claim) -> Result<(), StoreError> {
        self.reachable()?.release(id, held).await
    }

    async fn delete(
        &self,
        id: &Scoped<ConversationId>,
        held: &Claim,
        response: Option<StoredResponse>,
        owed: Vec<OwedNotice>,
    ) -> Result<(), StoreError> {
        self.reachable()?.delete(id, held, response, owed).await
    }

    async fn append(
        &self,
        id: &Scoped<ConversationId>,
        held: &Claim,
        commit: Commit,
    ) -> Result<(), StoreError> {
        let append =
            async { self.reachable()?.append(id, held, commit).await.map(|()| held.clone()) };
        self.write(id, append).await.map(drop)
    }

    async fn rewrite(
        &self,
        id: &Scoped<ConversationId>,
        held: &Claim,
        rewrite: Rewrite,
    ) -> Result<(), StoreError> {
        if self.refuse_rewrites.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable("refused by the test".to_owned()));
        }
        self.reachable()?.rewrite(id, held, rewrite).await
    }

    async fn load(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<Option<StoredConversation>, StoreError> {
        self.readable(id)?.load(id).await
    }

    async fn claim_and_load(
        &self,
        id: &Scoped<ConversationId>,
        me: &Holder,
        dead: Option<&Holder>,
    ) -> Result<ClaimedConversation, StoreError> {
        let claimed = self.reachable()?.claim_and_load(id, me, dead).await?;
        self.readable(id)?;
        Ok(claimed)
    }

    async fn claim_and_append(
        &self,
        id: &Scoped<ConversationId>,
        me: &Holder,
        commit: Commit,
    ) -> Result<Claim, StoreError> {
        self.write(id, async { self.reachable()?.claim_and_append(id, me, commit).await }).await
    }

    async fn reset_deaths(&self, id: &Scoped<ConversationId>) -> Result<(), StoreError> {
        self.reachable()?.reset_deaths(id).await
    }

    async fn events(
        &self,
        id: &Scoped<ConversationId>,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        if after == Seq::ZERO {
            self.whole_reads.fetch_add(1, Ordering::SeqCst);
        }
        let events = self.readable(id)?.events(id, after, limit).await?;
        self.undamaged(id, events)
    }

    async fn own_events(
        &self,
        id: &Scoped<ConversationId>,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let events = self.readable(id)?.own_events(id, after, limit).await?;
        self.own_reads.lock().unwrap().extend(events.iter().cloned());
        Ok(events)
    }

    async fn events_before(
        &self,
        id: &Scoped<ConversationId>,
        before: Seq,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let events = self.readable(id)?.events_before(id, before, limit).await?;
        self.undamaged(id, events)
    }

    async fn summary(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<Option<ConversationSummary>, StoreError> {
        self.reachable()?.summary(id).await
    }

    async fn stored_response(
        &self,
        scope: &ResponseScope,
        key: &str,
        now: Timestamp,
    ) -> Result<Option<StoredResponse>, StoreError> {
        self.reachable()?.stored_response(scope, key, now).await
    }
}

#[async_trait]
impl Store for FlakyStore {
    async fn current_claim(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<Option<Claim>, StoreError> {
        self.claim_reads.fetch_add(1, Ordering::SeqCst);
        self.reachable()?.current_claim(id).await
    }

    async fn occupancy(&self, id: &Scoped<ConversationId>) -> Result<Occupancy, StoreError> {
        self.reachable()?.occupancy(id).await
    }

    async fn conversations(
        &self,
        tenant: &Tenant,
        filter: &SummaryFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<(Scoped<ConversationId>, ConversationSummary)>, ListError> {
        self.reachable()?.conversations(tenant, filter, cursor, limit).await
    }

    async fn inbox(
        &self,
        tenant: &Tenant,
        filter: &InboxFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<InboxEntry>, ListError> {
        self.reachable()?.inbox(tenant, filter, cursor, limit).await
    }

    async fn tenants(&self) -> Result<BTreeSet<Tenant>, StoreError> {
        self.reachable()?.tenants().await
    }

    async fn all_tenants(&self) -> Result<BTreeSet<Tenant>, StoreError> {
        self.reachable()?.all_tenants().await
    }

    async fn alarms(
        &self,
        limit: usize,
    ) -> Result<Vec<(Scoped<ConversationId>, Timestamp)>, StoreError> {
        self.reachable()?.alarms(limit).await
    }

    async fn due_alarms(
        &self,
        partitions: &PartitionSet,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Scoped<ConversationId>, Timestamp)>, StoreError> {
        self.reachable()?.due_alarms(partitions, until, limit).await
    }

    async fn active(
        &self,
        partitions: &PartitionSet,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<(Scoped<ConversationId>, Option<Claim>)>, ListError> {
        self.reachable()?.active(partitions, cursor, limit).await
    }

    async fn change_key(&self, change: KeyChange) -> Result<bool, StoreError> {
        self.reachable()?.change_key(change).await
    }

    async fn keys(&self, known: Option<u64>) -> Result<Option<KeyList>, StoreError> {
        self.reachable()?.keys(known).await
    }

    async fn mark_keys_used(&self, used: &[(ScopedKeyId, Timestamp)]) -> Result<(), StoreError> {
        self.reachable()?.mark_keys_used(used).await
    }

    async fn keys_used(&self, tenant: &Tenant) -> Result<BTreeMap<String, Timestamp>, StoreError> {
        self.reachable()?.keys_used(tenant).await
    }

    async fn reserve(
        &self,
        scope: &ResponseScope,
        response: StoredResponse,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.reachable()?.reserve(scope, response, now).await
    }

    async fn put_agent(
        &self,
        tenant: &Tenant,
        agent: StoredAgent,
        response: Option<StoredResponse>,
    ) -> Result<bool, StoreError> {
        self.reachable()?.put_agent(tenant, agent, response).await
    }

    async fn put_agent_if(
        &self,
        tenant: &Tenant,
        agent: StoredAgent,
        response: Option<StoredResponse>,
        newest: Option<&Revision>,
    ) -> Result<bool, StoreError> {
        self.reachable()?.put_agent_if(tenant, agent, response, newest).await
    }

    async fn agent(&self, name: &Scoped<AgentName>) -> Result<Option<StoredAgent>, StoreError> {
        self.reachable()?.agent(name).await
    }

    async fn newest(&self, name: &Scoped<AgentName>) -> Result<Option<Revision>, StoreError> {
        self.reachable()?.newest(name).await
    }

    async fn revision(
        &self,
        revision: &Scoped<Revision>,
    ) -> Result<Option<StoredAgent>, StoreError> {
        self.reachable()?.revision(revision).await
    }

    async fn agents(&self, tenant: &Tenant) -> Result<Vec<StoredAgent>, StoreError> {
        if self.damaged_tenant.lock().unwrap().as_ref() == Some(tenant) {
            return Err(StoreError::Unreadable("agent: it was changed".to_owned()));
        }
        self.reachable()?.agents(tenant).await
    }

    async fn delete_agent(
        &self,
        name: &Scoped<AgentName>,
        response: Option<StoredResponse>,
    ) -> Result<bool, StoreError> {
        self.reachable()?.delete_agent(name, response).await
    }

    async fn set_decision(
        &self,
        agent: &Scoped<AgentName>,
        id: &DecisionId,
        decision: Option<&RememberedDecision>,
    ) -> Result<bool, StoreError> {
        self.reachable()?.set_decision(agent, id, decision).await
    }

    async fn decisions(
        &self,
        agent: &Scoped<AgentName>,
    ) -> Result<Vec<RememberedDecision>, StoreError> {
        self.count_agent_read().await;
        self.reachable()?.decisions(agent).await
    }
}
