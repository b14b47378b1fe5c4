//! The supervisor of a node's conversations: starts and restarts them, quarantines those that keep
//! crashing.
//!
//! A conversation dies alone: its failure reaches only this actor, which starts it again. If the
//! host dies, the node's conversations die with it, and so does the program.

mod crash_history;
mod live_table;
mod remote;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use abide_actors::conversation::{
    self, Conversation, ConversationMsg, ExitReason, LiveConversation, Origin,
};
use abide_actors::services::Services;
use abide_conversation::{ConversationId, Scoped, Timestamp};
use ractor::{
    Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, ActorStatus, RpcReplyPort,
    SupervisionEvent,
};
use tokio::sync::mpsc;

use crash_history::CRASH_WINDOW;
pub use crash_history::{CrashHistory, Quarantined, RestartDelay};
pub use live_table::{ActorHandle, LiveTable};
pub use remote::RemoteCall;

/// A live actor, or why there is none.
pub type StartResult = Result<ActorHandle, StartRefused>;

/// Why no actor was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartRefused {
    Quarantined(Quarantined),
    /// The store refused the last actor; the next one starts after a delay.
    StoreAway,
}

/// The protocol of the host.
pub enum HostMsg {
    /// Returns the live actor of a conversation, starting one if there is none.
    Ensure(Scoped<ConversationId>, Origin, RpcReplyPort<StartResult>),
    /// The delay after a crash is over.
    Restart(Scoped<ConversationId>),
    /// Lets a conversation out of quarantine, or ends the delay before its restart, and starts it.
    /// Replies whether it was in either.
    Retry(Scoped<ConversationId>, RpcReplyPort<bool>),
    /// Forgets a conversation that was deleted or released.
    Forget(Scoped<ConversationId>),
    Quarantined(Scoped<ConversationId>, RpcReplyPort<Option<Quarantined>>),
    /// The quarantined conversations of this node.
    ListQuarantined(RpcReplyPort<Vec<(Scoped<ConversationId>, Quarantined)>>),
    /// Every conversation ends as soon as nothing in it runs.
    Drain,
    /// Ends every conversation now; its work resumes on another node.
    Stop,
    /// Kills and forgets every conversation, because other nodes may hold them.
    AbandonAll,
    /// Conversations may start things again.
    Resume,
    /// The store answers again: what it refused to load is loaded now, whatever the delay.
    StoreReturned,
    /// A call of another node.
    Remote(RemoteCall),
}

/// The host actor.
pub struct Host;

/// What the host is started with.
pub struct Arguments {
    pub services: Arc<Services>,
    pub table: Arc<LiveTable>,
    /// Takes the calls of other nodes.
    pub incoming: mpsc::Sender<RemoteCall>,
    /// Takes the conversations that a draining node leaves with work to do; no more than live here.
    pub unfinished: mpsc::UnboundedSender<Scoped<ConversationId>>,
}

/// The state of the host.
pub struct State {
    services: Arc<Services>,
    table: Arc<LiveTable>,
    ids: HashMap<ActorId, Scoped<ConversationId>>,
    /// Callers that wait for an actor to end and get its successor.
    waiting: HashMap<Scoped<ConversationId>, Vec<RpcReplyPort<StartResult>>>,
    incoming: mpsc::Sender<RemoteCall>,
    unfinished: mpsc::UnboundedSender<Scoped<ConversationId>>,
    /// Only conversations that crashed recently.
    crashes: HashMap<Scoped<ConversationId>, CrashHistory>,
    /// The actors that the store has refused since one last loaded.
    store_refusals: u64,
}

impl Actor for Host {
    type Msg = HostMsg;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        _myself: ActorRef<HostMsg>,
        arguments: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let Arguments { services, table, incoming, unfinished } = arguments;
        Ok(State {
            services,
            table,
            ids: HashMap::new(),
            waiting: HashMap::new(),
            incoming,
            unfinished,
            crashes: HashMap::new(),
            store_refusals: 0,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<HostMsg>,
        message: HostMsg,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            HostMsg::Ensure(id, origin, reply) => {
                state.ensure(&myself, id, origin, Some(reply)).await?;
            }
            // A conversation that was forgotten since is not restarted.
            HostMsg::Restart(id) if state.awaits_restart(&id) => state.restart(&myself, id).await?,
            HostMsg::Restart(_) => {}
            HostMsg::Forget(id) => {
                state.crashes.remove(&id);
                state.count_quarantined();
                if state.table.get(&id).is_none() && state.waiting.contains_key(&id) {
                    state.restart(&myself, id).await?;
                }
            }
            HostMsg::Retry(id, reply) => {
                let waits = |history: CrashHistory| {
                    history.quarantined.is_some() || history.delay.is_some()
                };
                let waited = state.crashes.remove(&id).is_some_and(waits);
                state.count_quarantined();
                if waited {
                    state.restart(&myself, id).await?;
                }
                let _ = reply.send(waited);
            }
            HostMsg::Drain => state.send_all(|| ConversationMsg::Drain),
            HostMsg::Resume => state.send_all(|| ConversationMsg::Resume),
            HostMsg::StoreReturned => {
                for (id, history) in &mut state.crashes {
                    if history.record_store_return() {
                        // One message for each, so that others come in between.
                        let _ = myself.cast(HostMsg::Restart(id.clone()));
                    }
                }
            }
            HostMsg::Stop => {
                for (_, handle) in state.table.page(None, usize::MAX) {
                    handle.actor.stop(Some("the node stops".to_owned()));
                }
            }
            HostMsg::AbandonAll => {
                state.crashes.clear();
                state.count_quarantined();
                for (_, handle) in state.table.page(None, usize::MAX) {
                    handle.actor.kill();
                }
            }
            HostMsg::Remote(call) => {
                // Past the bound the call is dropped, and its caller times out.
                let _ = state.incoming.try_send(call);
            }
            HostMsg::ListQuarantined(reply) => {
                let quarantined = |(id, history): (&Scoped<ConversationId>, &CrashHistory)| {
                    Some((id.clone(), history.quarantined.clone()?))
                };
                let _ = reply.send(state.crashes.iter().filter_map(quarantined).collect());
            }
            HostMsg::Quarantined(id, reply) => {
                let history = state.crashes.get(&id);
                // The caller may have gone.
                let _ = reply.send(history.and_then(|history| history.quarantined.clone()));
            }
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<HostMsg>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorTerminated(actor, last, _) => {
                let last = last.and_then(|mut last| last.take::<LiveConversation>().ok());
                let has_work = last.is_some_and(|live| live.has_unfinished_work());
                // The work that a draining node leaves is for another node, or for the next
                // process.
                let draining = state.services.lease.is_draining();
                if let Some(id) = state.ids.get(&actor.get_id()).filter(|_| has_work && draining) {
                    // In a program that is ending nobody receives it.
                    let _ = state.unfinished.send(id.clone());
                }
                state.ended(&myself, &actor, has_work && !draining).await?;
            }
            SupervisionEvent::ActorFailed(actor, error) => {
                state.failed(&myself, &actor, error).await?;
            }
            SupervisionEvent::ActorStarted(actor) => state.started(&actor),
            SupervisionEvent::ProcessGroupChanged(_) | SupervisionEvent::PidLifecycleEvent(_) => {}
        }
        Ok(())
    }
}

impl State {
    fn send_all(&self, message: impl Fn() -> ConversationMsg) {
        for (_, handle) in self.table.page(None, usize::MAX) {
            // An actor that is ending needs no message.
            let _ = handle.actor.cast(message());
        }
    }

    async fn ensure(
        &mut self,
        myself: &ActorRef<HostMsg>,
        id: Scoped<ConversationId>,
        origin: Origin,
        reply: Option<RpcReplyPort<StartResult>>,
    ) -> Result<(), ActorProcessingErr> {
        let live = self.table.get(&id);
        let is_ending = |handle: &ActorHandle| handle.actor.get_status() >= ActorStatus::Draining;
        let history = self.crashes.get(&id);
        let quarantined = history.and_then(|history| history.quarantined.clone());
        let delay = history.and_then(|history| history.delay);
        let result = match (live, quarantined, delay) {
            (Some(handle), _, _) if !is_ending(&handle) => Ok(handle),
            (Some(_), _, _) | (None, None, Some(RestartDelay::AfterCrash)) => {
                self.waiting.entry(id).or_default().extend(reply);
                return Ok(());
            }
            (None, Some(quarantined), _) => Err(StartRefused::Quarantined(quarantined)),
            (None, None, Some(RestartDelay::AfterRefusal)) => Err(StartRefused::StoreAway),
            (None, None, None) => Ok(self.start(myself, id, origin).await?),
        };
        if let Some(reply) = reply {
            // The caller may have gone.
            let _ = reply.send(result);
        }
        Ok(())
    }

    /// Whether a delay before its restart runs, or callers wait for the restart.
    fn awaits_restart(&self, id: &Scoped<ConversationId>) -> bool {
        let is_delayed = self.crashes.get(id).is_some_and(|history| history.delay.is_some());
        is_delayed || self.waiting.contains_key(id)
    }

    /// Starts a conversation whose delay is over, and answers the callers that waited for it.
    async fn restart(
        &mut self,
        myself: &ActorRef<HostMsg>,
        id: Scoped<ConversationId>,
    ) -> Result<(), ActorProcessingErr> {
        let replacing = self.crashes.get_mut(&id).and_then(CrashHistory::end_delay);
        let waiting = self.waiting.remove(&id).unwrap_or_default();
        self.ensure(myself, id.clone(), replacing.into(), None).await?;
        for reply in waiting {
            self.ensure(myself, id.clone(), Origin::Journal, Some(reply)).await?;
        }
        Ok(())
    }

    async fn start(
        &mut self,
        myself: &ActorRef<HostMsg>,
        id: Scoped<ConversationId>,
        origin: Origin,
    ) -> Result<ActorHandle, ActorProcessingErr> {
        let mailbox_depth = Arc::new(AtomicUsize::new(0));
        let since = self.services.clock.now();
        let arguments = conversation::Arguments {
            id: id.clone(),
            services: self.services.clone(),
            origin: origin.clone(),
            mailbox_depth: mailbox_depth.clone(),
        };
        let supervisor = myself.get_cell();
        let (actor, _) = Actor::spawn_linked(None, Conversation, arguments, supervisor).await?;
        let restarts = self.crashes.get(&id).map(|history| history.restarts).unwrap_or_default();
        let replacing = origin.dead_holder().cloned();
        let handle = ActorHandle { actor, mailbox_depth, since, restarts, replacing };
        self.ids.insert(handle.actor.get_id(), id.clone());
        self.table.set(id, Some(handle.clone()));
        Ok(handle)
    }

    /// Records that an actor has loaded: its store is available again.
    fn started(&mut self, actor: &ActorCell) {
        let history = self.ids.get(&actor.get_id()).and_then(|id| self.crashes.get_mut(id));
        if let Some(history) = history
            && history.record_start()
        {
            let actor_deaths = std::mem::take(&mut self.store_refusals);
            if actor_deaths > 0 {
                tracing::info!(actor_deaths, "store answers again: conversations restart");
            }
        }
    }

    /// Forgets an actor that has ended. Starts its successor if it is wanted or callers wait for
    /// it.
    async fn ended(
        &mut self,
        myself: &ActorRef<HostMsg>,
        actor: &ActorCell,
        wanted: bool,
    ) -> Result<(), ActorProcessingErr> {
        let Some(id) = self.ids.remove(&actor.get_id()) else { return Ok(()) };
        self.table.set(id.clone(), None);
        let is_delayed = self.crashes.get(&id).is_some_and(|history| history.delay.is_some());
        if wanted || (self.waiting.contains_key(&id) && !is_delayed) {
            self.restart(myself, id).await?;
        }
        Ok(())
    }

    async fn failed(
        &mut self,
        myself: &ActorRef<HostMsg>,
        actor: &ActorCell,
        error: ActorProcessingErr,
    ) -> Result<(), ActorProcessingErr> {
        let Some(id) = self.ids.get(&actor.get_id()).cloned() else { return Ok(()) };
        let now = self.services.clock.now();
        let exit = error.downcast_ref::<ExitReason>();
        let history = self.crashes.entry(id.clone()).or_default();
        let replacing = self.table.get(&id).and_then(|handle| handle.replacing);
        let delay = history.record_death(now, exit, &error.to_string(), replacing);
        // The message of a panic may quote what people, models or tools said.
        let content = exit.is_none().then(|| error.to_string());
        let error = exit.map(ToString::to_string);
        if history.delay == Some(RestartDelay::AfterRefusal) {
            // All that live here die of it: one line for each would hide everything else.
            if self.store_refusals == 0 {
                tracing::warn!(error, "store unavailable: conversations wait for it");
            }
            self.store_refusals += 1;
        } else {
            tracing::warn!(conversation = %id, error, content, ?delay, "conversation actor died");
        }
        metrics::counter!("abide_actor_deaths_total").increment(1);
        self.forget_old(now);
        self.ended(myself, actor, delay == Some(Duration::ZERO)).await?;
        if let Some(delay) = delay.filter(|delay| !delay.is_zero()) {
            myself.send_after(delay, move || HostMsg::Restart(id));
        }
        Ok(())
    }

    /// Keeps the histories of conversations that live, are quarantined, or died recently.
    fn forget_old(&mut self, now: Timestamp) {
        let table = &self.table;
        self.crashes.retain(|id, history| {
            let is_recent =
                history.last_death.is_some_and(|at| now.duration_since(at) < CRASH_WINDOW);
            is_recent || history.quarantined.is_some() || table.get(id).is_some()
        });
        self.count_quarantined();
    }

    fn count_quarantined(&self) {
        let count = self.crashes.values().filter(|history| history.quarantined.is_some()).count();
        metrics::gauge!("abide_quarantined").set(count as f64);
    }
}
