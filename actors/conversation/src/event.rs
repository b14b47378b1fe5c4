//! Events: the entries of a conversation's journal. Their JSON is in `reference/journal.md`.

mod call_kind;
mod child;
mod context;
mod decision;
mod decode;
mod dispatch;
mod doubt;
mod external;
mod hook;
mod lost_member;
mod operated;
mod scheduled;
mod state_changed;
mod steering;
mod stored_tool_call;
mod todo;
mod tool_attempt_failed;
mod updated;
mod user_msg;
mod visible;
mod voted;
mod waiting;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::approval::{ApprovalPolicy, Approver};
use crate::elicitation;
use crate::fork::Fork;
use crate::identity::Identity;
use crate::ids::{AgentName, CallId, Principal, Revision, TurnId};
use crate::json;
use crate::message::{
    FallbackModel, Message, MessageStatus, Outcome, ProviderMessage, StopReason, Ui,
};
use crate::numbers::{Attempt, Seq, Step};
use crate::parent::Parent;
use crate::permission::{PermissionPhase, Verdict};
use crate::usage::{Budget, Usage};
use crate::{AnswerSchema, CallArgs, Timestamp};
pub use call_kind::CallKind;
pub(crate) use call_kind::StoredKind;
pub use child::{ChildEnded, ChildReleased, ChildStarted, ParentNotified, PlannedChildren};
pub use context::{ContextReduced, ReductionReason, Summarized, SummaryFailed};
pub use decision::{DecisionPublished, DecisionRemembered, DecisionRevoked};
pub use decode::Unknown;
pub use dispatch::{DispatchFinished, DispatchStarted};
pub use doubt::{Doubt, DoubtReason, DoubtTerms};
pub use external::{CallbackAwaited, ToolLeased, ToolQueued};
pub use hook::{AddedContext, ContextAdded, MessageRefused};
pub use lost_member::lost_member;
pub use operated::Operated;
pub use scheduled::{IfBusy, MessageScheduled, ScheduleEnd, ScheduleEnded};
pub use state_changed::StateChanged;
pub use steering::{RewindPoint, Rewound, Steered, TurnWithdrawn};
use stored_tool_call::StoredToolCall;
pub use todo::{Todo, TodoStatus, TodosChanged};
pub use tool_attempt_failed::ToolAttemptFailed;
pub use updated::Updated;
pub use user_msg::{AnswerFormat, UserMsg};
pub use visible::Visible;
pub use voted::Voted;
pub use waiting::{
    Escalation, OnExpiry, SuspensionEscalated, SuspensionExpiring, SuspensionExtended, WaitingRules,
};

/// One entry of a journal; `seq` counts from 1 without gaps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "decode::StoredEvent")]
pub struct Event {
    pub seq: Seq,
    pub at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    #[serde(flatten, serialize_with = "decode::write")]
    pub data: EventData,
}

/// What happened. Types and fields are stored for ever, so a spelling never changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = EventData))]
#[serde(tag = "type", content = "data", rename_all = "snake_case")]
pub enum EventData {
    Created(Created),
    UserMsg(UserMsg),
    TurnStarted(TurnStarted),
    AssistantMsg(AssistantMsg),
    ToolCall(ToolCall),
    Suspension(Suspension),
    Voted(Voted),
    Resolution(Resolution),
    ToolStarted(ToolStarted),
    InputRequired(InputRequired),
    ToolResult(ToolResult),
    RepairRequested(RepairRequested),
    ContextAdded(ContextAdded),
    MessageRefused(MessageRefused),
    Forked(Fork),
    ContextReduced(ContextReduced),
    Summarized(Summarized),
    SummaryFailed(SummaryFailed),
    TurnEnded(TurnEnded),
    DispatchStarted(DispatchStarted),
    #[serde(rename = "dispatch")]
    DispatchFinished(DispatchFinished),
    PhaseChanged(PhaseChanged),
    TodosChanged(TodosChanged),
    WorkspaceOpened(WorkspaceOpened),
    ChildStarted(ChildStarted),
    ChildEnded(ChildEnded),
    ChildReleased(ChildReleased),
    #[serde(rename = "told")]
    ParentNotified(ParentNotified),
    Abandoned {},
    DecisionRemembered(DecisionRemembered),
    #[serde(rename = "decision_kept")]
    DecisionPublished(DecisionPublished),
    DecisionRevoked(DecisionRevoked),
    Updated(Updated),
    Operated(Operated),
    ToolQueued(ToolQueued),
    ToolLeased(ToolLeased),
    CallbackAwaited(CallbackAwaited),
    MessageScheduled(MessageScheduled),
    ScheduleEnded(ScheduleEnded),
    SuspensionExpiring(SuspensionExpiring),
    SuspensionExtended(SuspensionExtended),
    SuspensionEscalated(SuspensionEscalated),
    ToolAttemptFailed(ToolAttemptFailed),
    StateChanged(StateChanged),
    TurnWithdrawn(TurnWithdrawn),
    Steered(Steered),
    Rewound(Rewound),
    /// An event of a type that only newer programs know.
    #[serde(skip)]
    Unknown(Unknown),
}

/// The conversation was created.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Created {
    pub agent: AgentName,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub assigns: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// Tools that the client declared for this conversation, as definitions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Value>,
    /// Children only: the parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// Forks only: the original, whose prefix follows, up to the event `forked`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fork: Option<Fork>,
    /// The subject whose conversation it is; absent if nobody was authenticated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The subjects who may take part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// When the conversation is deleted; absent if that is at no time of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// A turn started; it runs on this revision to its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TurnStarted {
    pub agent: AgentName,
    pub revision: Revision,
    pub max_steps: u32,
    #[serde(default, skip_serializing_if = "Budget::is_unlimited")]
    pub budget: Budget,
    /// A context with more tokens than this is summarized after the turn; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summarize_over: Option<u64>,
}

/// The model's message, which ends a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AssistantMsg {
    pub message: Message,
    pub status: MessageStatus,
    #[cfg_attr(feature = "openapi", schema(value_type = u32))]
    pub step: Step,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Why the model stopped; absent if the provider did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopReason>,
    /// The message in its provider's own form, if that holds more than `message`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verbatim: Option<ProviderMessage>,
    /// The model that wrote it, if that is one of the definition's `model.fallback`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<FallbackModel>,
    /// Tokens of the context, including this message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
    /// The last event that the model had read, if messages that steer the turn came after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub read_upto: Option<Seq>,
}

/// Who produces a call's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Executor {
    Server,
    Human,
    Client,
    Provider,
}

/// What a tool is for, as a hint to user interfaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Intent {
    #[default]
    Compute,
    Action,
    Render,
}

/// What happens to an attempt whose node died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnInterrupt {
    /// The call runs again under the same idempotency key, with a higher attempt.
    #[default]
    Redispatch,
    /// The call never runs twice; it ends as interrupted.
    Fail,
    /// A person says what becomes of the call. Stored calls spell it `fail`, with `in_doubt` beside
    /// it: older programs then never run it twice.
    Ask,
}

/// A call was planned. Its later phases need nothing else, because definitions may change
/// meanwhile.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "StoredToolCall<'static>")]
pub struct ToolCall {
    pub call_id: CallId,
    pub tool: String,
    pub args: CallArgs,
    pub kind: CallKind,
    pub intent: Intent,
    /// Whether the call was handed to its executor at once, as attempt 1.
    pub started: bool,
    /// Shown to the person or the page that the call waits for.
    pub message: String,
    /// How long each suspension of the call may wait.
    pub timeout_ms: u64,
    /// The gate's verdict; absent if the call did not reach the gate.
    pub gate: Option<Verdict>,
    /// Gated calls of a person or a page only: the JSON Schema of the answer, for the suspension
    /// that follows the approval.
    pub answer_schema: Option<AnswerSchema>,
    /// What happens to its suspensions while nobody answers.
    pub waiting_rules: Option<Arc<WaitingRules>>,
}

/// What a suspension waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = SuspensionKind))]
#[serde(rename_all = "snake_case")]
pub enum SuspensionKind {
    Approval,
    Elicitation,
    ClientExec,
    /// Nobody knows whether the call ran.
    InDoubt,
}

/// A call waits for somebody outside, until it is resolved, expires or is cancelled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Suspension {
    pub call_id: CallId,
    pub kind: SuspensionKind,
    /// The number of the suspension: 1 for the call's first one.
    pub suspension: u32,
    pub expires_at: Timestamp,
    pub tool: String,
    pub executor: Executor,
    #[serde(default)]
    pub intent: Intent,
    #[cfg_attr(feature = "openapi", schema(value_type = Value))]
    pub args: CallArgs,
    pub message: String,
    /// The input that the tool asks for, if the tool is already running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<Value>,
    /// Approvals only: who may approve, and how many must; absent if the first answer decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<ApprovalPolicy>,
    /// The JSON Schema of an answer: of the body of an approval, else of its `result`. Absent if
    /// any answer fits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub answer_schema: Option<AnswerSchema>,
    /// Calls in doubt only: what is known of the attempt that was cut off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<Doubt>,
}

/// Somebody answered a suspension. An approval that others have voted for is decided by this answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Resolution {
    pub call_id: CallId,
    pub kind: SuspensionKind,
    pub suspension: u32,
    pub by: Principal,
    /// Who answered; absent if nobody was authenticated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Identity>))]
    pub identity: Option<Arc<Identity>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The arguments, if the approver edited them.
    #[serde(
        default,
        deserialize_with = "json::keep_null",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Value>))]
    pub args: Option<CallArgs>,
    /// The gate's verdict on the edited arguments.
    #[serde(rename = "gate", default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// The answer to a running tool that asked for input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<elicitation::InputAnswer>,
    /// Those whose votes approved the call, the last of them by this answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<Approver>,
    /// Whether a call in doubt runs again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retry: bool,
}

/// A running tool asked for input. The suspension that follows waits for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InputRequired {
    pub call_id: CallId,
    #[cfg_attr(feature = "openapi", schema(value_type = u32))]
    pub attempt: Attempt,
    #[serde(flatten)]
    pub request: elicitation::InputRequest,
    #[serde(rename = "ran", default, skip_serializing_if = "Option::is_none")]
    pub effective_args: Option<EffectiveArgs>,
}

/// The arguments that a call ran with, if middleware changed them, and the gate's verdict on them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Ran))]
pub struct EffectiveArgs {
    #[cfg_attr(feature = "openapi", schema(value_type = Value))]
    pub args: CallArgs,
    #[serde(rename = "gate")]
    pub verdict: Verdict,
}

/// A call was handed to its executor: after an approval or an answer, or again after its node died.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ToolStarted {
    pub call_id: CallId,
    pub tool: String,
    pub executor: Executor,
    #[serde(default)]
    pub intent: Intent,
    #[cfg_attr(feature = "openapi", schema(value_type = Value))]
    pub args: CallArgs,
    #[cfg_attr(feature = "openapi", schema(value_type = u32))]
    pub attempt: Attempt,
}

/// The one result of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ToolResult {
    pub call_id: CallId,
    #[serde(flatten)]
    pub outcome: Outcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ui: Option<Ui>,
    #[serde(rename = "ran", default, skip_serializing_if = "Option::is_none")]
    pub effective_args: Option<EffectiveArgs>,
}

/// A structured answer violated its schema. The model is asked once more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RepairRequested {
    pub reason: String,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Ending))]
#[serde(rename_all = "snake_case")]
pub enum TurnOutcome {
    Completed,
    Cancelled,
    Halted,
    Failed,
}

/// A turn ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TurnEnded {
    pub outcome: TurnOutcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Usage of the turn's model calls, including those of its children; absent if an older version
    /// ended the turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// A call of `plan_mode` changed the permission phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PhaseChanged {
    pub call_id: CallId,
    /// The phase from now on.
    pub phase: PermissionPhase,
    /// Whether the conversation itself chose `plan`, whatever its agent's phase is.
    pub planning: bool,
}

/// A workspace was used for the first time. From then on it must be on this storage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkspaceOpened {
    /// The workspace root that the agent's definition names; empty for the node's default.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub root: String,
    pub storage: String,
}
