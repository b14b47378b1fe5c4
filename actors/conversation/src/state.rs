//! The state of a conversation: a small value, folded from its journal by `evolve`.

mod call;
mod external_run;
mod idle;
mod open_approval;
mod open_suspension;
mod owed_report;
mod pending_call;
mod scheduled;
mod steering;
mod stored_call;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::approval::{Approver, SubjectId, requesters};
use crate::call_ids::UsedIds;
use crate::context::Context;
use crate::elicitation::PendingInput;
use crate::event::{AnswerFormat, CallKind, Intent, OnInterrupt, Todo, WaitingRules};
use crate::fork::Fork;
use crate::identity::{Identity, Participants};
use crate::ids::{AgentName, CallId, ConversationId, DecisionId, Principal, Revision, TurnId};
use crate::numbers::{Attempt, Seq, Step};
use crate::parent::Parent;
use crate::permission::Verdict;
use crate::remembered_decision::RememberedDecision;
use crate::usage::{Budget, Usage};
use crate::{AnswerSchema, CallArgs, Timestamp};
pub use external_run::{ExternalRun, ExternalRunner, Lease, QueueEntry, QueueRun};
pub use open_approval::{EditedArgs, OpenApproval, PendingVote};
pub use open_suspension::OpenSuspension;
pub use owed_report::OwedReport;
pub use pending_call::PendingCall;
pub use scheduled::ScheduledMessages;
pub use steering::Steering;
use stored_call::StoredCall;

/// The folded journal. `State::default()` is a conversation that does not exist yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The `seq` of the last event; 0 before the first.
    pub seq: Seq,
    pub agent: Option<AgentName>,
    pub created_at: Option<Timestamp>,
    /// When the conversation was created, a turn ended or a call began to wait, whichever was last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Participants::is_empty")]
    pub participants: Participants,
    pub assigns: Map<String, Value>,
    pub metadata: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// When the conversation is deleted, at a time of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    pub tools: Vec<Value>,
    pub turn: Option<Turn>,
    /// Turns that have a message and have not started, oldest first.
    pub queue: VecDeque<QueuedTurn>,
    /// The number of turns that have started.
    #[serde(rename = "turns")]
    pub turns_started: u64,
    pub used_ids: UsedIds,
    /// Dispatches that have not ended.
    pub dispatches: BTreeMap<CallId, RunningDispatch>,
    #[serde(default)]
    pub todos: Vec<Todo>,
    /// What clients and tools noted, by key.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub key_values: Map<String, Value>,
    /// Whether the conversation chose to plan, or not to; `None`: its agent's phase decides.
    #[serde(rename = "planning", default)]
    pub planning_override: Option<bool>,
    /// The storages that the workspaces must be on, by workspace root. The empty root is the node's
    /// default.
    #[serde(default)]
    pub storages: BTreeMap<String, String>,
    /// Usage of all model calls, including those of the children.
    #[serde(default)]
    pub usage: Usage,
    /// The prefix that is still being copied. Until it is complete, nothing else happens.
    #[serde(default)]
    pub forking: Option<Fork>,
    /// What the model reads.
    #[serde(default)]
    pub context: Context,
    #[serde(default)]
    pub parent: Option<Parent>,
    /// Whether the parent needs nothing more from this conversation.
    #[serde(default)]
    pub abandoned: bool,
    /// The report that the parent does not have yet.
    #[serde(rename = "due", default)]
    pub owed_report: Option<OwedReport>,
    /// Approvers' decisions that hold for later calls, including those that are not published to
    /// the agent yet.
    #[serde(default)]
    pub decisions: BTreeMap<DecisionId, RememberedDecision>,
    /// The decisions that the agent does not have yet, with the agent.
    #[serde(rename = "unkept", default)]
    pub unpublished: BTreeMap<DecisionId, AgentName>,
    /// Children that must be stopped because their call has ended, with that call.
    #[serde(default)]
    pub orphans: BTreeMap<ConversationId, CallId>,
    #[serde(default, skip_serializing_if = "ScheduledMessages::is_empty")]
    pub scheduled: ScheduledMessages,
    /// Whether events of unknown types were skipped. Such a state must not be cached: a newer
    /// program that knows these types has to fold the journal itself.
    #[serde(skip)]
    pub has_unknown_events: bool,
}

/// A turn whose message is journalled, and which waits for the turn before it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueuedTurn {
    pub id: TurnId,
    /// The event that has the message; absent in what nodes of an earlier version send.
    #[serde(rename = "seq", default, skip_serializing_if = "Option::is_none")]
    pub message_seq: Option<Seq>,
    pub principal: Principal,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Arc<Identity>>,
    pub assigns: Map<String, Value>,
    #[serde(rename = "shape")]
    pub answer_format: AnswerFormat,
    /// Tools that the client declared for this turn, as definitions.
    #[serde(default, skip_serializing_if = "<[Value]>::is_empty")]
    pub tools: Arc<[Value]>,
}

/// The open turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    pub id: TurnId,
    /// 1 for the conversation's first turn.
    pub ordinal: u64,
    pub agent: AgentName,
    pub revision: Revision,
    pub max_steps: u32,
    #[serde(default)]
    pub budget: Budget,
    /// Usage of the turn so far, including that of its children.
    #[serde(default)]
    pub usage: Usage,
    /// A context with more tokens than this is summarized after the turn.
    #[serde(default)]
    pub summarize_over: Option<u64>,
    /// The last step whose context the provider found too long; 0 if there is none.
    #[serde(rename = "too_long", default)]
    pub overflowed_step: Step,
    pub started_at: Timestamp,
    pub principal: Principal,
    /// Who sent the message; children begin with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Arc<Identity>>,
    pub assigns: Map<String, Value>,
    #[serde(rename = "shape")]
    pub answer_format: AnswerFormat,
    /// Tools that the client declared for this turn, as definitions.
    #[serde(default, skip_serializing_if = "<[Value]>::is_empty")]
    pub tools: Arc<[Value]>,
    /// The number of model calls that are done.
    pub step: Step,
    /// The calls of the latest step, in the model's order.
    pub calls: Vec<Call>,
    /// Whether the model was asked for the one repair of a structured answer.
    #[serde(rename = "repaired")]
    pub repair_requested: bool,
    /// Whether a hook has refused a message.
    #[serde(rename = "refused", default)]
    pub message_refused: bool,
    /// The last step whose durable hooks have run.
    #[serde(rename = "prepared", default)]
    pub hooks_done_for: Step,
    /// The number of calls that the model has made.
    #[serde(default)]
    pub calls_made: u32,
    /// The ids of this turn for which `used_ids` had no room.
    #[serde(rename = "late_ids")]
    pub overflow_ids: Vec<CallId>,
    #[serde(default, skip_serializing_if = "Steering::is_none")]
    pub steering: Steering,
}

/// A call of the latest step.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "StoredCall<'static>")]
pub struct Call {
    pub id: CallId,
    pub tool: String,
    pub args: CallArgs,
    pub kind: CallKind,
    pub intent: Intent,
    pub message: String,
    pub timeout_ms: u64,
    /// The principal that the call runs as: the turn's, or the approver.
    pub principal: Principal,
    /// The number of suspensions that the call has had.
    pub suspensions: u32,
    /// The gate's verdict on the current arguments.
    pub gate: Option<Verdict>,
    /// Whether a person approved the call.
    pub approved: bool,
    /// Those whose votes approved it.
    pub approvals: Vec<Approver>,
    /// The input that the running tool asked for.
    pub pending_input: Option<PendingInput>,
    /// The JSON Schema of the answer of a person or a page, once the call is approved.
    pub answer_schema: Option<AnswerSchema>,
    /// What happens to its suspensions while nobody answers.
    pub waiting_rules: Option<Arc<WaitingRules>>,
    /// The number of attempts that failed and were followed by another one.
    pub failed_attempts: u32,
    pub phase: CallPhase,
}

/// The phase of a call's life. The diagram is in `architecture/overview.md`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallPhase {
    /// Made by the model, and not handed to its executor yet.
    Requested,
    /// Waiting for somebody outside.
    Suspended(OpenSuspension),
    /// Approved or answered, and not handed to its executor yet.
    Approved,
    /// Handed to its executor.
    Running { attempt: Attempt, since: Timestamp },
    /// An attempt failed; the next one begins at `retry_at`.
    #[serde(skip)]
    AwaitingRetry { attempt: Attempt, since: Timestamp, retry_at: Timestamp, error: String },
    /// Taken up by its child conversation.
    Delegated { attempt: Attempt, since: Timestamp, expires_at: Timestamp },
    /// Handed to a program outside: to a worker of a queue, or to a tool that calls back.
    External(Box<ExternalRun>),
    /// The call has its one result.
    Done,
}

/// A dispatch, a user's own call, that has not ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunningDispatch {
    pub tool: String,
    pub input: CallArgs,
    pub principal: Principal,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Arc<Identity>>,
    pub revision: Revision,
    pub attempt: Attempt,
    pub on_interrupt: OnInterrupt,
    pub requests: BTreeMap<String, String>,
    #[serde(rename = "gate", default)]
    pub verdict: Option<Verdict>,
    #[serde(default)]
    pub child: Option<ConversationId>,
    /// The child's deadline; `None` until the child has taken up the call.
    #[serde(rename = "delegated", default)]
    pub delegated_until: Option<Timestamp>,
    /// When the next attempt begins, if the last one failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
    /// The number of attempts that failed and were followed by another one.
    #[serde(default)]
    pub failed_attempts: u32,
}

impl RunningDispatch {
    /// The moment at which something has to happen, if no attempt runs.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.delegated_until.or(self.retry_at)
    }
}

/// What a conversation is doing, as clients see it. `AwaitingInput` wins over `ExecutingTools`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = ConversationState))]
#[serde(rename_all = "snake_case")]
pub enum ConversationStatus {
    Idle,
    Preparing,
    Streaming,
    ExecutingTools,
    AwaitingInput,
}

impl ConversationStatus {
    /// The status, given whether the model streams output now, which only the live conversation
    /// knows.
    pub fn with_streaming(self, is_streaming: bool) -> Self {
        match self {
            Self::Preparing if is_streaming => Self::Streaming,
            other => other,
        }
    }
}

impl State {
    /// Whether the conversation has been created.
    pub fn exists(&self) -> bool {
        self.seq > Seq::ZERO
    }

    /// What the conversation is doing, as far as the journal knows;
    /// see [`ConversationStatus::with_streaming`].
    pub fn status(&self) -> ConversationStatus {
        if self.forking.is_some() {
            return ConversationStatus::Preparing;
        }
        let Some(turn) = &self.turn else {
            return if self.queue.is_empty() {
                ConversationStatus::Idle
            } else {
                ConversationStatus::Preparing
            };
        };
        if turn.calls.iter().any(|call| call.open_suspension().is_some()) {
            ConversationStatus::AwaitingInput
        } else if turn.is_settled() {
            ConversationStatus::Preparing
        } else {
            ConversationStatus::ExecutingTools
        }
    }

    /// The events that have the messages of the queued turns, oldest first.
    pub fn queued_messages(&self) -> impl Iterator<Item = Seq> {
        self.queue.iter().filter_map(|turn| turn.message_seq)
    }

    /// Whether nothing goes on in the open turn until somebody outside acts: each call of its step is
    /// suspended, answered by a child, or done, and not all are done.
    pub fn rests(&self) -> bool {
        let waits = |call: &Call| {
            matches!(call.phase, CallPhase::Suspended(_) | CallPhase::Delegated { .. })
        };
        let calls = || self.turn.iter().flat_map(|turn| &turn.calls);
        self.forking.is_none()
            && calls().any(waits)
            && calls().all(|call| waits(call) || call.phase == CallPhase::Done)
    }

    /// The number of calls of the open turn that have no result yet.
    pub fn open_calls(&self) -> usize {
        let calls = self.turn.iter().flat_map(|turn| &turn.calls);
        calls.filter(|call| call.phase != CallPhase::Done).count()
    }

    /// The running calls that must not run twice: they end if their node stops.
    pub fn uninterruptible(&self) -> Vec<CallId> {
        let runs_once =
            |call: &&Call| matches!(call.phase, CallPhase::Running { .. }) && call.kind.runs_once();
        let calls = self.turn.iter().flat_map(|turn| &turn.calls).filter(runs_once);
        let runs = self
            .dispatches
            .iter()
            .filter(|(_, run)| run.on_interrupt == OnInterrupt::Fail && run.child.is_none())
            .filter(|(_, run)| run.retry_at.is_none());
        calls.map(|call| &call.id).chain(runs.map(|(id, _)| id)).cloned().collect()
    }

    /// The open suspensions, in call order.
    pub fn pending_calls(&self) -> Vec<PendingCall> {
        if self.forking.is_some() {
            return Vec::new();
        }
        let root = self.parent.as_ref().map(|parent| &parent.root_conversation_id);
        let calls = self.turn.iter().flat_map(|turn| &turn.calls);
        let with_root = |pending: PendingCall| PendingCall {
            root_conversation_id: root.cloned(),
            requesters: pending.policy.as_ref().map(|_| self.requesters()).unwrap_or_default(),
            ..pending
        };
        calls.filter_map(Call::pending_call).map(with_root).collect()
    }

    /// Whoever asked for what the open turn does: whoever sent its message or steered it, and those who
    /// led to this conversation if it is a child.
    pub fn requesters(&self) -> BTreeSet<SubjectId> {
        self.requesters_with(self.turn.as_ref().and_then(|turn| turn.identity.as_deref()))
    }

    /// The requesters of what this identity asks of the conversation.
    pub fn requesters_with(&self, identity: Option<&Identity>) -> BTreeSet<SubjectId> {
        let inherited = self.parent.iter().flat_map(|parent| parent.requesters.iter().cloned());
        let steering = self.turn.iter().flat_map(|turn| turn.steering.by.iter().cloned());
        identity.into_iter().flat_map(requesters).chain(inherited).chain(steering).collect()
    }

    /// Whether the conversation was created by this parent, for the same call.
    pub fn is_child_for(&self, parent: Option<&Parent>) -> bool {
        let (Some(own), Some(parent)) = (&self.parent, parent) else { return false };
        own.conversation_id == parent.conversation_id && own.call_id == parent.call_id
    }

    /// The children that open calls and dispatches wait for, each with its call.
    pub fn awaited_children(&self) -> impl Iterator<Item = (&CallId, &ConversationId)> {
        let calls = self.turn.iter().flat_map(|turn| &turn.calls);
        let calls = calls.filter_map(|call| Some((&call.id, call.kind.child()?)));
        calls.chain(self.dispatches.iter().filter_map(|(id, run)| Some((id, run.child.as_ref()?))))
    }

    /// Whether this is a child whose first model call is still to come.
    pub fn is_newborn_child(&self) -> bool {
        let is_new = |turn: &Turn| turn.ordinal == 1 && turn.step == Step::ZERO;
        self.parent.is_some() && self.turn.as_ref().is_some_and(is_new)
    }

    /// Whether the next model call is this step of this turn.
    pub fn awaits_step(&self, turn: &TurnId, step: Step) -> bool {
        let awaits =
            |open: &Turn| open.id == *turn && open.is_settled() && open.next_step() == step;
        self.turn.as_ref().is_some_and(awaits)
    }

    /// A call of the latest step, open or done.
    pub fn call(&self, id: &CallId) -> Option<&Call> {
        self.turn.as_ref()?.calls.iter().find(|call| call.id == *id)
    }
}

impl Turn {
    /// Whether every call of the latest step has its result.
    pub fn is_settled(&self) -> bool {
        self.calls.iter().all(|call| call.phase == CallPhase::Done)
    }

    /// The number of the next model call.
    pub fn next_step(&self) -> Step {
        self.step.next()
    }
}
