//! The store of all nodes: the product's Redis store over the model of Redis, whose transactions are
//! observed, and which mutations break.

mod client;
mod oracle;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU8;
use std::sync::Arc;

use ::redis::Value;
use abide_actors::journal::{Claim, Holder, Journal, StoreError, StoredConversation};
use abide_conversation::event::Event;
use abide_conversation::{ConversationId, Scoped, Seq, Timestamp};
use abide_registry::partition::{Partition, PartitionSet};
use abide_registry::store::Store as _;
use abide_registry::store::redis::{Durability, Redis};
use futures::FutureExt;

use crate::mutation::Mutation;
use crate::observer::{Observer, key};
use crate::redis::wire::Direct;
use crate::redis::{Call, Group, ScriptName, Transaction, Words, text};

pub use self::client::Client;

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

/// The output of a future that never waits.
fn complete_now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("the model answers checks at once")
}
