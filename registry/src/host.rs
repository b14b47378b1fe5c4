//! The supervisor of a node's conversations: starts them, revives them, gives up on the hopeless.
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
    self, Conversation, ConversationMsg, ExitReason, LiveConversation, Services,
};
use abide_actors::journal::Holder;
use abide_conversation::{ConversationId, Timestamp};
use ractor::{
    Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, ActorStatus, RpcReplyPort,
    SupervisionEvent,
};
use tokio::sync::mpsc;

use crash_history::WINDOW;
pub use crash_history::{CrashHistory, Quarantined, RestartDelay};
pub use live_table::{ActorHandle, LiveTable};
pub use remote::RemoteCall;

/// The answer to a wish for a live actor.
pub type StartResult = Result<ActorHandle, StartRefused>;

/// Why there is no live actor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartRefused {
    Quarantined(Quarantined),
    /// The store refused the last one; the next is tried after a pause.
    StoreAway,
}

/// The protocol of the host.
pub enum HostMsg {
    /// The live actor of a conversation, started if there is none, replacing a dead holder if one is named.
    Ensure(ConversationId, Option<Holder>, RpcReplyPort<StartResult>),
    /// The pause after a crash is over.
    Revive(ConversationId),
    /// Lets a conversation out of quarantine, or out of the pause before its next life, and starts
    /// it. The answer says whether it was there.
    Retry(ConversationId, RpcReplyPort<bool>),
    /// Forgets a conversation that was deleted, or let go.
    Forget(ConversationId),
    Quarantined(ConversationId, RpcReplyPort<Option<Quarantined>>),
    /// Every conversation ends as soon as nothing of it runs.
    Leave,
    /// Ends every conversation now; what it was doing goes on elsewhere.
    Stop,
    /// Forgets every conversation: others may hold them.
    Abandon,
    /// Conversations may start things again.
    Resume,
    /// A call of another node.
    Remote(RemoteCall),
}

/// The actor.
pub struct Host;

/// What it works with.
pub struct Arguments {
    pub deps: Arc<Services>,
    pub table: Arc<LiveTable>,
    /// Takes the calls of other nodes.
    pub incoming: mpsc::Sender<RemoteCall>,
    /// Takes what a draining node leaves undone; no more than live here.
    pub left: mpsc::UnboundedSender<ConversationId>,
}

/// What the host knows.
pub struct State {
    deps: Arc<Services>,
    table: Arc<LiveTable>,
    ids: HashMap<ActorId, ConversationId>,
    /// Who waits for an actor that is ending, to get the next one.
    waiting: HashMap<ConversationId, Vec<RpcReplyPort<StartResult>>>,
    incoming: mpsc::Sender<RemoteCall>,
    left: mpsc::UnboundedSender<ConversationId>,
    /// Only conversations that crashed lately.
    records: HashMap<ConversationId, CrashHistory>,
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
        let Arguments { deps, table, incoming, left } = arguments;
        let (ids, waiting, records) = Default::default();
        Ok(State { deps, table, ids, waiting, incoming, left, records })
    }

    async fn handle(
        &self,
        myself: ActorRef<HostMsg>,
        message: HostMsg,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            HostMsg::Ensure(id, replacing, reply) => {
                state.ensure(&myself, id, replacing, Some(reply)).await?;
            }
            // Unless it was forgotten since.
            HostMsg::Revive(id) if state.is_wanted(&id) => state.revive(&myself, id).await?,
            HostMsg::Revive(_) => {}
            HostMsg::Forget(id) => {
                state.records.remove(&id);
                state.count_quarantined();
                if state.table.get(&id).is_none() && state.waiting.contains_key(&id) {
                    state.revive(&myself, id).await?;
                }
            }
            HostMsg::Retry(id, reply) => {
                let waits =
                    |record: CrashHistory| record.quarantined.is_some() || record.pause.is_some();
                let waited = state.records.remove(&id).is_some_and(waits);
                state.count_quarantined();
                if waited {
                    state.revive(&myself, id).await?;
                }
                let _ = reply.send(waited);
            }
            HostMsg::Leave => state.tell_all(|| ConversationMsg::Drain),
            HostMsg::Resume => state.tell_all(|| ConversationMsg::Resume),
            HostMsg::Stop => {
                for (_, handle) in state.table.page(None, usize::MAX) {
                    handle.actor.stop(Some("the node stops".to_owned()));
                }
            }
            HostMsg::Abandon => {
                state.records.clear();
                state.count_quarantined();
                for (_, handle) in state.table.page(None, usize::MAX) {
                    handle.actor.kill();
                }
            }
            HostMsg::Remote(call) => {
                // Past the bound the call is dropped: its caller hears nothing and knows as much.
                let _ = state.incoming.try_send(call);
            }
            HostMsg::Quarantined(id, reply) => {
                let record = state.records.get(&id);
                // Who asked may have gone.
                let _ = reply.send(record.and_then(|record| record.quarantined.clone()));
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
            SupervisionEvent::ActorTerminated(who, last, _) => {
                let last = last.and_then(|mut last| last.take::<LiveConversation>().ok());
                let restless = last.is_some_and(|live| live.wants_something());
                // What a draining node leaves undone is for another, or for the next process.
                let draining = state.deps.standing.is_draining();
                if let Some(id) = state.ids.get(&who.get_id()).filter(|_| restless && draining) {
                    // Nobody takes it over in a program that is ending.
                    let _ = state.left.send(id.clone());
                }
                state.ended(&myself, &who, restless && !draining).await?;
            }
            SupervisionEvent::ActorFailed(who, error) => {
                state.failed(&myself, &who, error).await?;
            }
            SupervisionEvent::ActorStarted(who) => state.started(&who),
            SupervisionEvent::ProcessGroupChanged(_) | SupervisionEvent::PidLifecycleEvent(_) => {}
        }
        Ok(())
    }
}

impl State {
    fn tell_all(&self, message: impl Fn() -> ConversationMsg) {
        for (_, handle) in self.table.page(None, usize::MAX) {
            // One that is ending needs no telling.
            let _ = handle.actor.cast(message());
        }
    }

    async fn ensure(
        &mut self,
        myself: &ActorRef<HostMsg>,
        id: ConversationId,
        replacing: Option<Holder>,
        reply: Option<RpcReplyPort<StartResult>>,
    ) -> Result<(), ActorProcessingErr> {
        let live = self.table.get(&id);
        let ending = |handle: &ActorHandle| handle.actor.get_status() >= ActorStatus::Draining;
        let record = self.records.get(&id);
        let quarantined = record.and_then(|record| record.quarantined.clone());
        let pause = record.and_then(|record| record.pause);
        let ensured = match (live, quarantined, pause) {
            (Some(handle), _, _) if !ending(&handle) => Ok(handle),
            (Some(_), _, _) | (None, None, Some(RestartDelay::AfterCrash)) => {
                self.waiting.entry(id).or_default().extend(reply);
                return Ok(());
            }
            (None, Some(quarantined), _) => Err(StartRefused::Quarantined(quarantined)),
            (None, None, Some(RestartDelay::AfterRefusal)) => Err(StartRefused::StoreAway),
            (None, None, None) => Ok(self.start(myself, id, replacing).await?),
        };
        if let Some(reply) = reply {
            // Who asked may have gone.
            let _ = reply.send(ensured);
        }
        Ok(())
    }

    /// Whether a pause before its next life runs, or somebody waits for that.
    fn is_wanted(&self, id: &ConversationId) -> bool {
        let paused = self.records.get(id).is_some_and(|record| record.pause.is_some());
        paused || self.waiting.contains_key(id)
    }

    /// Starts a conversation whose pause is over, and answers those who waited for it.
    async fn revive(
        &mut self,
        myself: &ActorRef<HostMsg>,
        id: ConversationId,
    ) -> Result<(), ActorProcessingErr> {
        let replacing = self.records.get_mut(&id).and_then(CrashHistory::revive);
        let waiting = self.waiting.remove(&id).unwrap_or_default();
        self.ensure(myself, id.clone(), replacing, None).await?;
        for reply in waiting {
            self.ensure(myself, id.clone(), None, Some(reply)).await?;
        }
        Ok(())
    }

    async fn start(
        &mut self,
        myself: &ActorRef<HostMsg>,
        id: ConversationId,
        replacing: Option<Holder>,
    ) -> Result<ActorHandle, ActorProcessingErr> {
        let depth = Arc::new(AtomicUsize::new(0));
        let (deps, since) = (self.deps.clone(), self.deps.clock.now());
        let depth_of = depth.clone();
        let arguments = conversation::Arguments {
            id: id.clone(),
            deps,
            over: replacing.clone(),
            depth: depth_of,
        };
        let supervisor = myself.get_cell();
        let (actor, _) = Actor::spawn_linked(None, Conversation, arguments, supervisor).await?;
        let restarts = self.records.get(&id).map(|record| record.restarts).unwrap_or_default();
        let handle = ActorHandle { actor, depth, since, restarts, replacing };
        self.ids.insert(handle.actor.get_id(), id.clone());
        self.table.set(id, Some(handle.clone()));
        Ok(handle)
    }

    /// It has loaded: the store is there again.
    fn started(&mut self, who: &ActorCell) {
        let record = self.ids.get(&who.get_id()).and_then(|id| self.records.get_mut(id));
        if let Some(record) = record {
            record.started();
        }
    }

    /// Forgets an actor that has ended, and starts the next one if somebody waits for it.
    async fn ended(
        &mut self,
        myself: &ActorRef<HostMsg>,
        who: &ActorCell,
        wanted: bool,
    ) -> Result<(), ActorProcessingErr> {
        let Some(id) = self.ids.remove(&who.get_id()) else { return Ok(()) };
        self.table.set(id.clone(), None);
        let paused = self.records.get(&id).is_some_and(|record| record.pause.is_some());
        match wanted || (self.waiting.contains_key(&id) && !paused) {
            true => self.revive(myself, id).await,
            false => Ok(()),
        }
    }

    async fn failed(
        &mut self,
        myself: &ActorRef<HostMsg>,
        who: &ActorCell,
        error: ActorProcessingErr,
    ) -> Result<(), ActorProcessingErr> {
        let Some(id) = self.ids.get(&who.get_id()).cloned() else { return Ok(()) };
        let now = self.deps.clock.now();
        let death = error.downcast_ref::<ExitReason>();
        let record = self.records.entry(id.clone()).or_default();
        let replacing = self.table.get(&id).and_then(|handle| handle.replacing);
        let pause = record.died(now, death, &error.to_string(), replacing);
        // A panic's words may be anybody's.
        let said = death.is_none().then(|| error.to_string());
        let error = death.map(ToString::to_string);
        tracing::warn!(conversation = %id, error, said, ?pause, "a conversation's actor ended");
        metrics::counter!("abide_actor_deaths_total").increment(1);
        self.forget_old(now);
        self.ended(myself, who, pause == Some(Duration::ZERO)).await?;
        if let Some(pause) = pause.filter(|pause| !pause.is_zero()) {
            myself.send_after(pause, move || HostMsg::Revive(id));
        }
        Ok(())
    }

    /// Keeps the records of those that live, that are quarantined, or that died lately.
    fn forget_old(&mut self, now: Timestamp) {
        let table = &self.table;
        self.records.retain(|id, record| {
            let lately = record.died.is_some_and(|died| now.duration_since(died) < WINDOW);
            lately || record.quarantined.is_some() || table.get(id).is_some()
        });
        self.count_quarantined();
    }

    fn count_quarantined(&self) {
        let given_up = self.records.values().filter(|record| record.quarantined.is_some()).count();
        metrics::gauge!("abide_quarantined").set(given_up as f64);
    }
}
