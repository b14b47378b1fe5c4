//! The store as one process opened it: what it acknowledges is checked, and mutations break it.

use std::sync::Arc;

use abide_actors::blobs::{Blob, Blobs};
use abide_actors::journal::{
    Claim, ClaimedConversation, Commit, Holder, Journal, ResponseScope, StoreError,
    StoredConversation, StoredResponse,
};
use abide_actors::notices::OwedNotice;
use abide_conversation::event::Event;
use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::{AgentName, ConversationId, Scoped, Seq, Timestamp};
use abide_registry::membership::{Member, Membership, MembershipStatus};
use abide_registry::partition::{Partition, PartitionSet};
use abide_registry::store::redis::{Durability, Redis};
use abide_registry::store::{Compression, Occupancy, Store as _};

use super::{ALL, HeldConversation, Written, durability};
use crate::executor::ProcessId;
use crate::mutation::Mutation;
use crate::redis::wire::NodeDial;

/// The store as one process opened it.
pub struct Client {
    redis: Redis,
    /// The process as it would be without waiting for replicas: for a mutation.
    hasty: Redis,
    mutation: Option<Mutation>,
    world: std::rc::Weak<crate::world::World>,
}

impl Client {
    pub fn new(world: &std::rc::Rc<crate::world::World>, process: ProcessId) -> Self {
        let dial = Arc::new(NodeDial(process));
        let opening_id = format!("p{process}");
        // Some processes compress, and all read both.
        let compression = [Compression::None, Compression::Zstd][process % 2];
        Self {
            hasty: Redis::simulated(dial.clone(), Durability::Os, format!("{opening_id}-hasty")),
            redis: Redis::simulated(dial, durability(world.seed), opening_id)
                .with_compression(compression),
            mutation: world.mutation,
            world: std::rc::Rc::downgrade(world),
        }
    }

    /// The product's store, for calls that no mutation breaks.
    pub fn redis(&self) -> &Redis {
        &self.redis
    }

    fn breaks(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    pub async fn enter(&self, me: &Member) -> Result<MembershipStatus, StoreError> {
        self.lease().enter(me).await
    }

    pub async fn renew(&self, me: &Member) -> Result<MembershipStatus, StoreError> {
        self.lease().renew(me).await
    }

    pub async fn declare_dead(&self, who: &Holder, suspect: bool) -> Result<bool, StoreError> {
        self.redis.declare_dead_if(who, suspect).await
    }

    pub async fn leave(&self, who: &Holder) -> Result<(), StoreError> {
        self.redis.leave(who).await
    }

    /// The store that renews leases.
    fn lease(&self) -> &Redis {
        if self.breaks(Mutation::RenewsWithoutWait) { &self.hasty } else { &self.redis }
    }

    pub async fn claim_and_load(
        &self,
        id: &Scoped<ConversationId>,
        me: &Holder,
        dead: Option<&Holder>,
    ) -> Result<ClaimedConversation, StoreError> {
        if let Some(world) = self.world.upgrade() {
            world.store.use_partition(Partition::from(id));
        }
        self.redis.claim_and_load(id, me, dead).await
    }

    /// Claims a conversation that was just deleted.
    pub async fn claim(
        &self,
        id: &Scoped<ConversationId>,
        me: &Holder,
    ) -> Result<Claim, StoreError> {
        self.redis.claim(id, me, None).await
    }

    /// Deletes, and checks that an acknowledged deletion is where it was promised to be.
    pub async fn delete(
        &self,
        id: &Scoped<ConversationId>,
        held: &Claim,
        answer: Option<StoredResponse>,
        owed: Vec<OwedNotice>,
    ) -> Result<(), StoreError> {
        let outcome = self.redis.delete(id, held, answer, owed).await;
        if let (Ok(()), Some(world)) = (&outcome, self.world.upgrade()) {
            let durable = world.store.is_durable(id, Written::Deletion, world.exec.now());
            world.store.check_acknowledged(id, "the deletion", durable);
        }
        outcome
    }

    pub async fn events(
        &self,
        id: &Scoped<ConversationId>,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        self.redis.events(id, after, limit).await
    }

    pub async fn events_before(
        &self,
        id: &Scoped<ConversationId>,
        before: Seq,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        self.redis.events_before(id, before, limit).await
    }

    pub async fn set_decision(
        &self,
        agent: &Scoped<AgentName>,
        decision: &RememberedDecision,
    ) -> Result<(), StoreError> {
        self.redis.set_decision(agent, &decision.id, Some(decision)).await.map(|_| ())
    }

    /// Stores a blob, and promises it from then on.
    pub async fn put_blob(
        &self,
        owner: &Scoped<ConversationId>,
        content: &str,
    ) -> Result<(), StoreError> {
        let blob = Blob::new("text/plain", content.as_bytes().to_vec());
        let id = owner.sibling(&blob.id());
        self.redis.put_blob(&id, &blob).await?;
        if let Some(world) = self.world.upgrade() {
            world.blobs.borrow_mut().push(id);
        }
        Ok(())
    }

    pub async fn reset_deaths(&self, id: &Scoped<ConversationId>) -> Result<(), StoreError> {
        self.redis.reset_deaths(id).await
    }

    pub async fn release(
        &self,
        id: &Scoped<ConversationId>,
        held: &Claim,
    ) -> Result<(), StoreError> {
        self.redis.release(id, held).await
    }

    /// Appends, and checks that what is acknowledged is where it was promised to be.
    pub async fn append(
        &self,
        id: &Scoped<ConversationId>,
        held: &Claim,
        mut commit: Commit,
    ) -> Result<(), StoreError> {
        let last = commit.events.last().map(|event| event.seq);
        if self.breaks(Mutation::NoActiveMark) {
            commit.summary.active = false;
        }
        let outcome = if self.breaks(Mutation::AckWithoutWrite) && commit.events.len() == 1 {
            Ok(())
        } else {
            self.redis.append(id, held, commit).await
        };
        self.check_append(id, last, &outcome);
        outcome
    }

    /// Claims by a first commit, and checks what is acknowledged as for any other.
    pub async fn claim_and_append(
        &self,
        id: &Scoped<ConversationId>,
        me: &Holder,
        mut commit: Commit,
    ) -> Result<Claim, StoreError> {
        let last = commit.events.last().map(|event| event.seq);
        if self.breaks(Mutation::NoActiveMark) {
            commit.summary.active = false;
        }
        if let Some(world) = self.world.upgrade() {
            world.store.use_partition(Partition::from(id));
            world.store.count("conversations claimed by their first commit");
        }
        let outcome = self.redis.claim_and_append(id, me, commit).await;
        self.check_append(id, last, &outcome);
        outcome
    }

    fn check_append<T>(
        &self,
        id: &Scoped<ConversationId>,
        last: Option<Seq>,
        outcome: &Result<T, StoreError>,
    ) {
        let Some(world) = self.world.upgrade() else { return };
        match (outcome, last) {
            (Ok(_), Some(last)) => {
                let durable = world.store.is_durable(id, Written::Event(last), world.exec.now());
                world.store.check_acknowledged(id, &format!("event {last}"), durable);
            }
            (Err(StoreError::Fenced), _) => world.store.fenced.set(world.store.fenced.get() + 1),
            (Ok(_) | Err(_), _) => {}
        }
    }

    /// Appends without any check, as a node would that bypasses the actor.
    pub async fn append_unchecked(
        &self,
        id: &Scoped<ConversationId>,
        mut commit: Commit,
    ) -> Result<(), StoreError> {
        let Some(held) = self.redis.current_claim(id).await? else { return Ok(()) };
        let head = self.redis.summary(id).await?;
        let mut seq = head.map_or(Seq::ZERO, |head| head.last_seq);
        for event in Arc::make_mut(&mut commit.events) {
            seq = seq.next();
            event.seq = seq;
        }
        commit.summary.last_seq = seq;
        self.redis.append(id, &held, commit).await
    }

    pub async fn load(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<Option<StoredConversation>, StoreError> {
        self.redis.load(id).await
    }

    /// The first answer to a request with this key.
    pub async fn stored_response(
        &self,
        id: &Scoped<ConversationId>,
        key: &str,
    ) -> Result<Option<Seq>, StoreError> {
        let scope = ResponseScope::Conversation(id.clone());
        let stored = self.redis.stored_response(&scope, key, Timestamp::UNIX_EPOCH).await?;
        Ok(stored.and_then(|stored| stored.body.as_u64().map(Seq::new)))
    }

    pub async fn occupancy(&self, id: &Scoped<ConversationId>) -> Result<Occupancy, StoreError> {
        self.redis.occupancy(id).await
    }

    pub async fn exists(&self, id: &Scoped<ConversationId>) -> Result<bool, StoreError> {
        Ok(self.redis.summary(id).await?.is_some())
    }

    pub async fn due_alarms(
        &self,
        partitions: &PartitionSet,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Scoped<ConversationId>, Timestamp)>, StoreError> {
        if self.breaks(Mutation::NoAlarms) {
            return Ok(Vec::new());
        }
        let Some(world) = self.world.upgrade() else { return Ok(Vec::new()) };
        let share = world.store.used(partitions);
        self.redis.due_alarms(&share, until, limit).await
    }

    pub async fn active(
        &self,
        partitions: &PartitionSet,
    ) -> Result<Vec<HeldConversation>, StoreError> {
        let Some(world) = self.world.upgrade() else { return Ok(Vec::new()) };
        let share = world.store.used(partitions);
        let page = self.redis.active(&share, None, ALL).await;
        page.map(|page| page.items).map_err(|refused| StoreError::Unavailable(refused.to_string()))
    }
}
