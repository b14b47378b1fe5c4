//! The actor of one conversation: decide, append, evolve, publish, reconcile.
//!
//! It dies alone: its activities are aborted with it, its supervisor starts a successor, and the
//! journal says where the conversation was (`architecture/overview.md#the-actor`).

mod ask_hooks;
mod await_mcp_listing;
mod commit;
mod delete;
mod dispatch;
mod erase_subject;
mod external;
mod first_request;
mod fork;
mod idle_timer;
mod imported;
mod load;
mod metrics;
mod not_done;
mod notify_hooks;
mod operator;
mod origin;
mod owe;
mod progress_check;
mod publish_at_root;
mod publish_inbox;
mod reconcile;
pub mod relist;
mod requests;
mod resolve;
mod resolve_all;
mod running_activities;
mod scheduled;
mod steering;
mod waiters;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use abide_conversation::event::Event;
use abide_conversation::{
    Action, Command, ConversationId, Rejection, Scoped, Seq, State, Timestamp, Transition,
    decide_and_fold, wanted,
};
use futures::FutureExt;
use ractor::{Actor, ActorProcessingErr, ActorRef, ActorStatus, RpcReplyPort};

use self::idle_timer::IdleTimer;
use self::running_activities::RunningActivities;
use self::waiters::Waiters;
use crate::activity::{ActivityError, Report};
use crate::agents::Choice;
use crate::journal::{Claim, Holder, StoreError};
use crate::recent_events::RecentEvents;
use crate::request::{Delivery, Inspection, ReleaseOutcome};
use crate::services::Services;
use crate::tools::DeclaredTools;
pub use ask_hooks::HookVerdict;
pub use delete::{discard_workspace, note_deletion, planned_children};
pub use imported::imported;
pub use load::kills_its_process;
pub use origin::Origin;
pub use owe::owed_for_deletion;
pub use progress_check::ProgressCheck;

/// A store that takes longer counts as unavailable. The outcome of a write is then unknown: the
/// actor dies and replays.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);

/// The actor; its state is a [`LiveConversation`].
pub struct Conversation;

/// What an actor is built from.
pub struct Arguments {
    pub id: Scoped<ConversationId>,
    pub services: Arc<Services>,
    pub origin: Origin,
    /// The number of deliveries in the mailbox; the sender adds, the actor subtracts.
    pub mailbox_depth: Arc<AtomicUsize>,
}

/// The protocol of the actor. It never leaves the process.
pub enum ConversationMsg {
    Deliver(Box<Delivery>),
    Report(Box<Report>),
    /// A deferred request returns: the MCP servers have listed their tools.
    ToolsListed(u64, Box<Delivery>),
    /// A deferred request returns with the verdicts of the hooks.
    HooksAnswered(u64, Box<Delivery>, Vec<HookVerdict>),
    Inspect(RpcReplyPort<Box<Inspection>>),
    /// Crashes the actor at an operator's request, as a bug would.
    Kill,
    /// Retries everything that is backing off. Replies with what was retried.
    Retry(RpcReplyPort<Vec<String>>),
    /// Ends the actor and gives its claim to this holder, or up. With `true`, also while calls run
    /// that must not run twice.
    Release(Option<Holder>, bool, RpcReplyPort<ReleaseOutcome>),
    /// The node drains: the actor ends as soon as no model call and no tool runs.
    Drain,
    /// The node may start activities again.
    Resume,
    /// The actor has had nothing to do for a while: it drops what it can read again. The idle timer was
    /// armed when this many messages had been handled.
    Rest(u64),
    /// The idle timer, armed at this number of messages, ran out.
    IdleTimeout(u64),
}

impl ractor::Message for ConversationMsg {}

/// Why an actor ended itself; its supervisor reads it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExitReason {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("killed by an operator")]
    Killed,
    #[error("held by {0}")]
    HeldElsewhere(Holder),
    #[error("{0} processes in a row ended while it was at work, and it completed nothing")]
    KillsItsProcess(u32),
    #[error(transparent)]
    Activity(#[from] ActivityError),
}

/// A conversation in memory: its folded state, and caches and handles that may be lost at any time.
pub struct LiveConversation {
    pub(crate) id: Scoped<ConversationId>,
    pub(crate) services: Arc<Services>,
    mailbox_depth: Arc<AtomicUsize>,
    origin: Origin,
    /// Its epoch is zero until the conversation is claimed.
    claim: Claim,
    /// Whether an operator made this actor give its claim away: it owns nothing any more.
    is_released: bool,
    state: Arc<State>,
    recent_events: RecentEvents,
    /// The tools that clients declared, compiled.
    declared_tools: DeclaredTools,
    /// The `seq` of the state cache in the store.
    cached_seq: Seq,
    /// The agent's definition for this conversation when it was last looked up.
    choice: Option<Choice>,
    activities: RunningActivities,
    waiters: Waiters,
    idle: IdleTimer,
    progress_check: ProgressCheck,
    /// What deletes the conversation, whose own end has come. It outlives the actor.
    ending: Option<tokio::task::JoinHandle<()>>,
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
        let Arguments { id, services, origin, mailbox_depth } = arguments;
        let claim = Claim::unclaimed(services.lease.me());
        Ok(LiveConversation {
            id,
            services,
            mailbox_depth,
            origin,
            claim,
            is_released: false,
            state: Arc::default(),
            recent_events: RecentEvents::default(),
            declared_tools: DeclaredTools::default(),
            cached_seq: Seq::ZERO,
            choice: None,
            activities: RunningActivities::default(),
            waiters: Waiters::default(),
            idle: IdleTimer::default(),
            progress_check: ProgressCheck::default(),
            ending: None,
        })
    }

    /// Claims, replays, and resumes what ran when the last actor died; what is new has nothing of that.
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
        // Boxed: most actors wait most of the time, and should need memory for waiting only. A boxed
        // future is copied to the heap first, so that what is large in it is boxed again.
        Ok(Box::pin(live.process(&myself, message)).await?)
    }

    async fn post_stop(
        &self,
        _myself: ActorRef<Self::Msg>,
        live: &mut LiveConversation,
    ) -> Result<(), ActorProcessingErr> {
        live.activities.abort_all();
        if live.is_released || live.is_unclaimed() {
            return Ok(());
        }
        let released = with_store_timeout(live.services.journal.release(&live.id, &live.claim));
        Ok(released.await.map_err(ExitReason::from)?)
    }
}

impl LiveConversation {
    /// Whether the actor ended while activities were wanted that this node is still to run.
    pub fn has_unfinished_work(&self) -> bool {
        !self.is_released && !wanted(&self.state).is_empty()
    }

    /// Whether the actor has not claimed the conversation yet, of which it knows nothing then.
    fn is_unclaimed(&self) -> bool {
        self.claim.is_unclaimed()
    }

    async fn begin(&mut self, myself: &ActorRef<ConversationMsg>) -> Result<(), ExitReason> {
        self.idle.is_dormant = self.services.lease.is_draining();
        if self.origin != Origin::New {
            // Boxed: a new conversation, as most are, skips this.
            Box::pin(self.revive()).await?;
            self.compile_turn_tools().await;
            self.reconcile(myself);
        }
        self.update_idle_timer(myself);
        Ok(())
    }

    /// Claims and replays the conversation, and notes that its last actor is gone.
    async fn revive(&mut self) -> Result<(), ExitReason> {
        self.load().await?;
        self.delete_if_unawaited().await?;
        if self.state.exists() && !self.idle.is_dormant {
            let dead = self.origin.dead_holder().map(|dead| dead.node.to_string());
            self.act(dead.map_or(Action::Revive, Action::ReviveAfter)).await?;
        }
        Ok(())
    }

    /// The loop: handles one message, then starts what the state calls for.
    async fn process(
        &mut self,
        myself: &ActorRef<ConversationMsg>,
        message: ConversationMsg,
    ) -> Result<(), ExitReason> {
        if !self.services.lease.is_me(&self.claim.holder) {
            // The node was declared dead and has rejoined under another incarnation: the claim is
            // void, whatever this actor had begun.
            return Err(StoreError::Fenced.into());
        }
        self.handle(myself, message).await?;
        // An actor that is ending would abort at once whatever it started.
        if !self.is_released && !is_ending(myself) {
            self.compile_turn_tools().await;
            self.reconcile(myself);
        }
        if self.services.lease.is_draining() {
            self.end_if_no_work_runs(myself);
        } else {
            self.update_idle_timer(myself);
        }
        Ok(())
    }

    async fn handle(
        &mut self,
        myself: &ActorRef<ConversationMsg>,
        message: ConversationMsg,
    ) -> Result<(), ExitReason> {
        match message {
            ConversationMsg::Deliver(delivery) => {
                self.mailbox_depth.fetch_sub(1, Ordering::Relaxed);
                // Dropped by an actor that is ending: the request returns to its sender, and goes
                // to the next actor.
                if !is_ending(myself) {
                    self.idle.count_message();
                    if let Some(delivery) = self.defer_until_listed(myself, delivery).await {
                        Box::pin(self.deliver(myself, delivery, Vec::new())).await?;
                    }
                }
            }
            ConversationMsg::ToolsListed(number, delivery) => {
                self.waiters.end_deferral(number);
                if !is_ending(myself) {
                    self.idle.count_message();
                    Box::pin(self.deliver(myself, delivery, Vec::new())).await?;
                }
            }
            ConversationMsg::HooksAnswered(number, delivery, hook_verdicts) => {
                self.waiters.end_deferral(number);
                if !is_ending(myself) {
                    self.idle.count_message();
                    Box::pin(self.deliver(myself, delivery, hook_verdicts)).await?;
                }
            }
            ConversationMsg::Report(report) => {
                self.idle.count_message();
                self.take_report(myself, report).await?;
            }
            ConversationMsg::Inspect(reply) => {
                // The caller may be gone, which does not concern the conversation.
                let _ = reply.send(Box::new(self.inspect()));
            }
            ConversationMsg::Kill => return Err(ExitReason::Killed),
            ConversationMsg::Retry(reply) => {
                self.act(Action::AttemptNow).await?;
                let _ = reply.send(self.retry(myself));
            }
            ConversationMsg::Release(to, force, reply) => {
                let _ = reply.send(self.release(myself, to, force).await?);
            }
            ConversationMsg::Rest(handled) if self.idle.has_handled(handled) => {
                self.recent_events = RecentEvents::default();
            }
            ConversationMsg::IdleTimeout(handled) => self.passivate(myself, handled),
            // The loop does all that these call for.
            ConversationMsg::Rest(_) | ConversationMsg::Drain | ConversationMsg::Resume => {}
        }
        Ok(())
    }

    /// Carries out an action of the system itself.
    ///
    /// It is decided at once, so that the future, which is made for each message, need not hold it.
    fn act(&mut self, action: Action) -> impl Future<Output = Result<(), ExitReason>> + Send {
        let decided = self.decide(action);
        async move {
            if let Some(transition) = self.unless_late(decided) {
                self.commit(transition, Vec::new()).await?;
            }
            Ok(())
        }
    }

    /// What came of an action of the system itself. An action that came too late changes nothing.
    fn unless_late(&self, decided: Result<Transition, Rejection>) -> Option<Transition> {
        decided
            .inspect_err(|rejection| {
                tracing::debug!(conversation = %self.id, %rejection, "late action ignored");
            })
            .ok()
    }

    fn decide(&self, action: Action) -> Result<Transition, Rejection> {
        self.decide_at(self.services.clock.now(), action)
    }

    fn decide_at(&self, at: Timestamp, action: Action) -> Result<Transition, Rejection> {
        decide_and_fold(&self.state, Command { at, action })
    }

    async fn take_report(
        &mut self,
        myself: &ActorRef<ConversationMsg>,
        report: Box<Report>,
    ) -> Result<(), ExitReason> {
        // An activity that was aborted while its report was on the way is out of date.
        if !self.activities.finish(&report.activity) {
            return Ok(());
        }
        match *report.ended? {
            Action::OriginalGone => self.undo_fork().await?,
            action => {
                if let Some(transition) = self.unless_late(self.decide(action)) {
                    self.commit_report(myself, transition).await?;
                }
            }
        }
        Ok(())
    }

    fn inspect(&self) -> Inspection {
        Inspection {
            state: self.state.clone(),
            claim: self.claim.clone(),
            streaming: self.activities.stream.message(),
            progress: self.activities.progress.latest(),
            running: self.activities.labels(),
            backoffs: self.activities.backoffs.all(),
            limit_waits: self.activities.limit_waits.all(),
        }
    }

    /// Arms the idle timer of an actor with nothing to do, and disarms that of a busy one.
    fn update_idle_timer(&mut self, myself: &ActorRef<ConversationMsg>) {
        if !self.activities.is_empty() || self.waiters.need_the_actor() {
            self.idle.disarm();
            return;
        }
        // Nothing is worth keeping of a conversation whose first request was refused, nor on a node
        // that drains.
        let is_worth_keeping =
            !self.idle.is_dormant && (self.state.exists() || !self.idle.has_handled_any());
        let after = if is_worth_keeping { self.services.passivate_after } else { Duration::ZERO };
        self.idle.arm(myself, after);
    }

    /// Ends the actor of a draining node, unless a model call or a tool runs. Other wanted
    /// activities are left to the next actor, on another node.
    fn end_if_no_work_runs(&self, myself: &ActorRef<ConversationMsg>) {
        if !self.activities.include_work() {
            self.end(myself);
        }
    }

    /// Ends the actor, unless it has handled a message since the timer was armed. Deliveries in its
    /// mailbox return to their senders, and go to the next actor.
    fn passivate(&mut self, myself: &ActorRef<ConversationMsg>, handled: u64) {
        self.idle.disarm();
        if self.idle.has_handled(handled) && self.activities.is_empty() {
            self.end(myself);
        }
    }

    fn end(&self, myself: &ActorRef<ConversationMsg>) {
        if myself.drain().is_err() {
            tracing::debug!(conversation = %self.id, "actor already ending");
        }
    }
}

fn is_ending(myself: &ActorRef<ConversationMsg>) -> bool {
    myself.get_status() >= ActorStatus::Draining
}

/// Gives a store operation its time, which begins now; after that its outcome is unknown.
fn with_store_timeout<T>(
    operation: impl Future<Output = Result<T, StoreError>>,
) -> impl Future<Output = Result<T, StoreError>> {
    with_timeout(STORE_TIMEOUT, operation)
}

/// Gives an operation this time, which begins now. It is not an `async` function: the future of one has
/// room for its argument twice.
fn with_timeout<T>(
    timeout: Duration,
    operation: impl Future<Output = Result<T, StoreError>>,
) -> impl Future<Output = Result<T, StoreError>> {
    tokio::time::timeout(timeout, operation).map(|done| {
        done.unwrap_or_else(|_| Err(StoreError::Unavailable("the store took too long".to_owned())))
    })
}

/// The `seq` of the first event that matches; the replies to requests name it.
fn seq_of(events: &[Event], matches: impl Fn(&Event) -> bool) -> Seq {
    events.iter().find(|event| matches(event)).map(|event| event.seq).unwrap_or_default()
}
