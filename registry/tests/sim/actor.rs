//! The actor of one simulated conversation: load, then decide, append, evolve, reconcile.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use abide_actors::activity::ActivityError;
use abide_actors::conversation::ExitReason;
use abide_actors::journal::{
    Claim, ClosedSuspension, Commit, ConversationSummary, Holder, StoreError, StoredResponse,
};
use abide_conversation::event::Event;
use abide_conversation::state::PendingCall;
use abide_conversation::{
    Action, Activity, AgentName, Command, ConversationId, Rejection, State, Timestamp, decide,
    replay, wanted,
};
use serde_json::json;

use crate::exec::Once;
use crate::host::{HostMsg, Live};
use crate::node::Node;
use crate::script;

/// A store that takes longer is away, and of a write the outcome is unknown.
const DEADLINE: Duration = Duration::from_millis(1_500);
/// How long an actor with nothing to do stays in memory.
const PASSIVATE_AFTER: Duration = Duration::from_millis(400);
/// How many events may follow the stored state.
const CACHE_EVERY: u64 = 16;

pub enum Msg {
    Deliver(Delivery),
    Report(Activity, Result<Action, StoreError>),
    Kill,
    Leave,
    Resume,
}

/// What is asked of a conversation, and how it is known again when it is asked twice.
#[derive(Clone)]
pub struct Request {
    pub action: Action,
    pub key: Option<String>,
}

/// What became of it.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "why it failed is for whoever reads the story")]
pub enum Outcome {
    /// The last event of what was journalled.
    Done(u64),
    Rejected(Rejection),
    /// Surely not carried out, here.
    Untouched,
    /// Nobody knows.
    Lost,
    Unavailable(&'static str),
}

/// A request in a mailbox. Dropped before it is taken, it comes back untouched; after, it is lost.
pub struct Delivery {
    /// Until it is taken.
    request: Option<Request>,
    reply: Once<Outcome>,
}

impl Delivery {
    pub fn new(request: Request, reply: Once<Outcome>) -> Self {
        Self { request: Some(request), reply }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.reply.tell(if self.request.is_none() { Outcome::Lost } else { Outcome::Untouched });
    }
}

struct Actor {
    node: Rc<Node>,
    live: Rc<Live>,
    held: Claim,
    state: State,
    cached_seq: u64,
    dormant: bool,
}

/// Lives, and tells the host how it ended.
pub async fn run(node: Rc<Node>, live: Rc<Live>, dead: Option<Holder>) {
    let held = Claim { holder: node.me(), epoch: 0 };
    let (state, cached_seq, dormant) = Default::default();
    let mut actor =
        Actor { node: node.clone(), live: live.clone(), held, state, cached_seq, dormant };
    let ended = actor.live(dead).await;
    let restless = !wanted(&actor.state).is_empty();
    live.ending.set(true);
    over(&node, &live);
    if ended.is_ok() {
        give_up(&node, &live.id, &actor.held).await;
    }
    let death = ended.err();
    node.cast(HostMsg::Ended { live, restless: restless && death.is_none(), death });
}

/// What it ran ends with it; what waits in its mailbox goes back.
pub fn over(node: &Node, live: &Live) {
    live.ending.set(true);
    let activities = live.activities.take();
    activities.values().for_each(|task| node.world.exec.abort(*task));
    drop(live.mailbox.take());
}

/// Gives a claim up; one that is not given up is taken in the end.
pub async fn give_up(node: &Node, id: &ConversationId, held: &Claim) {
    let (id, held) = (id.clone(), held.clone());
    let _ = node.ask(DEADLINE, move |store, _| store.release(&id, &held)).await;
}

impl Actor {
    async fn live(&mut self, dead: Option<Holder>) -> Result<(), ExitReason> {
        self.load(dead).await?;
        if let Some(record) = self.node.records.borrow_mut().get_mut(&self.live.id) {
            record.record_start();
        }
        self.dormant = self.node.draining.get();
        if self.state.exists() && !self.dormant {
            self.act(Action::Revive).await?;
        }
        loop {
            let Some(message) = self.next().await else { return Ok(()) };
            if self.held.holder != self.node.me() {
                return Err(StoreError::Fenced.into());
            }
            match message {
                Msg::Deliver(delivery) => self.deliver(delivery).await?,
                Msg::Report(activity, ended) => {
                    if self.live.activities.borrow_mut().remove(&activity).is_some() {
                        self.act(ended.map_err(ActivityError::Refused)?).await?;
                        self.reconcile();
                    }
                }
                Msg::Kill => return Err(ExitReason::Killed),
                Msg::Leave => {}
                Msg::Resume => self.reconcile(),
            }
            if self.node.draining.get() && !self.works() {
                return Ok(());
            }
        }
    }

    /// Whether a model or a tool runs.
    fn works(&self) -> bool {
        let works = |activity: &Activity| {
            matches!(activity, Activity::CallModel { .. } | Activity::RunTool { .. })
        };
        self.live.activities.borrow().keys().any(works)
    }

    /// The next message; `None` if nothing comes of an actor with nothing to do.
    async fn next(&self) -> Option<Msg> {
        loop {
            let seen = self.live.asked.count();
            if let Some(message) = self.live.mailbox.borrow_mut().pop_front() {
                return Some(message);
            }
            let asked = self.live.asked.after(seen);
            if !self.live.activities.borrow().is_empty() {
                asked.await;
                continue;
            }
            let keeps = self.state.exists() && !self.dormant;
            let after = if keeps { PASSIVATE_AFTER } else { Duration::from_millis(20) };
            self.node.world.exec.within(self.node.ms(after), asked).await?;
        }
    }

    async fn load(&mut self, dead: Option<Holder>) -> Result<(), ExitReason> {
        let me = self.node.me();
        self.held = self.claim(&me, Some(me.clone())).await?;
        if dead.as_ref() == Some(&self.held.holder) {
            self.held = self.claim(&me, dead).await?;
        }
        if self.held.holder != me {
            return Err(ExitReason::HeldElsewhere(self.held.holder.clone()));
        }
        *self.live.held.borrow_mut() = Some(self.held.clone());
        let id = self.live.id.clone();
        let stored = self.node.ask(DEADLINE, move |store, _| store.load(&id)).await?;
        if let Some(stored) = stored {
            self.cached_seq = stored.state.seq;
            self.state = replay(stored.state, &stored.events);
        }
        Ok(())
    }

    async fn claim(&self, me: &Holder, dead: Option<Holder>) -> Result<Claim, StoreError> {
        let (id, me) = (self.live.id.clone(), me.clone());
        let claim =
            move |store: &crate::store::Store, now| store.claim(&id, &me, dead.as_ref(), now);
        self.node.ask(DEADLINE, claim).await
    }

    async fn deliver(&mut self, mut delivery: Delivery) -> Result<(), ExitReason> {
        let Some(Request { action, key }) = delivery.request.take() else { return Ok(()) };
        if let Some(key) = &key {
            let (id, key) = (self.live.id.clone(), key.clone());
            match self.node.ask(DEADLINE, move |store, _| store.answer(&id, &key)).await {
                Ok(None) => {}
                Ok(Some(first)) => {
                    delivery.reply.tell(Outcome::Done(first));
                    return Ok(());
                }
                Err(_) => {
                    delivery.reply.tell(Outcome::Unavailable("the store is away"));
                    return Ok(());
                }
            }
        }
        match decide(&self.state, self.command(action)) {
            Err(rejection) => delivery.reply.tell(Outcome::Rejected(rejection)),
            Ok(events) => {
                let seq = events.last().map_or(0, |event| event.seq);
                if let Err(refusal) = self.commit(events, key.map(|key| kept(key, seq))).await {
                    delivery.reply.tell(Outcome::Unavailable("what became of it is unknown"));
                    return Err(refusal.into());
                }
                delivery.reply.tell(Outcome::Done(seq));
            }
        }
        Ok(())
    }

    async fn act(&mut self, action: Action) -> Result<(), ExitReason> {
        // One that came too late changes nothing.
        if let Ok(events) = decide(&self.state, self.command(action)) {
            self.commit(events, None).await?;
        }
        Ok(())
    }

    fn command(&self, action: Action) -> Command {
        Command { at: self.node.now(), action }
    }

    async fn commit(
        &mut self,
        events: Vec<Event>,
        answer: Option<StoredResponse>,
    ) -> Result<(), StoreError> {
        if !events.is_empty() || answer.is_some() {
            let next = replay(self.state.clone(), &events);
            let commit = compose(&self.state, &next, events, answer, self.cached_seq);
            let cached = commit.state.is_some();
            let (id, held) = (self.live.id.clone(), self.held.clone());
            let commit = Cell::new(Some(commit));
            let append = move |store: &crate::store::Store, _| {
                store.append(&id, &held, commit.take().expect("it is written once"))
            };
            self.node.carry(DEADLINE, false, append).await?;
            if cached {
                self.cached_seq = next.seq;
            }
            self.state = next;
        }
        self.reconcile();
        Ok(())
    }

    /// Ends what is no longer wanted, and starts what is wanted and does not run.
    fn reconcile(&self) {
        let wanted = wanted(&self.state);
        let mut running = self.live.activities.borrow_mut();
        running.retain(|activity, task| {
            let keep = wanted.contains(activity);
            if !keep {
                self.node.world.exec.abort(*task);
            }
            keep
        });
        if self.dormant || !self.node.is_sound() {
            return;
        }
        for activity in wanted {
            let held_back =
                self.node.draining.get() && !matches!(activity, Activity::RunTool { .. });
            if held_back || running.contains_key(&activity) {
                continue;
            }
            let (node, live, task) = (self.node.clone(), self.live.clone(), activity.clone());
            let turns = self.state.turns_started;
            let task = self.node.spawn(async move {
                let ended = script::run(&node, &live.id, &task, turns).await;
                live.cast(Msg::Report(task, ended));
            });
            running.insert(activity, task);
        }
    }
}

fn kept(key: String, seq: u64) -> StoredResponse {
    StoredResponse { key, fingerprint: String::new(), body: json!(seq), expires_at: Timestamp::MAX }
}

/// Everything that one decision writes.
pub fn compose(
    was: &State,
    next: &State,
    events: Vec<Event>,
    answer: Option<StoredResponse>,
    cached_seq: u64,
) -> Commit {
    let (before, after) = (was.pending_calls(), next.pending_calls());
    let among = |all: &[PendingCall], one: &PendingCall| {
        all.iter().any(|it| (&it.call_id, it.suspension) == (&one.call_id, one.suspension))
    };
    let closed = |it: &PendingCall| ClosedSuspension {
        call_id: it.call_id.clone(),
        suspension: it.suspension,
        expires_at: it.expires_at,
    };
    let head = ConversationSummary {
        agent: next.agent.clone().unwrap_or_else(|| AgentName::new("")),
        state: next.status(),
        last_seq: next.seq,
        created_at: next.created_at.unwrap_or(Timestamp::UNIX_EPOCH),
        metadata: next.metadata.clone(),
        alarm: next.alarm(),
        active: !wanted(next).is_empty(),
    };
    let cache = next.seq.saturating_sub(cached_seq) >= CACHE_EVERY;
    Commit {
        events: events.into(),
        head,
        opened: after.iter().filter(|it| !among(&before, it)).cloned().collect(),
        closed: before.iter().filter(|it| !among(&after, it)).map(closed).collect(),
        state: cache.then(|| next.clone()),
        answers: answer.into_iter().collect(),
    }
}
