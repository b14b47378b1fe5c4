//! The actor of one simulated conversation: load, then decide, append, evolve, reconcile, as in the
//! product.

mod compose;
mod delete;
mod erase;
mod first_request;
mod request;

use std::rc::Rc;
use std::time::Duration;

use abide_actors::activity::ActivityError;
use abide_actors::conversation::{ExitReason, Origin, ProgressCheck, kills_its_process};
use abide_actors::identity::Epoch;
use abide_actors::journal::{Claim, ClaimedConversation, Holder, StoreError, StoredResponse};
use abide_conversation::command::Create;
use abide_conversation::event::{Event, EventData};
use abide_conversation::fork::Fork;
use abide_conversation::{
    Action, Activity, Command, ConversationId, Rejection, Scoped, Seq, State, decide, replay,
    wanted,
};

use self::compose::{stored_response, summary};
use crate::activities;
use crate::executor::OneShot;
use crate::host::{HostMsg, Live};
use crate::mutation::Mutation;
use crate::node::Node;
use crate::notices;

pub use self::compose::compose;
pub use self::request::{Ask, Delivery, Outcome, Request};

/// A store that takes longer counts as unavailable; the outcome of a write is then unknown.
const DEADLINE: Duration = Duration::from_millis(1_500);
/// How long an actor with nothing to do stays in memory.
const PASSIVATE_AFTER: Duration = Duration::from_millis(400);

pub enum Msg {
    Deliver(Delivery),
    Report(Activity, Result<Action, StoreError>),
    Kill,
    Leave,
    Resume,
}

struct Actor {
    node: Rc<Node>,
    live: Rc<Live>,
    held: Claim,
    state: State,
    cached_seq: Seq,
    dormant: bool,
    progress_check: ProgressCheck,
}

/// Runs the actor, and tells the host how it ended.
pub async fn run(node: Rc<Node>, live: Rc<Live>, origin: Origin) {
    let held = Claim { holder: node.me(), epoch: Epoch::ZERO };
    let mut actor = Actor {
        node: node.clone(),
        live: live.clone(),
        held,
        state: State::default(),
        cached_seq: Seq::ZERO,
        dormant: false,
        progress_check: ProgressCheck::default(),
    };
    let result = actor.live(origin).await;
    let has_work = !wanted(&actor.state).is_empty();
    live.ending.set(true);
    drop_work(&node, &live);
    if result.is_ok() && !actor.is_unclaimed() {
        release(&node, &live.id, &actor.held).await;
    }
    let exit_reason = result.err();
    node.cast(HostMsg::Ended { live, has_work: has_work && exit_reason.is_none(), exit_reason });
}

/// Ends the actor's activities, and drops its mailbox, whose requests go back to their senders.
pub fn drop_work(node: &Node, live: &Live) {
    live.ending.set(true);
    let activities = live.activities.take();
    activities.values().for_each(|task| node.world.exec.abort(*task));
    drop(live.mailbox.take());
}

/// Releases a claim. A claim whose release fails is taken over in the end.
pub async fn release(node: &Node, id: &Scoped<ConversationId>, held: &Claim) {
    let _ = node.ask(DEADLINE, node.store.release(id, held)).await;
}

impl Actor {
    /// Whether the actor has not claimed the conversation yet, of which it knows nothing then.
    fn is_unclaimed(&self) -> bool {
        self.held.epoch == Epoch::ZERO
    }

    async fn revive(&mut self, dead: Option<Holder>) -> Result<(), ExitReason> {
        self.load(dead).await?;
        if let Some(history) = self.node.crash_histories.borrow_mut().get_mut(&self.live.id) {
            history.record_start();
        }
        self.delete_if_unawaited().await?;
        if self.state.exists() && !self.dormant {
            self.act(Action::Revive).await?;
        }
        Ok(())
    }

    async fn live(&mut self, origin: Origin) -> Result<(), ExitReason> {
        self.dormant = self.node.draining.get();
        if origin != Origin::New {
            self.revive(origin.dead_holder().cloned()).await?;
        }
        loop {
            let Some(message) = self.next().await else { return Ok(()) };
            if self.held.holder != self.node.me() {
                return Err(StoreError::Fenced.into());
            }
            match message {
                Msg::Deliver(delivery) if self.is_unclaimed() => {
                    self.deliver_first(delivery).await?
                }
                Msg::Deliver(delivery) => self.deliver(delivery).await?,
                Msg::Report(activity, result) => {
                    if self.live.activities.borrow_mut().remove(&activity).is_some() {
                        match result.map_err(ActivityError::Store)? {
                            Action::OriginalGone => self.undo_fork().await?,
                            action => self.act_as(action, true).await?,
                        }
                        self.reconcile();
                    }
                }
                Msg::Kill => return Err(ExitReason::Killed),
                Msg::Leave => {}
                Msg::Resume => self.reconcile(),
            }
            if self.node.draining.get() && !self.has_running_work() {
                return Ok(());
            }
        }
    }

    /// Whether a model or a tool runs.
    fn has_running_work(&self) -> bool {
        let is_work = |activity: &Activity| {
            matches!(activity, Activity::CallModel { .. } | Activity::RunTool { .. })
        };
        self.live.activities.borrow().keys().any(is_work)
    }

    /// The next message; `None` when an idle actor is to be passivated.
    async fn next(&self) -> Option<Msg> {
        loop {
            let seen = self.live.mailbox_changed.count();
            if let Some(message) = self.live.mailbox.borrow_mut().pop_front() {
                return Some(message);
            }
            let mailbox_changed = self.live.mailbox_changed.after(seen);
            if !self.live.activities.borrow().is_empty() {
                mailbox_changed.await;
                continue;
            }
            let keeps = self.state.exists() && !self.dormant;
            let after = if keeps { PASSIVATE_AFTER } else { Duration::from_millis(20) };
            self.node.world.exec.within(self.node.ms(after), mailbox_changed).await?;
        }
    }

    async fn load(&mut self, dead: Option<Holder>) -> Result<(), ExitReason> {
        let me = self.node.me();
        let mut claimed = self.claim(&me, Some(&me)).await?;
        if dead.as_ref() == Some(&claimed.claim.holder) {
            claimed = self.claim(&me, dead.as_ref()).await?;
        }
        let ClaimedConversation { claim, deaths, alarm: _, stored } = claimed;
        self.held = claim;
        if self.held.holder != me {
            return Err(ExitReason::HeldElsewhere(self.held.holder.clone()));
        }
        *self.live.held.borrow_mut() = Some(self.held.clone());
        if let Some(stored) = stored {
            self.cached_seq = stored.cached_seq;
            self.state = replay(stored.state, &stored.events);
            if kills_its_process(deaths, &self.state) {
                return Err(ExitReason::KillsItsProcess(deaths));
            }
            self.progress_check.begin(deaths);
        }
        Ok(())
    }

    async fn claim(
        &self,
        me: &Holder,
        dead: Option<&Holder>,
    ) -> Result<ClaimedConversation, StoreError> {
        self.node.ask(DEADLINE, self.node.store.claim_and_load(&self.live.id, me, dead)).await
    }

    async fn deliver(&mut self, mut delivery: Delivery) -> Result<(), ExitReason> {
        let Some(Request { ask, key }) = delivery.request.take() else { return Ok(()) };
        if let Some(key) = &key {
            match self.node.ask(DEADLINE, self.node.store.stored_response(&self.live.id, key)).await
            {
                Ok(None) => {}
                Ok(Some(first)) => {
                    delivery.reply.send(Outcome::Done(first));
                    return Ok(());
                }
                Err(_) => {
                    delivery.reply.send(Outcome::Unavailable("the store is away"));
                    return Ok(());
                }
            }
        }
        let action = match ask {
            Ask::Act(action) => Ok(action),
            Ask::Fork(from) => self.create_from_prefix(from).await.map(Action::Create),
            Ask::Delete => return self.delete(delivery, key).await,
            Ask::Erase(alias) => return self.erase_subject(delivery, &alias).await,
        };
        let action = match action {
            Ok(action) => action,
            Err(outcome) => {
                delivery.reply.send(outcome);
                return Ok(());
            }
        };
        match decide(&self.state, self.command(action)) {
            Err(rejection) => delivery.reply.send(Outcome::Rejected(rejection)),
            Ok(events) => {
                let seq = events.last().map_or(Seq::ZERO, |event| event.seq);
                let is_new = !self.state.exists();
                let written = self.commit(events, key.map(|key| stored_response(key, seq))).await;
                let erased = match written {
                    Ok(()) if is_new => self.delete_if_unawaited().await,
                    written => written.map(|()| false).map_err(ExitReason::from),
                };
                match erased {
                    Ok(true) => delivery.reply.send(Outcome::Rejected(Rejection::NotFound)),
                    Ok(false) => delivery.reply.send(Outcome::Done(seq)),
                    Err(reason) => {
                        delivery
                            .reply
                            .send(Outcome::Unavailable("the outcome of the write is unknown"));
                        return Err(reason);
                    }
                }
            }
        }
        Ok(())
    }

    /// What a fork is created with: the settings of the original.
    async fn create_from_prefix(&self, from: Scoped<ConversationId>) -> Result<Create, Outcome> {
        if self.state.exists() {
            return Err(Outcome::Rejected(Rejection::ConversationExists));
        }
        let store = &self.node.store;
        let read = async {
            let newest = store.events_before(&from, Seq::MAX, 1).await?;
            let first = store.events(&from, Seq::ZERO, 1).await?.pop();
            Ok((newest.first().map_or(Seq::ZERO, |event| event.seq), first))
        };
        let read = self.node.ask(DEADLINE, read).await;
        let (at_seq, first) = read.map_err(|_| Outcome::Unavailable("the store is away"))?;
        let Some(Event { data: EventData::Created(created), at: first_at, .. }) = first else {
            return Err(Outcome::Rejected(Rejection::NotFound));
        };
        Ok(Create {
            agent: created.agent,
            assigns: created.assigns,
            metadata: created.metadata,
            participants: Default::default(),
            tools: created.tools,
            parent: None,
            fork: Some(Fork { conversation_id: from.local(), at_seq, created_at: Some(first_at) }),
            title: None,
            expires_at: None,
        })
    }

    async fn act(&mut self, action: Action) -> Result<(), ExitReason> {
        self.act_as(action, false).await
    }

    /// The model call that follows a report begins ahead of its commit.
    async fn act_as(&mut self, action: Action, is_report: bool) -> Result<(), ExitReason> {
        // An action that came too late is rejected, and changes nothing.
        if let Ok(events) = decide(&self.state, self.command(action)) {
            self.commit_as(events, None, is_report).await?;
        }
        Ok(())
    }

    fn command(&self, action: Action) -> Command {
        Command { at: self.node.now(), action }
    }

    async fn commit(
        &mut self,
        events: Vec<Event>,
        response: Option<StoredResponse>,
    ) -> Result<(), StoreError> {
        self.commit_as(events, response, false).await
    }

    async fn commit_as(
        &mut self,
        events: Vec<Event>,
        response: Option<StoredResponse>,
        is_report: bool,
    ) -> Result<(), StoreError> {
        if !events.is_empty() || response.is_some() {
            let next = replay(self.state.clone(), &events);
            let ahead = is_report.then(|| self.call_model_ahead(&next)).flatten();
            let mut commit = compose(&self.state, &next, events, response, self.cached_seq);
            if self.node.world.mutation == Some(Mutation::ForgetsQueues) {
                commit.queued.take_if(|queued| queued.is_empty());
            }
            if self.state.forking.is_none() {
                commit.owed = notices::owed(&self.node.world, &self.live.id, &commit.events);
            }
            commit.resets_deaths = self.progress_check.is_progress(&commit.events);
            let (cached, is_progress) = (commit.state.is_some(), commit.resets_deaths);
            let (store, id) = (&self.node.store, &self.live.id);
            if self.is_unclaimed() {
                let claimed = store.claim_and_append(id, &self.held.holder, commit);
                self.held = self.node.ask(DEADLINE, claimed).await?;
                *self.live.held.borrow_mut() = Some(self.held.clone());
            } else {
                self.node.ask(DEADLINE, store.append(id, &self.held, commit)).await?;
            }
            if cached {
                self.cached_seq = next.seq;
            }
            if is_progress {
                self.progress_check.end();
            }
            self.state = next;
            if let Some(pending_commit) = ahead {
                pending_commit.send(());
            }
        }
        self.reconcile();
        Ok(())
    }

    /// Ends activities that are no longer wanted, and starts wanted ones that do not run.
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
        drop(running);
        for activity in wanted {
            if self.may_start(&activity) {
                self.start(activity, self.state.clone(), None);
            }
        }
    }

    /// Starts the model call that the open turn makes in this next state, while its commit is under way.
    fn call_model_ahead(&self, next: &State) -> Option<OneShot<()>> {
        let turn = |state: &State| state.turn.as_ref().map(|turn| turn.id.clone());
        let is_model_call = |activity: &Activity| matches!(activity, Activity::CallModel { .. });
        let call = wanted(next).into_iter().find(is_model_call)?;
        if turn(&self.state) != turn(next) || !self.may_start(&call) {
            return None;
        }
        let pending_commit = OneShot::new(&self.node.world.exec);
        self.start(call, next.clone(), Some(pending_commit.clone()));
        Some(pending_commit)
    }

    fn may_start(&self, activity: &Activity) -> bool {
        let is_held_back =
            self.node.draining.get() && !matches!(activity, Activity::RunTool { .. });
        let may_run = !self.dormant && self.node.is_sound() && !is_held_back;
        may_run && !self.live.activities.borrow().contains_key(activity)
    }

    fn start(&self, activity: Activity, state: State, pending_commit: Option<OneShot<()>>) {
        let node = self.node.clone();
        let live = self.live.clone();
        let task = activity.clone();
        let task = self.node.spawn(async move {
            let result = activities::run(&node, &live.id, &task, &state, pending_commit).await;
            live.cast(Msg::Report(task, result));
        });
        self.live.activities.borrow_mut().insert(activity, task);
    }
}
