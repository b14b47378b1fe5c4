//! The store of all nodes: the product's memory store, whose calls are checked, and which mutations
//! break.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use abide_actors::identity::Epoch;
use abide_actors::journal::{Claim, Commit, Holder, Journal, StoreError, StoredConversation};
use abide_conversation::event::{Event, EventData};
use abide_conversation::{ConversationId, Seq, Timestamp};
use abide_registry::membership::{Member, MembershipStatus};
use abide_registry::partition::PartitionSet;
use abide_registry::store::Store as _;
use abide_registry::store::memory::Memory;
use futures::FutureExt;

use crate::member_table::MemberTable;
use crate::mutation::Mutation;

/// A page size that exceeds the size of anything in the simulation.
const ALL: usize = 10_000;

/// A call takes effect at once; the nodes' connections add the delays.
pub struct Store {
    memory: Memory,
    pub member_table: RefCell<MemberTable>,
    mutation: Option<Mutation>,
    /// The highest claimed epoch of each conversation; below, the last writer's claim.
    epochs: RefCell<BTreeMap<ConversationId, Epoch>>,
    writers: RefCell<BTreeMap<ConversationId, Claim>>,
    closed: RefCell<BTreeSet<(ConversationId, String, u32)>>,
    done: RefCell<BTreeSet<(ConversationId, String)>>,
    pub violation: RefCell<Option<String>>,
    /// A hash of everything that was done, in order.
    pub trace: Cell<u64>,
    pub commits: Cell<u64>,
    pub claims: Cell<u64>,
    pub fenced: Cell<u64>,
}

impl Store {
    pub fn new(mutation: Option<Mutation>) -> Self {
        let member_table = MemberTable::new(mutation == Some(Mutation::NeverDeclaresDead));
        Self {
            memory: Memory::default(),
            member_table: RefCell::new(member_table),
            mutation,
            epochs: Default::default(),
            writers: Default::default(),
            closed: Default::default(),
            done: Default::default(),
            violation: Default::default(),
            trace: Default::default(),
            commits: Default::default(),
            claims: Default::default(),
            fenced: Default::default(),
        }
    }

    /// Reports the violation of an invariant; the first one counts.
    pub fn report_violation(&self, what: String) {
        self.violation.borrow_mut().get_or_insert(what);
    }

    pub fn enter(&self, me: &Member, now: u64) -> MembershipStatus {
        self.member_table.borrow_mut().enter(me, now)
    }

    pub fn renew(&self, me: &Member, now: u64) -> MembershipStatus {
        self.member_table.borrow_mut().renew(me, now)
    }

    pub fn declare_dead(&self, who: &Holder, suspect: bool, now: u64) -> Result<bool, StoreError> {
        if self.mutation == Some(Mutation::DeclaresLivingDead) {
            return Ok(true);
        }
        Ok(self.member_table.borrow_mut().declare_dead(who, suspect, now))
    }

    pub fn claim(
        &self,
        id: &ConversationId,
        me: &Holder,
        dead: Option<&Holder>,
        now: u64,
    ) -> Result<Claim, StoreError> {
        let before = self.current_claim(id)?;
        let former_holder = before.as_ref().map(|held| &held.holder);
        let dead = match self.mutation {
            Some(Mutation::ClaimIgnoresHolder) => former_holder,
            _ => dead,
        };
        let after = complete_now(self.memory.claim(id, me, dead))?;
        if before.as_ref() != Some(&after) {
            self.claims.set(self.claims.get() + 1);
            self.fold_into_trace(&[id.as_str(), &after.holder.to_string()], after.epoch.get());
            let highest =
                self.epochs.borrow_mut().insert(id.clone(), after.epoch).unwrap_or_default();
            if after.epoch <= highest {
                self.report_violation(format!(
                    "{id}: epoch {} is claimed after {highest}",
                    after.epoch
                ));
            }
            let alive = |held: &&Holder| self.member_table.borrow().silence(held, now).is_some();
            if let Some(former_holder) = former_holder.filter(|held| *held != me).filter(alive) {
                self.report_violation(format!(
                    "{id}: {me} claims it from {former_holder}, which is a member"
                ));
            }
        }
        Ok(after)
    }

    pub fn release(&self, id: &ConversationId, held: &Claim) -> Result<(), StoreError> {
        complete_now(self.memory.release(id, held))
    }

    pub fn append(
        &self,
        id: &ConversationId,
        held: &Claim,
        mut commit: Commit,
    ) -> Result<(), StoreError> {
        if self.mutation == Some(Mutation::AckWithoutWrite) && commit.events.len() == 1 {
            return Ok(());
        }
        if self.mutation == Some(Mutation::NoActiveMark) {
            commit.summary.active = false;
        }
        let present = self.current_claim(id)?;
        let mut by = held;
        if self.mutation == Some(Mutation::NoFence) {
            by = present.as_ref().unwrap_or(held);
            self.renumber(id, &mut commit);
        }
        let (last, closing_events) = closing_events(&commit);
        match complete_now(self.memory.append(id, by, commit)) {
            Ok(()) => {
                self.check_write(id, held, last, closing_events);
                Ok(())
            }
            Err(refusal) => {
                self.fenced.set(self.fenced.get() + u64::from(refusal == StoreError::Fenced));
                Err(refusal)
            }
        }
    }

    /// Appends without any check, as a node would that bypasses the actor.
    pub fn append_unchecked(
        &self,
        id: &ConversationId,
        mut commit: Commit,
    ) -> Result<(), StoreError> {
        let Some(held) = self.current_claim(id)? else { return Ok(()) };
        self.renumber(id, &mut commit);
        let (last, closing_events) = closing_events(&commit);
        complete_now(self.memory.append(id, &held, commit))?;
        self.check_write(id, &held, last, closing_events);
        Ok(())
    }

    /// Numbers the events so that they follow the journal.
    fn renumber(&self, id: &ConversationId, commit: &mut Commit) {
        let summary = complete_now(self.memory.summary(id)).ok().flatten();
        let mut seq = summary.map_or(Seq::ZERO, |summary| summary.last_seq);
        for event in Arc::make_mut(&mut commit.events) {
            seq = seq.next();
            event.seq = seq;
        }
        commit.summary.last_seq = seq;
    }

    /// Checks what must hold for every write: who wrote it, and that it closes nothing twice.
    fn check_write(
        &self,
        id: &ConversationId,
        held: &Claim,
        last: Seq,
        closing_events: Vec<EventData>,
    ) {
        self.commits.set(self.commits.get() + 1);
        self.fold_into_trace(&[id.as_str()], last.get() ^ held.epoch.get() << 32);
        if let Some(last) = self.writers.borrow_mut().insert(id.clone(), held.clone())
            && (last.epoch > held.epoch || last.epoch == held.epoch && last != *held)
        {
            self.report_violation(format!("{id}: {held:?} writes after {last:?}"));
        }
        for data in closing_events {
            let twice = match &data {
                EventData::Resolution(closed) => {
                    let key = (id.clone(), closed.call_id.to_string(), closed.suspension);
                    !self.closed.borrow_mut().insert(key)
                }
                EventData::ToolResult(result) => {
                    !self.done.borrow_mut().insert((id.clone(), result.call_id.to_string()))
                }
                _ => false,
            };
            if twice {
                self.report_violation(format!("{id}: closed twice: {data:?}"));
            }
        }
    }

    fn fold_into_trace(&self, names: &[&str], number: u64) {
        let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        let hash = names.iter().flat_map(|name| name.bytes()).fold(self.trace.get(), fold);
        self.trace.set(number.to_le_bytes().into_iter().fold(hash, fold));
    }

    pub fn load(&self, id: &ConversationId) -> Result<Option<StoredConversation>, StoreError> {
        complete_now(self.memory.load(id))
    }

    /// The first answer to a request with this key.
    pub fn stored_response(
        &self,
        id: &ConversationId,
        key: &str,
    ) -> Result<Option<Seq>, StoreError> {
        let stored =
            complete_now(self.memory.stored_response(id.as_str(), key, Timestamp::UNIX_EPOCH))?;
        Ok(stored.and_then(|stored| stored.body.as_u64().map(Seq::new)))
    }

    pub fn current_claim(&self, id: &ConversationId) -> Result<Option<Claim>, StoreError> {
        complete_now(self.memory.current_claim(id))
    }

    pub fn exists(&self, id: &ConversationId) -> Result<bool, StoreError> {
        Ok(complete_now(self.memory.summary(id))?.is_some())
    }

    pub fn events(&self, id: &ConversationId) -> Vec<Event> {
        complete_now(self.memory.events(id, Seq::ZERO, ALL)).unwrap()
    }

    pub fn due_alarms(
        &self,
        partitions: &PartitionSet,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(ConversationId, Timestamp)>, StoreError> {
        match self.mutation {
            Some(Mutation::NoAlarms) => Ok(Vec::new()),
            _ => complete_now(self.memory.due_alarms(partitions, until, limit)),
        }
    }

    pub fn active(
        &self,
        partitions: &PartitionSet,
    ) -> Result<Vec<(ConversationId, Option<Claim>)>, StoreError> {
        let page = complete_now(self.memory.active(partitions, None, ALL));
        page.map(|page| page.items).map_err(|refused| StoreError::Unavailable(refused.to_string()))
    }

    /// All conversations that were ever written.
    pub fn all(&self) -> Vec<ConversationId> {
        self.writers.borrow().keys().cloned().collect()
    }
}

/// The `seq` of a commit's last event, and its events that close something.
fn closing_events(commit: &Commit) -> (Seq, Vec<EventData>) {
    let last = commit.events.last().map_or(Seq::ZERO, |event| event.seq);
    let closes =
        |data: &&EventData| matches!(data, EventData::Resolution(_) | EventData::ToolResult(_));
    (last, commit.events.iter().map(|event| &event.data).filter(closes).cloned().collect())
}

/// Whether a call's tool must not run twice.
pub fn runs_once(events: &[Event], call: &str) -> bool {
    events.iter().any(|event| match &event.data {
        EventData::ToolCall(made) => made.call_id.as_str() == call && made.kind.runs_once(),
        _ => false,
    })
}

/// The output of a future of the memory store, which never waits.
fn complete_now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("memory answers at once")
}
