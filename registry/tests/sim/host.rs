//! The supervisor of a simulated node: one message after another, as the product's.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use abide_actors::conversation::ExitReason;
use abide_actors::journal::{Holder, StoreError};
use abide_conversation::{Activity, ConversationId};
use abide_registry::host::{CrashHistory, RestartDelay};

use crate::actor::{self, Msg};
use crate::broken::Broken;
use crate::exec::{Once, Signal, TaskId};
use crate::node::Node;

/// Who waits for a live actor.
pub type Waiting = Once<Option<Rc<Live>>>;

pub enum HostMsg {
    /// `None` where the store refused the last one a moment ago.
    Ensure(ConversationId, Option<Holder>, Waiting),
    Revive(ConversationId),
    Ended {
        live: Rc<Live>,
        death: Option<ExitReason>,
        restless: bool,
    },
    Abandon,
    Resume,
    Leave,
    /// Ends every conversation now.
    Stop,
}

/// A live conversation.
pub struct Live {
    pub id: ConversationId,
    pub number: u64,
    /// The dead holder over whom it was started.
    over: Option<Holder>,
    pub mailbox: RefCell<VecDeque<Msg>>,
    pub asked: Signal,
    /// It takes no more messages.
    pub ending: Cell<bool>,
    pub task: Cell<TaskId>,
    pub activities: RefCell<BTreeMap<Activity, TaskId>>,
    /// Its holding, once it has one.
    pub held: RefCell<Option<abide_actors::journal::Claim>>,
}

impl Live {
    /// Gives the message back if it is ending.
    pub fn cast(&self, message: Msg) {
        if !self.ending.get() {
            self.mailbox.borrow_mut().push_back(message);
            self.asked.change();
        }
    }
}

impl Node {
    pub fn cast(&self, message: HostMsg) {
        self.inbox.borrow_mut().push(message);
        self.asked.change();
    }

    pub fn live(&self, id: &ConversationId) -> Option<Rc<Live>> {
        self.table.borrow().get(id).filter(|live| !live.ending.get()).cloned()
    }

    pub fn lives_here(&self, id: &ConversationId) -> bool {
        self.table.borrow().contains_key(id)
    }

    /// The host, for ever.
    pub async fn host(self: Rc<Self>) {
        loop {
            let seen = self.asked.count();
            for message in self.inbox.take() {
                self.judge(message);
            }
            self.asked.after(seen).await;
        }
    }

    fn judge(self: &Rc<Self>, message: HostMsg) {
        match message {
            HostMsg::Ensure(id, over, reply) => self.ensure(id, over, Some(reply)),
            HostMsg::Revive(id) => self.revive(id),
            HostMsg::Ended { live, death, restless } => self.ended(&live, death, restless),
            HostMsg::Abandon => {
                self.records.borrow_mut().clear();
                self.everybody().iter().for_each(|live| self.cut(live, false));
            }
            HostMsg::Resume => self.everybody().iter().for_each(|live| live.cast(Msg::Resume)),
            HostMsg::Leave => self.everybody().iter().for_each(|live| live.cast(Msg::Leave)),
            HostMsg::Stop => self.everybody().iter().for_each(|live| self.cut(live, true)),
        }
    }

    fn everybody(&self) -> Vec<Rc<Live>> {
        self.table.borrow().values().cloned().collect()
    }

    /// Ends an actor between two of its steps; one that is stopped gives its claim up.
    fn cut(self: &Rc<Self>, live: &Rc<Live>, gives_up: bool) {
        self.world.exec.abort(live.task.get());
        actor::over(self, live);
        let ended = HostMsg::Ended { live: live.clone(), death: None, restless: gives_up };
        let held = live.held.borrow().clone().filter(|_| gives_up);
        let (node, id) = (self.clone(), live.id.clone());
        self.spawn(async move {
            if let Some(held) = held {
                actor::give_up(&node, &id, &held).await;
            }
            node.cast(ended);
        });
    }

    fn ensure(self: &Rc<Self>, id: ConversationId, over: Option<Holder>, reply: Option<Waiting>) {
        let live = self.table.borrow().get(&id).cloned();
        let pause = self.records.borrow().get(&id).and_then(|record| record.delay);
        let ensured = match (live, pause) {
            (Some(live), _) if !live.ending.get() => Some(live),
            (Some(_), _) | (None, Some(RestartDelay::AfterCrash)) => {
                self.waiting.borrow_mut().entry(id).or_default().extend(reply);
                return;
            }
            (None, Some(RestartDelay::AfterRefusal)) => None,
            (None, None) => Some(self.start(id, over)),
        };
        if let Some(reply) = reply {
            reply.tell(ensured);
        }
    }

    fn start(self: &Rc<Self>, id: ConversationId, over: Option<Holder>) -> Rc<Live> {
        let live = Rc::new(Live {
            id: id.clone(),
            number: self.world.number(),
            over: over.clone(),
            mailbox: RefCell::default(),
            asked: Signal::new(&self.world.exec),
            ending: Cell::default(),
            task: Cell::default(),
            activities: RefCell::default(),
            held: RefCell::default(),
        });
        self.table.borrow_mut().insert(id, live.clone());
        live.task.set(self.spawn(actor::run(self.clone(), live.clone(), over)));
        live
    }

    fn revive(self: &Rc<Self>, id: ConversationId) {
        let over = self.records.borrow_mut().get_mut(&id).and_then(CrashHistory::revive);
        let waiting = self.waiting.borrow_mut().remove(&id).unwrap_or_default();
        self.ensure(id.clone(), over, None);
        for reply in waiting {
            self.ensure(id.clone(), None, Some(reply));
        }
    }

    fn ended(self: &Rc<Self>, live: &Rc<Live>, death: Option<ExitReason>, restless: bool) {
        let id = live.id.clone();
        let present = self.table.borrow().get(&id).map(|live| live.number);
        if present != Some(live.number) {
            return;
        }
        self.table.borrow_mut().remove(&id);
        let pause = death.as_ref().and_then(|death| {
            self.world.tell(|| format!("{}: {id} ends: {death}", self.me()));
            if *death == ExitReason::Refused(StoreError::Conflict) {
                self.world.store.wrong(format!("{id}: its one writer meets another's journal"));
            }
            let mut records = self.records.borrow_mut();
            let record = records.entry(id.clone()).or_default();
            let broken = self.world.broken;
            let over = live.over.clone().filter(|_| broken != Some(Broken::ForgetsTheDead));
            let pause = record.record_death(self.now(), Some(death), &death.to_string(), over);
            let fenced = *death == ExitReason::Refused(StoreError::Fenced);
            pause.filter(|_| !(fenced && broken == Some(Broken::LetsTheFencedRest)))
        });
        let draining = self.draining.get();
        if restless && draining {
            let node = self.clone();
            let left = id.clone();
            // Handed over; whoever cannot is helped by those who sweep.
            self.spawn(async move {
                node.start_anywhere(&left).await;
            });
        }
        let at_once = pause.is_some_and(|pause| pause.is_zero()) || restless && !draining;
        let paused = self.records.borrow().get(&id).is_some_and(|record| record.delay.is_some());
        if at_once || self.waiting.borrow().contains_key(&id) && !paused {
            self.revive(id.clone());
        }
        if let Some(pause) = pause.filter(|pause| !pause.is_zero()) {
            let node = self.clone();
            self.spawn(async move {
                node.sleep(pause).await;
                node.cast(HostMsg::Revive(id));
            });
        }
    }
}
