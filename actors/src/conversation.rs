//! The actor of one conversation: load, then decide, append, evolve, publish, reconcile.
//!
//! It dies with nothing but itself: its activities are aborted with it, its supervisor revives it,
//! and the journal says where it was.

mod ask_hooks;
mod await_mcp_listing;
mod commit;
mod dispatch;
mod fork;
mod metrics;
mod notify_hooks;
mod operator;
mod recent_events;
mod reconcile;
mod requests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use abide_conversation::event::Event;
use abide_conversation::{
    Action, Activity, CallId, Command, ConversationId, Rejection, State, Transition,
    decide_and_fold, replay, wanted,
};
use ractor::{Actor, ActorProcessingErr, ActorRef, ActorStatus, RpcReplyPort};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::activity::{ActivityError, Progress, Report};
use crate::agent;
use crate::agents::Agents;
use crate::audit::Recorder;
use crate::backoff::Backoffs;
use crate::blobs::Blobs;
use crate::clock::Clock;
use crate::conversation_client::ClientSlot;
use crate::definition::Definition;
use crate::definition::Tool;
use crate::journal::{Claim, Holder, Journal, StoreError};
use crate::live::{LiveSink, Signal};
use crate::model::Model;
use crate::node_lease::NodeLease;
use crate::request::{Delivery, Inspection, ReleaseOutcome, Reply, ReplyPort};
use crate::streaming::Stream;
use crate::tools::Runner;
pub use ask_hooks::HookAnswers;
pub(crate) use metrics::waited;
pub(crate) use recent_events::RecentEvents;

/// A store that takes longer is away, and of a write the outcome is unknown: the actor dies and
/// replays.
const DEADLINE: Duration = Duration::from_secs(10);

/// What all conversations of a node work with.
pub struct Services {
    pub standing: Arc<NodeLease>,
    pub journal: Arc<dyn Journal>,
    pub blobs: Arc<dyn Blobs>,
    pub audit: Recorder,
    pub agents: Arc<dyn Agents>,
    pub live: Arc<dyn LiveSink>,
    pub model: Arc<dyn Model>,
    pub runner: Arc<Runner>,
    pub clock: Arc<dyn Clock>,
    pub door: Arc<ClientSlot>,
    /// How long an actor with nothing to do stays in memory.
    pub passivate_after: Duration,
    /// Model calls and tool runs under way, so that a drain can wait for them.
    pub work: TaskTracker,
}

/// The actor; its state is a [`Loaded`] conversation.
pub struct Conversation;

/// What an actor starts with.
pub struct Arguments {
    pub id: ConversationId,
    pub deps: Arc<Services>,
    /// Its holder, known to be dead.
    pub over: Option<Holder>,
    /// How many messages wait for it; the sender adds, the actor takes away.
    pub depth: Arc<AtomicUsize>,
}

/// The protocol of the actor. It never leaves the process.
pub enum ConversationMsg {
    Deliver(Box<Delivery>),
    Report(Box<Report>),
    /// A request comes back when MCP servers have listed their tools.
    ToolsListed(u64, Box<Delivery>),
    /// A request comes back with what hooks said to it.
    HooksAnswered(u64, Box<Delivery>, Box<HookAnswers>),
    Inspect(RpcReplyPort<Box<Inspection>>),
    /// An operator crashes the actor, as a bug would.
    Kill,
    /// An operator has what waits for a later attempt tried now; the answer says what that was.
    Retry(RpcReplyPort<Vec<String>>),
    /// An operator ends the actor and gives its claim to this holder, or up; by force, even if
    /// calls run that must not run twice.
    Release(Option<Holder>, bool, RpcReplyPort<ReleaseOutcome>),
    /// The node drains: it ends as soon as nothing runs.
    Drain,
    /// The node may start things again.
    Resume,
    /// Nothing was asked since this many messages.
    IdleTimeout(u64),
}

impl ractor::Message for ConversationMsg {}

/// Why an actor ended itself; its supervisor reads it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExitReason {
    #[error(transparent)]
    Refused(#[from] StoreError),
    #[error("killed by an operator")]
    Killed,
    #[error("held by {0}")]
    HeldElsewhere(Holder),
    #[error(transparent)]
    Trouble(#[from] ActivityError),
}

/// A loaded conversation.
pub struct LiveConversation {
    pub(crate) id: ConversationId,
    pub(crate) deps: Arc<Services>,
    depth: Arc<AtomicUsize>,
    over: Option<Holder>,
    held: Claim,
    state: Arc<State>,
    tail: RecentEvents,
    /// The tools that its client declared, compiled.
    own: Arc<[Tool]>,
    /// Up to where the stored state cache goes.
    cached_seq: u64,
    running: BTreeMap<Activity, AbortOnDropHandle<()>>,
    stream: Stream,
    progress: Progress,
    pauses: Backoffs,
    dispatched: BTreeMap<CallId, Vec<ReplyPort>>,
    /// Who waits for the copy of a prefix, and for what answer.
    forks: Vec<(ReplyPort, Reply)>,
    /// Requests whose hooks are asked, by their number.
    asking: BTreeMap<u64, AbortOnDropHandle<()>>,
    /// How many there ever were.
    asked: u64,
    /// Its agent as it was when it was last looked up.
    newest: Option<Arc<Definition>>,
    handled: u64,
    /// Loaded while the node drains: what ran before is left to the next process.
    dormant: bool,
    /// Its claim was given away.
    parted: bool,
    idle: Option<AbortOnDropHandle<()>>,
}

impl Actor for Conversation {
    type Msg = ConversationMsg;
    type State = LiveConversation;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        _myself: ActorRef<Self::Msg>,
        arguments: Arguments,
    ) -> Result<LiveConversation, ActorProcessingErr> {
        let Arguments { id, deps, over, depth } = arguments;
        let held = Claim { holder: deps.standing.me(), epoch: 0 };
        Ok(LiveConversation {
            id,
            deps,
            depth,
            over,
            held,
            state: Arc::default(),
            tail: RecentEvents::default(),
            own: Arc::default(),
            cached_seq: 0,
            running: BTreeMap::new(),
            stream: Stream::default(),
            progress: Progress::default(),
            pauses: Backoffs::default(),
            dispatched: BTreeMap::new(),
            forks: Vec::new(),
            asking: BTreeMap::new(),
            asked: 0,
            newest: None,
            handled: 0,
            dormant: false,
            parted: false,
            idle: None,
        })
    }

    /// Claims, replays, and takes up what ran when the last actor died.
    async fn post_start(
        &self,
        myself: ActorRef<Self::Msg>,
        live: &mut LiveConversation,
    ) -> Result<(), ActorProcessingErr> {
        Ok(Box::pin(live.begin(&myself)).await?)
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: ConversationMsg,
        live: &mut LiveConversation,
    ) -> Result<(), ActorProcessingErr> {
        // Boxed: most actors wait most of the time, and keep room for nothing but waiting.
        Ok(Box::pin(live.take(&myself, message)).await?)
    }

    async fn post_stop(
        &self,
        _myself: ActorRef<Self::Msg>,
        live: &mut LiveConversation,
    ) -> Result<(), ActorProcessingErr> {
        live.running.clear();
        if live.parted {
            return Ok(());
        }
        Ok(in_time(live.deps.journal.release(&live.id, &live.held)).await?)
    }
}

impl LiveConversation {
    /// Whether it was cut off while something had to run that is still this node's.
    pub fn wants_something(&self) -> bool {
        !self.parted && !wanted(&self.state).is_empty()
    }

    async fn begin(&mut self, myself: &ActorRef<ConversationMsg>) -> Result<(), ExitReason> {
        self.load().await?;
        self.dormant = self.deps.standing.is_draining();
        if self.state.exists() && !self.dormant {
            self.act(myself, Action::Revive).await?;
        }
        self.rest(myself);
        Ok(())
    }

    /// Does what a message asks for, and what follows every message.
    async fn take(
        &mut self,
        myself: &ActorRef<ConversationMsg>,
        message: ConversationMsg,
    ) -> Result<(), ExitReason> {
        if self.held.holder != self.deps.standing.me() {
            // Its node was declared dead and goes on as another: whatever this actor began to do,
            // it holds nothing any more.
            return Err(StoreError::Fenced.into());
        }
        match message {
            ConversationMsg::Deliver(delivery) => {
                self.depth.fetch_sub(1, Ordering::Relaxed);
                // An actor that is ending starts nothing that it would cut off at once: the
                // delivery goes back, and to the next actor.
                if myself.get_status() < ActorStatus::Draining {
                    self.handled += 1;
                    if let Some(delivery) = self.when_listed(myself, *delivery).await {
                        self.deliver(myself, delivery, None).await?;
                    }
                }
            }
            ConversationMsg::ToolsListed(number, delivery) => {
                self.asking.remove(&number);
                if myself.get_status() < ActorStatus::Draining {
                    self.handled += 1;
                    self.deliver(myself, *delivery, None).await?;
                }
            }
            ConversationMsg::HooksAnswered(number, delivery, heard) => {
                self.asking.remove(&number);
                if myself.get_status() < ActorStatus::Draining {
                    self.handled += 1;
                    self.deliver(myself, *delivery, Some(*heard)).await?;
                }
            }
            ConversationMsg::Report(report) => {
                self.handled += 1;
                self.report(myself, *report).await?;
            }
            ConversationMsg::Inspect(reply) => {
                // Who asked may have gone; that is no concern of the conversation's.
                let _ = reply.send(Box::new(self.inspect()));
            }
            ConversationMsg::Kill => return Err(ExitReason::Killed),
            ConversationMsg::Retry(reply) => {
                let _ = reply.send(self.retry(myself));
            }
            ConversationMsg::Release(to, force, reply) => {
                let _ = reply.send(self.let_go(myself, to, force).await?);
            }
            // What follows every message of a draining node.
            ConversationMsg::Drain => {}
            ConversationMsg::Resume => self.reconcile(myself),
            ConversationMsg::IdleTimeout(handled) => self.passivate(myself, handled),
        }
        if self.deps.standing.is_draining() {
            self.leave(myself);
        } else {
            self.rest(myself);
        }
        Ok(())
    }

    async fn load(&mut self) -> Result<(), ExitReason> {
        let (journal, began) = (&self.deps.journal, self.deps.clock.now());
        let me = self.deps.standing.me();
        // This node's former actor of the conversation is gone: its writes are fenced from here on.
        let take = async |dead| in_time(journal.claim_and_load(&self.id, &me, dead)).await;
        let (mut held, mut stored) = take(Some(&me)).await?;
        if self.over.as_ref() == Some(&held.holder) {
            (held, stored) = take(self.over.as_ref()).await?;
        }
        self.held = held;
        if self.held.holder != me {
            return Err(ExitReason::HeldElsewhere(self.held.holder.clone()));
        }
        ::metrics::counter!("abide_claims_total").increment(1);
        if let Some(stored) = stored {
            self.cached_seq = stored.state.seq;
            self.state = Arc::new(replay(stored.state, &stored.events));
            self.tail.push(Arc::from(stored.events));
            self.compile_own().await;
            self.revived(began);
            // Its predecessor may have died between an append and the telling of it.
            self.deps.live.publish(&self.id, Signal::Revived);
        }
        Ok(())
    }

    /// Compiles the client's tools; aside, since that may take a while.
    pub(super) async fn compile_own(&mut self) {
        if self.state.tools.is_empty() {
            return;
        }
        let declared = self.state.tools.clone();
        let compiled = tokio::task::spawn_blocking(move || agent::client_tools(&declared)).await;
        match compiled {
            Ok(Ok(own)) => self.own = own,
            // They were checked when the conversation was created; another version may differ.
            Ok(Err(mistakes)) => {
                let mistakes = agent::joined(&mistakes);
                tracing::error!(conversation = %self.id, said = mistakes, "its own tools are refused");
            }
            Err(error) => {
                tracing::error!(conversation = %self.id, said = %error, "its tools are lost")
            }
        }
    }

    /// Carries out an action of the system's own. One that came too late changes nothing.
    async fn act(
        &mut self,
        myself: &ActorRef<ConversationMsg>,
        action: Action,
    ) -> Result<(), ExitReason> {
        match self.decide(action) {
            Ok(decided) => self.commit(myself, decided, Vec::new()).await?,
            Err(rejection) => self.ignore(&rejection),
        }
        Ok(())
    }

    fn decide(&self, action: Action) -> Result<Transition, Rejection> {
        decide_and_fold(&self.state, Command { at: self.deps.clock.now(), action })
    }

    fn ignore(&self, rejection: &Rejection) {
        tracing::debug!(conversation = %self.id, %rejection, "ignored");
    }

    async fn report(
        &mut self,
        myself: &ActorRef<ConversationMsg>,
        report: Report,
    ) -> Result<(), ExitReason> {
        let Report { activity, ended } = report;
        // It was cut off while its report was under way; whatever it says is out of date.
        if self.running.remove(&activity).is_none() {
            return Ok(());
        }
        self.act(myself, ended?).await?;
        self.reconcile(myself);
        Ok(())
    }

    fn inspect(&self) -> Inspection {
        Inspection {
            state: State::clone(&self.state),
            held: self.held.clone(),
            streaming: self.stream.message(),
            progress: self.progress.said(),
            running: self.running.keys().map(ToString::to_string).collect(),
            pauses: self.pauses.all(),
        }
    }

    /// Arms the timer of an actor with nothing to do.
    fn rest(&mut self, myself: &ActorRef<ConversationMsg>) {
        // Whoever waits for a user's own call that a child has, or for hooks, waits here.
        let waits = !self.dispatched.is_empty() || !self.asking.is_empty();
        if !self.running.is_empty() || waits {
            self.idle = None;
        } else if self.idle.is_none() {
            let (myself, handled) = (myself.clone(), self.handled);
            // Nothing is to be kept of a conversation whose first request was refused, nor on a node
            // that drains.
            let stays = !self.dormant && (self.state.exists() || self.handled == 0);
            let after = if stays { self.deps.passivate_after } else { Duration::ZERO };
            self.idle = Some(AbortOnDropHandle::new(tokio::spawn(async move {
                tokio::time::sleep(after).await;
                // An actor that has ended needs no timer.
                let _ = myself.cast(ConversationMsg::IdleTimeout(handled));
            })));
        }
    }

    /// Ends the actor of a draining node, unless something runs. What it leaves undone is for the
    /// next one, elsewhere.
    fn leave(&mut self, myself: &ActorRef<ConversationMsg>) {
        let works = |activity: &Activity| {
            matches!(activity, Activity::CallModel { .. } | Activity::RunTool { .. })
        };
        if !self.running.keys().any(works) && myself.drain().is_err() {
            tracing::debug!(conversation = %self.id, "already ending");
        }
    }

    /// Ends the actor, unless something was asked meanwhile. What waits in its mailbox goes back to
    /// the door, and to the next actor.
    fn passivate(&mut self, myself: &ActorRef<ConversationMsg>, handled: u64) {
        self.idle = None;
        if self.handled == handled && self.running.is_empty() && myself.drain().is_err() {
            tracing::debug!(conversation = %self.id, "already ending");
        }
    }
}

/// What a store does in time; after that the outcome is unknown.
async fn in_time<T>(asked: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    match tokio::time::timeout(DEADLINE, asked).await {
        Ok(answered) => answered,
        Err(_) => Err(StoreError::Unavailable("the store took too long".to_owned())),
    }
}

/// The first event of a kind, as the answer to a request needs it.
fn seq_of(events: &[Event], is: impl Fn(&Event) -> bool) -> u64 {
    events.iter().find(|event| is(event)).map(|event| event.seq).unwrap_or_default()
}
