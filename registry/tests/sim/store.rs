//! The store of all nodes: the product's own store in memory, watched, and broken on purpose.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use abide_actors::journal::{Claim, Commit, Holder, Journal, StoreError, StoredConversation};
use abide_conversation::event::{Event, EventData, Executor, OnInterrupt};
use abide_conversation::{ConversationId, Timestamp};
use abide_registry::membership::{Member, Renewed};
use abide_registry::partition::PartitionSet;
use abide_registry::store::Store as _;
use abide_registry::store::memory::Memory;
use futures::FutureExt;

use crate::broken::Broken;
use crate::register::Register;

/// A page of it, larger than anything that is kept here.
const ALL: usize = 10_000;

/// What of it happens, happens at once; delays are the network's.
pub struct Store {
    memory: Memory,
    pub register: RefCell<Register>,
    broken: Option<Broken>,
    /// By conversation, the highest epoch that anybody ever held it under, and the last writer.
    epochs: RefCell<BTreeMap<ConversationId, u64>>,
    writers: RefCell<BTreeMap<ConversationId, Claim>>,
    closed: RefCell<BTreeSet<(ConversationId, String, u32)>>,
    done: RefCell<BTreeSet<(ConversationId, String)>>,
    pub wrong: RefCell<Option<String>>,
    /// Folded over all that was done, in order.
    pub trace: Cell<u64>,
    pub commits: Cell<u64>,
    pub claims: Cell<u64>,
    pub fenced: Cell<u64>,
}

impl Store {
    pub fn new(broken: Option<Broken>) -> Self {
        let register = Register::new(broken == Some(Broken::PatientRegister));
        Self {
            memory: Memory::default(),
            register: RefCell::new(register),
            broken,
            epochs: Default::default(),
            writers: Default::default(),
            closed: Default::default(),
            done: Default::default(),
            wrong: Default::default(),
            trace: Default::default(),
            commits: Default::default(),
            claims: Default::default(),
            fenced: Default::default(),
        }
    }

    /// An invariant does not hold; the first counts.
    pub fn wrong(&self, what: String) {
        self.wrong.borrow_mut().get_or_insert(what);
    }

    pub fn enter(&self, me: &Member, now: u64) -> Renewed {
        self.register.borrow_mut().enter(me, now)
    }

    pub fn renew(&self, me: &Member, now: u64) -> Renewed {
        self.register.borrow_mut().renew(me, now)
    }

    pub fn bury(&self, who: &Holder, suspect: bool, now: u64) -> Result<bool, StoreError> {
        if self.broken == Some(Broken::BuriesTheLiving) {
            return Ok(true);
        }
        Ok(self.register.borrow_mut().bury(who, suspect, now))
    }

    pub fn claim(
        &self,
        id: &ConversationId,
        me: &Holder,
        dead: Option<&Holder>,
        now: u64,
    ) -> Result<Claim, StoreError> {
        let before = self.holding(id)?;
        let robbed = before.as_ref().map(|held| &held.holder);
        let dead = match self.broken {
            Some(Broken::ClaimIgnoresHolder) => robbed,
            _ => dead,
        };
        let after = at_once(self.memory.claim(id, me, dead))?;
        if before.as_ref() != Some(&after) {
            self.claims.set(self.claims.get() + 1);
            self.note(&[id.as_str(), &after.holder.to_string()], after.epoch);
            let highest = self.epochs.borrow_mut().insert(id.clone(), after.epoch).unwrap_or(0);
            if after.epoch <= highest {
                self.wrong(format!("{id}: epoch {} is claimed after {highest}", after.epoch));
            }
            let alive = |held: &&Holder| self.register.borrow().silence(held, now).is_some();
            if let Some(robbed) = robbed.filter(|held| *held != me).filter(alive) {
                self.wrong(format!("{id}: {me} claims it from {robbed}, which is a member"));
            }
        }
        Ok(after)
    }

    pub fn release(&self, id: &ConversationId, held: &Claim) -> Result<(), StoreError> {
        at_once(self.memory.release(id, held))
    }

    pub fn append(
        &self,
        id: &ConversationId,
        held: &Claim,
        mut commit: Commit,
    ) -> Result<(), StoreError> {
        if self.broken == Some(Broken::AckWithoutWrite) && commit.events.len() == 1 {
            return Ok(());
        }
        if self.broken == Some(Broken::NoActiveMark) {
            commit.head.active = false;
        }
        let present = self.holding(id)?;
        let mut by = held;
        if self.broken == Some(Broken::NoFence) {
            by = present.as_ref().unwrap_or(held);
            self.follow(id, &mut commit);
        }
        let (last, closing) = closing(&commit);
        match at_once(self.memory.append(id, by, commit)) {
            Ok(()) => {
                self.written(id, held, last, closing);
                Ok(())
            }
            Err(refusal) => {
                self.fenced.set(self.fenced.get() + u64::from(refusal == StoreError::Fenced));
                Err(refusal)
            }
        }
    }

    /// Appends without any rule, as a sweeper would that trusts nobody.
    pub fn force(&self, id: &ConversationId, mut commit: Commit) -> Result<(), StoreError> {
        let Some(held) = self.holding(id)? else { return Ok(()) };
        self.follow(id, &mut commit);
        let (last, closing) = closing(&commit);
        at_once(self.memory.append(id, &held, commit))?;
        self.written(id, &held, last, closing);
        Ok(())
    }

    /// Numbers the events so that they follow the journal.
    fn follow(&self, id: &ConversationId, commit: &mut Commit) {
        let head = at_once(self.memory.head(id)).ok().flatten();
        let mut seq = head.map_or(0, |head| head.last_seq);
        for event in Arc::make_mut(&mut commit.events) {
            seq += 1;
            event.seq = seq;
        }
        commit.head.last_seq = seq;
    }

    /// What must hold of every write: of its last event, and of what it closes.
    fn written(&self, id: &ConversationId, held: &Claim, last: u64, closing: Vec<EventData>) {
        self.commits.set(self.commits.get() + 1);
        self.note(&[id.as_str()], last ^ held.epoch << 32);
        if let Some(last) = self.writers.borrow_mut().insert(id.clone(), held.clone())
            && (last.epoch > held.epoch || last.epoch == held.epoch && last != *held)
        {
            self.wrong(format!("{id}: {held:?} writes after {last:?}"));
        }
        for data in closing {
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
                self.wrong(format!("{id}: closed twice: {data:?}"));
            }
        }
    }

    fn note(&self, names: &[&str], number: u64) {
        let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        let hash = names.iter().flat_map(|name| name.bytes()).fold(self.trace.get(), fold);
        self.trace.set(number.to_le_bytes().into_iter().fold(hash, fold));
    }

    pub fn load(&self, id: &ConversationId) -> Result<Option<StoredConversation>, StoreError> {
        at_once(self.memory.load(id))
    }

    /// What was answered first.
    pub fn answer(&self, id: &ConversationId, key: &str) -> Result<Option<u64>, StoreError> {
        let kept = at_once(self.memory.answer(id.as_str(), key, Timestamp::UNIX_EPOCH))?;
        Ok(kept.and_then(|kept| kept.body.as_u64()))
    }

    pub fn holding(&self, id: &ConversationId) -> Result<Option<Claim>, StoreError> {
        at_once(self.memory.holding(id))
    }

    pub fn exists(&self, id: &ConversationId) -> Result<bool, StoreError> {
        Ok(at_once(self.memory.head(id))?.is_some())
    }

    pub fn events(&self, id: &ConversationId) -> Vec<Event> {
        at_once(self.memory.events(id, 0, ALL)).unwrap()
    }

    pub fn due(
        &self,
        share: &PartitionSet,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(ConversationId, Timestamp)>, StoreError> {
        match self.broken {
            Some(Broken::NoAlarms) => Ok(Vec::new()),
            _ => at_once(self.memory.due(share, until, limit)),
        }
    }

    pub fn active(
        &self,
        share: &PartitionSet,
    ) -> Result<Vec<(ConversationId, Option<Claim>)>, StoreError> {
        let page = at_once(self.memory.active(share, None, ALL));
        page.map(|page| page.items).map_err(|refused| StoreError::Unavailable(refused.to_string()))
    }

    /// Everything that was ever begun, and its call's tools that must not run twice.
    pub fn all(&self) -> Vec<ConversationId> {
        self.writers.borrow().keys().cloned().collect()
    }
}

/// The number of the last event that is to be written, and those that close something.
fn closing(commit: &Commit) -> (u64, Vec<EventData>) {
    let last = commit.events.last().map_or(0, |event| event.seq);
    let closes =
        |data: &&EventData| matches!(data, EventData::Resolution(_) | EventData::ToolResult(_));
    (last, commit.events.iter().map(|event| &event.data).filter(closes).cloned().collect())
}

/// Whether the call is of a tool that must not run twice.
pub fn runs_once(events: &[Event], call: &str) -> bool {
    events.iter().any(|event| match &event.data {
        EventData::ToolCall(made) => {
            made.call_id.as_str() == call
                && made.on_interrupt == OnInterrupt::Fail
                && made.executor == Executor::Server
        }
        _ => false,
    })
}

/// The store in memory never waits.
fn at_once<T>(asked: impl Future<Output = T>) -> T {
    asked.now_or_never().expect("memory answers at once")
}
