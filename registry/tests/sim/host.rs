//! The host of a simulated node: it supervises the actors, one message after another, as the
//! product's does.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use abide_actors::conversation::{ExitReason, Origin};
use abide_actors::journal::{Holder, StoreError};
use abide_conversation::{Activity, ConversationId, Scoped};
use abide_registry::host::{CrashHistory, RestartDelay};

use crate::actor::{self, Msg};
use crate::executor::{Notifier, OneShot, TaskId};
use crate::mutation::Mutation;
use crate::node::Node;
use crate::tasks::READ;

/// The reply to a request for a live actor; `None` where the conversation is quarantined, or the
/// store refused the last one a moment ago.
pub type ReplyTo = OneShot<Option<Rc<Live>>>;

pub enum HostMsg {
    /// Starts an actor unless one is live.
    Ensure(Scoped<ConversationId>, Origin, ReplyTo),
    Restart(Scoped<ConversationId>),
    /// Lets a conversation out of quarantine.
    Retry(Scoped<ConversationId>),
    Ended {
        live: Rc<Live>,
        exit_reason: Option<ExitReason>,
        has_work: bool,
    },
    Abandon,
    Resume,
    StoreReturned,
    Leave,
    /// Ends every conversation now.
    Stop,
}

/// A live conversation.
pub struct Live {
    pub id: Scoped<ConversationId>,
    pub number: u64,
    /// The dead holder that the actor replaces.
    replacing: Option<Holder>,
    pub mailbox: RefCell<VecDeque<Msg>>,
    pub mailbox_changed: Notifier,
    /// Whether the actor is ending and takes no more messages.
    pub ending: Cell<bool>,
    pub task: Cell<TaskId>,
    pub activities: RefCell<BTreeMap<Activity, TaskId>>,
    /// The actor's claim, once it has one.
    pub held: RefCell<Option<abide_actors::journal::Claim>>,
}

impl Live {
    /// Sends a message; one to an ending actor is dropped, and a request in it goes back.
    pub fn cast(&self, message: Msg) {
        if !self.ending.get() {
            self.mailbox.borrow_mut().push_back(message);
            self.mailbox_changed.change();
        }
    }
}

impl Node {
    pub fn cast(&self, message: HostMsg) {
        self.inbox.borrow_mut().push(message);
        self.mailbox_changed.change();
    }

    pub fn live(&self, id: &Scoped<ConversationId>) -> Option<Rc<Live>> {
        self.table.borrow().get(id).filter(|live| !live.ending.get()).cloned()
    }

    pub fn lives_here(&self, id: &Scoped<ConversationId>) -> bool {
        self.table.borrow().contains_key(id)
    }

    /// The loop of the host; it ends with the process.
    pub async fn host(self: Rc<Self>) {
        loop {
            let seen = self.mailbox_changed.count();
            for message in self.inbox.take() {
                self.handle(message);
            }
            self.mailbox_changed.after(seen).await;
        }
    }

    fn handle(self: &Rc<Self>, message: HostMsg) {
        match message {
            HostMsg::Ensure(id, origin, reply) => self.ensure(id, origin, Some(reply)),
            HostMsg::Restart(id) => self.restart(id),
            HostMsg::Retry(id) => {
                self.crash_histories.borrow_mut().remove(&id);
                self.restart(id);
            }
            HostMsg::Ended { live, exit_reason, has_work } => {
                self.ended(&live, exit_reason, has_work)
            }
            HostMsg::Abandon => {
                self.crash_histories.borrow_mut().clear();
                self.all_live().iter().for_each(|live| self.stop_actor(live, false));
            }
            HostMsg::Resume => self.all_live().iter().for_each(|live| live.cast(Msg::Resume)),
            HostMsg::StoreReturned => {
                for (id, history) in self.crash_histories.borrow_mut().iter_mut() {
                    if history.record_store_return() {
                        self.cast(HostMsg::Restart(id.clone()));
                    }
                }
            }
            HostMsg::Leave => self.all_live().iter().for_each(|live| live.cast(Msg::Leave)),
            HostMsg::Stop => self.all_live().iter().for_each(|live| self.stop_actor(live, true)),
        }
    }

    fn all_live(&self) -> Vec<Rc<Live>> {
        self.table.borrow().values().cloned().collect()
    }

    /// Ends an actor between two of its steps, and releases its claim if `releases_claim`.
    fn stop_actor(self: &Rc<Self>, live: &Rc<Live>, releases_claim: bool) {
        self.world.exec.abort(live.task.get());
        actor::drop_work(self, live);
        let ended =
            HostMsg::Ended { live: live.clone(), exit_reason: None, has_work: releases_claim };
        let held = live.held.borrow().clone().filter(|_| releases_claim);
        let (node, id) = (self.clone(), live.id.clone());
        self.spawn(async move {
            if let Some(held) = held {
                actor::release(&node, &id, &held).await;
            }
            node.cast(ended);
        });
    }

    fn ensure(self: &Rc<Self>, id: Scoped<ConversationId>, origin: Origin, reply: Option<ReplyTo>) {
        let live = self.table.borrow().get(&id).cloned();
        let quarantined = self.is_quarantined(&id);
        let pause = self.crash_histories.borrow().get(&id).and_then(|history| history.delay);
        let ensured = match (live, pause) {
            (Some(live), _) if !live.ending.get() => Some(live),
            (None, _) if quarantined => None,
            (Some(_), _) | (None, Some(RestartDelay::AfterCrash)) => {
                self.waiting.borrow_mut().entry(id).or_default().extend(reply);
                return;
            }
            (None, Some(RestartDelay::AfterRefusal)) => None,
            (None, None) => Some(self.start(id, origin)),
        };
        if let Some(reply) = reply {
            reply.send(ensured);
        }
    }

    fn is_quarantined(&self, id: &Scoped<ConversationId>) -> bool {
        let histories = self.crash_histories.borrow();
        histories.get(id).is_some_and(|history| history.quarantined.is_some())
    }

    /// Lets all conversations out that are quarantined here, as an operator does who has mended what
    /// ended the processes.
    pub async fn retry_quarantined(self: &Rc<Self>) {
        let ids: Vec<_> = self.crash_histories.borrow().keys().cloned().collect();
        for id in ids.into_iter().filter(|id| self.is_quarantined(id)) {
            self.world.store.count("conversations let out");
            self.world.store.observer.borrow_mut().forget_ends(&id);
            if self.ask(READ, self.store.reset_deaths(&id)).await.is_ok() {
                self.cast(HostMsg::Retry(id));
            }
        }
    }

    fn start(self: &Rc<Self>, id: Scoped<ConversationId>, origin: Origin) -> Rc<Live> {
        let live = Rc::new(Live {
            id: id.clone(),
            number: self.world.number(),
            replacing: origin.dead_holder().cloned(),
            mailbox: RefCell::default(),
            mailbox_changed: Notifier::new(&self.world.exec),
            ending: Cell::default(),
            task: Cell::default(),
            activities: RefCell::default(),
            held: RefCell::default(),
        });
        self.table.borrow_mut().insert(id, live.clone());
        live.task.set(self.spawn(actor::run(self.clone(), live.clone(), origin)));
        live
    }

    fn restart(self: &Rc<Self>, id: Scoped<ConversationId>) {
        let replacing =
            self.crash_histories.borrow_mut().get_mut(&id).and_then(CrashHistory::end_delay);
        let waiting = self.waiting.borrow_mut().remove(&id).unwrap_or_default();
        self.ensure(id.clone(), replacing.into(), None);
        for reply in waiting {
            self.ensure(id.clone(), Origin::Journal, Some(reply));
        }
    }

    fn ended(self: &Rc<Self>, live: &Rc<Live>, exit_reason: Option<ExitReason>, has_work: bool) {
        let id = live.id.clone();
        let present = self.table.borrow().get(&id).map(|live| live.number);
        if present != Some(live.number) {
            return;
        }
        self.table.borrow_mut().remove(&id);
        let pause = exit_reason.as_ref().and_then(|exit_reason| {
            self.world.trace(|| format!("{}: {id} ends: {exit_reason}", self.me()));
            if *exit_reason == ExitReason::Store(StoreError::Conflict) {
                self.world.store.report_violation(format!(
                    "{id}: the only writer met events that it has not written"
                ));
            }
            let mut crash_histories = self.crash_histories.borrow_mut();
            let history = crash_histories.entry(id.clone()).or_default();
            let mutation = self.world.mutation;
            let pause = history.record_death(
                self.now(),
                Some(exit_reason),
                &exit_reason.to_string(),
                live.replacing.clone(),
            );
            let fenced = *exit_reason == ExitReason::Store(StoreError::Fenced);
            pause.filter(|_| !(fenced && mutation == Some(Mutation::FencedNotRestarted)))
        });
        let draining = self.draining.get();
        if has_work && draining {
            let node = self.clone();
            let orphan = id.clone();
            // Handed over to another node; if this fails, the take-over of orphans starts it.
            self.spawn(async move {
                node.start_anywhere(&orphan).await;
            });
        }
        let immediate = pause.is_some_and(|pause| pause.is_zero()) || has_work && !draining;
        let paused =
            self.crash_histories.borrow().get(&id).is_some_and(|history| history.delay.is_some());
        if immediate || self.waiting.borrow().contains_key(&id) && !paused {
            self.restart(id.clone());
        }
        if let Some(pause) = pause.filter(|pause| !pause.is_zero()) {
            let node = self.clone();
            self.spawn(async move {
                node.sleep(pause).await;
                node.cast(HostMsg::Restart(id));
            });
        }
    }
}
