//! The store of all nodes: the product's Redis store over the model of Redis, whose transactions are
//! observed, and which mutations break.

mod oracle;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU8;
use std::sync::Arc;

use ::redis::Value;
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
use abide_registry::store::Store as _;
use abide_registry::store::redis::{Durability, Redis};
use futures::FutureExt;

use crate::executor::ProcessId;
use crate::mutation::Mutation;
use crate::observer::{Observer, key};
use crate::redis::wire::{Direct, NodeDial};
use crate::redis::{Call, Group, ScriptName, Transaction, Words, text};

/// A page size that exceeds the size of anything in the simulation.
const ALL: usize = 10_000;

/// The scripts that a full server must carry out: those that free memory, and those without which
/// nodes would be declared dead.
const FREEING_SCRIPTS: [ScriptName; 11] = [
    "barrier",
    "declare_dead",
    "delete",
    "drop_blobs",
    "dropped_names",
    "end_holds",
    "enter",
    "lost_names",
    "release",
    "remove_blob",
    "renew",
];

/// The servers, and what is checked about them.
pub struct Store {
    pub group: RefCell<Group>,
    pub observer: RefCell<Observer>,
    /// Reads for the checks, past all faults.
    oracle: Redis,
    /// The partitions that conversations are in.
    partitions: RefCell<BTreeSet<Partition>>,
    pub violation: RefCell<Option<String>>,
    pub fenced: Cell<u64>,
    /// How often something notable happened.
    pub coverage: RefCell<BTreeMap<&'static str, u64>>,
}

/// What may have been written of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    Event(Seq),
    Deletion,
}

/// The durability of the schedule with this seed.
pub fn durability(seed: u64) -> Durability {
    match seed / 3 % 3 {
        0 => Durability::Fsync,
        1 => Durability::Os,
        _ => Durability::Replicas(NonZeroU8::MIN),
    }
}

/// A conversation, and who holds it.
type HeldConversation = (Scoped<ConversationId>, Option<Claim>);

impl Store {
    pub fn new(seed: u64, mutation: Option<Mutation>) -> Self {
        let patches = mutation.map_or(&[][..], Mutation::patches);
        // A delay of nothing lets most writes be acknowledged at once.
        let delay_ms = seed / 9 % 3 * 4;
        let mut group = Group::new(durability(seed), delay_ms, patches);
        group.lies_about_replicas = mutation == Some(Mutation::WaitAnswersAtOnce);
        group.lies_about_reads = mutation == Some(Mutation::AnswersWithoutWait);
        Self {
            group: RefCell::new(group),
            observer: RefCell::default(),
            oracle: Redis::simulated(Arc::new(Direct), Durability::Os, "oracle".to_owned()),
            partitions: RefCell::default(),
            violation: RefCell::default(),
            fenced: Cell::default(),
            coverage: RefCell::default(),
        }
    }

    /// Reports the violation of an invariant; the first one counts.
    pub fn report_violation(&self, what: String) {
        self.violation.borrow_mut().get_or_insert(what);
    }

    pub fn count(&self, what: &'static str) {
        *self.coverage.borrow_mut().entry(what).or_default() += 1;
    }

    /// Carries a command out on a server. Returns its answer and, if it wrote, how many transactions
    /// the server has then; `None` if the server's process is gone.
    pub fn execute(&self, id: u64, words: &Words, now: u64) -> Option<(Value, Option<usize>)> {
        let mut group = self.group.borrow_mut();
        let before = group.server(id)?.log.len();
        let value = group.execute(id, words, now)?;
        let server = group.server(id)?;
        let after = server.log.len();
        let counts = std::mem::take(&mut server.counts);
        let refused = std::mem::take(&mut server.refused_when_full);
        if id == group.primary_id() {
            let mut observer = self.observer.borrow_mut();
            group.primary().log[observer.observed..]
                .iter()
                .for_each(|transaction| observer.observe(transaction));
        } else if after > before {
            let transaction = group.server(id).and_then(|former| former.log.last().cloned());
            transaction.iter().for_each(|it| self.observer.borrow_mut().observe_former(it));
        }
        drop(group);
        for (what, count) in counts {
            *self.coverage.borrow_mut().entry(what).or_default() += count;
        }
        for script in refused {
            if FREEING_SCRIPTS.contains(&script) {
                self.report_violation(format!("a full server refuses {script}"));
            }
        }
        if let Some(violation) = self.observer.borrow_mut().take_violation() {
            self.report_violation(violation);
        }
        Some((value, (after > before).then_some(after)))
    }

    /// Carries a command of a check out.
    pub fn execute_always(&self, words: &Words, now: u64) -> Value {
        self.group.borrow_mut().execute_always(words, now)
    }

    /// The observer forgets what the present primary has not.
    pub fn forget_what_is_lost(&self) {
        let rebuilt = self.observer.borrow().rebuilt(&self.group.borrow().primary().log);
        *self.observer.borrow_mut() = rebuilt;
    }

    /// Whether what was written last of this kind is where its durability promises it; `None` if it
    /// is nowhere.
    pub fn is_durable(&self, id: &Scoped<ConversationId>, what: Written, now: u64) -> Option<bool> {
        let mut group = self.group.borrow_mut();
        let wrote = |call: &Call| match (what, call.script) {
            (Written::Event(seq), "append") => {
                let (before, count) = call.appended();
                let is_its = text(&call.keys[0]).ends_with(&format!(":c:{id}"));
                is_its && (before + 1..=before + count).contains(&seq.get())
            }
            (Written::Deletion, "delete") => call.arg(4) == id.as_str(),
            (Written::Event(_) | Written::Deletion, _) => false,
        };
        // A repeat of the call is recognised, and writes it no second time.
        let command = match what {
            Written::Event(_) => "RPUSH",
            Written::Deletion => "UNLINK",
        };
        let wrote = |transaction: &Transaction| {
            transaction.effects.iter().any(|words| text(&words[0]) == command)
                && transaction.call.as_ref().is_some_and(wrote)
        };
        let index = group.primary().log.iter().rposition(wrote)?;
        Some(group.is_durable(index, now))
    }

    pub fn check_acknowledged(
        &self,
        id: &Scoped<ConversationId>,
        what: &str,
        durable: Option<bool>,
    ) {
        match durable {
            Some(true) => {}
            Some(false) => self
                .report_violation(format!("{id}: {what} is acknowledged before a replica has it")),
            None => {
                self.report_violation(format!("{id}: {what} is acknowledged and not written"));
            }
        }
    }

    /// The partitions of a set that the conversations are in. All others are empty, and reading them
    /// would take most of a schedule's time.
    pub fn used(&self, share: &PartitionSet) -> PartitionSet {
        let partitions = self.partitions.borrow();
        partitions.iter().copied().filter(|it| share.contains(*it)).collect()
    }

    /// Whether other nodes may count this holder as dead, since it was silent for too long.
    pub fn is_lapsed(&self, who: &Holder, now: u64) -> bool {
        let observer = self.observer.borrow();
        observer.silence(who, now).is_some_and(|silent_ms| silent_ms > crate::world::LEASE_MS)
            || observer.silenced.contains(&key(who))
    }

    pub fn load(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<Option<StoredConversation>, StoreError> {
        complete_now(self.oracle.load(id))
    }

    pub fn current_claim(&self, id: &Scoped<ConversationId>) -> Result<Option<Claim>, StoreError> {
        complete_now(self.oracle.current_claim(id))
    }

    pub fn events(&self, id: &Scoped<ConversationId>) -> Vec<Event> {
        complete_now(self.oracle.events(id, Seq::ZERO, ALL)).unwrap()
    }

    pub fn due(&self) -> Result<Vec<(Scoped<ConversationId>, Timestamp)>, StoreError> {
        complete_now(self.oracle.due_alarms(&self.used(&PartitionSet::all()), Timestamp::MAX, 1))
    }

    pub fn active(&self) -> Result<Vec<HeldConversation>, StoreError> {
        let page = complete_now(self.oracle.active(&self.used(&PartitionSet::all()), None, ALL));
        page.map(|page| page.items).map_err(|refused| StoreError::Unavailable(refused.to_string()))
    }

    /// Notes that something is in a partition.
    pub fn use_partition(&self, partition: Partition) {
        self.partitions.borrow_mut().insert(partition);
    }

    /// All conversations that were ever written.
    pub fn all(&self) -> Vec<Scoped<ConversationId>> {
        self.observer.borrow().written().cloned().collect()
    }
}

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
        Self {
            hasty: Redis::simulated(dial.clone(), Durability::Os, format!("{opening_id}-hasty")),
            redis: Redis::simulated(dial, durability(world.seed), opening_id),
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
        let Some(world) = self.world.upgrade() else { return outcome };
        match (&outcome, last) {
            (Ok(()), Some(last)) => {
                let durable = world.store.is_durable(id, Written::Event(last), world.exec.now());
                world.store.check_acknowledged(id, &format!("event {last}"), durable);
            }
            (Err(StoreError::Fenced), _) => world.store.fenced.set(world.store.fenced.get() + 1),
            (Ok(()) | Err(_), _) => {}
        }
        outcome
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

    pub async fn current_claim(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<Option<Claim>, StoreError> {
        self.redis.current_claim(id).await
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
    ) -> Result<Vec<(Scoped<ConversationId>, Option<Claim>)>, StoreError> {
        let Some(world) = self.world.upgrade() else { return Ok(Vec::new()) };
        let share = world.store.used(partitions);
        let page = self.redis.active(&share, None, ALL).await;
        page.map(|page| page.items).map_err(|refused| StoreError::Unavailable(refused.to_string()))
    }
}

/// The output of a future that never waits.
fn complete_now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("the model answers checks at once")
}
