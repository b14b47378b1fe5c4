//! What is journalled: the append-only truth of one conversation.

mod child;
mod decided;
mod hooked;
mod reduced;
mod stored;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Timestamp;
use crate::child::Parent;
use crate::cost::Budget;
use crate::fork::Fork;
use crate::ids::{AgentName, CallId, ConversationId, Principal, Revision, TurnId};
use crate::input;
use crate::message::{Message, MessageStatus, Outcome, ProviderMessage, StopReason, Ui, Usage};
use crate::permission::{PermissionPhase, Verdict};
use crate::read;
pub use child::{ChildEnded, ChildReleased, ChildStarted, ParentNotified};
pub use decided::{DecisionPublished, DecisionRemembered, DecisionRevoked};
pub use hooked::{AddedContext, ContextAdded, MessageRefused};
pub use reduced::{ContextReduced, ReductionReason, Summarized, SummaryFailed};
pub use stored::Unknown;

/// One entry of a journal; `seq` counts from 1 without gaps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "stored::Stored")]
pub struct Event {
    pub seq: u64,
    pub at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    #[serde(flatten, serialize_with = "stored::write")]
    pub data: EventData,
}

/// The kinds of events; the contract names the ones that readers may rely on.
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
    Dispatch(DispatchFinished),
    PhaseChanged(PhaseChanged),
    TodosChanged(TodosChanged),
    WorkspaceOpened(WorkspaceOpened),
    ChildStarted(ChildStarted),
    ChildEnded(ChildEnded),
    ChildReleased(ChildReleased),
    Told(ParentNotified),
    Abandoned {},
    DecisionRemembered(DecisionRemembered),
    DecisionKept(DecisionPublished),
    DecisionRevoked(DecisionRevoked),
    /// Of a type that only newer programs know.
    #[serde(skip)]
    Unknown(Unknown),
}

/// The conversation exists.
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
    /// Of a child: whose it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// Of a fork: whose prefix follows, up to the event `forked`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fork: Option<Fork>,
}

/// A user's message; its turn is the event's, and starts with `turn_started`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UserMsg {
    pub message: Message,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    pub principal: Principal,
    /// This message's own; they win over the conversation's and the agent's.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub assigns: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Shape::is_agent")]
    pub schema: AnswerFormat,
}

/// What shape the turn's answer must have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum AnswerFormat {
    /// As the agent's `response_format` says.
    #[default]
    Agent,
    /// Plain, whatever the agent says.
    Plain,
    /// This JSON Schema.
    Schema(Value),
}

impl AnswerFormat {
    fn is_agent(&self) -> bool {
        *self == AnswerFormat::Agent
    }
}

/// A turn runs, to its end on this revision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TurnStarted {
    pub agent: AgentName,
    pub revision: Revision,
    pub max_steps: u32,
    #[serde(default, skip_serializing_if = "Budget::is_open")]
    pub budget: Budget,
    /// A context of more tokens is summarized when the turn has ended; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summarize_over: Option<u64>,
}

/// The model spoke; that ends a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AssistantMsg {
    pub message: Message,
    pub status: MessageStatus,
    pub step: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Why the model stopped; absent where its provider did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopReason>,
    /// The message as its provider wrote it, where that says more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verbatim: Option<ProviderMessage>,
    /// Tokens of the context, this message included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_tokens: Option<u64>,
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

/// What a tool does, for whoever shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Intent {
    #[default]
    Compute,
    Action,
    Render,
}

/// What happens to a run whose node died.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnInterrupt {
    /// It runs again under the same key, as a higher attempt.
    #[default]
    Redispatch,
    /// It never runs twice; the call ends as interrupted.
    Fail,
}

/// A call was planned. All that its later phases need is here, since definitions change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ToolCall {
    pub call_id: CallId,
    pub tool: String,
    pub args: Value,
    pub executor: Executor,
    #[serde(default)]
    pub intent: Intent,
    /// Whether it was handed to its executor at once, as attempt 1.
    pub started: bool,
    /// What a person or a page is shown while it waits for them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// How long each of its suspensions may wait.
    #[serde(default)]
    pub timeout_ms: u64,
    /// How long a client call waits while no page is connected; absent: as long as it may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
    #[serde(default)]
    pub on_interrupt: OnInterrupt,
    /// The result of a client call that is answered at once when it is approved.
    #[serde(default, deserialize_with = "read::present", skip_serializing_if = "Option::is_none")]
    pub answer: Option<Value>,
    /// What the gate decided; absent for a call that never came so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<Verdict>,
    /// The child conversation that is to answer it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<ConversationId>,
    /// Calls of one step in the same lane run one after another, in call order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<String>,
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
}

/// A call waits outside, until it is resolved, expires or is cancelled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Suspension {
    pub call_id: CallId,
    pub kind: SuspensionKind,
    /// 1 for a call's first suspension, 2 for its second.
    pub suspension: u32,
    pub expires_at: Timestamp,
    pub tool: String,
    pub executor: Executor,
    #[serde(default)]
    pub intent: Intent,
    pub args: Value,
    pub message: String,
    /// What a tool asks for that had begun to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<Value>,
}

/// A suspension was answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Resolution {
    pub call_id: CallId,
    pub kind: SuspensionKind,
    pub suspension: u32,
    pub by: Principal,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The arguments as the approver edited them.
    #[serde(default, deserialize_with = "read::present", skip_serializing_if = "Option::is_none")]
    pub args: Option<Value>,
    /// What the gate decided about the edited arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<Verdict>,
    /// What a tool that asked goes on with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<input::InputAnswer>,
}

/// A running tool asked for something; the suspension that follows waits for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct InputRequired {
    pub call_id: CallId,
    pub attempt: u32,
    #[serde(flatten)]
    pub asks: input::InputRequest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<EffectiveArgs>,
}

/// With what a call ran, if middleware changed its arguments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EffectiveArgs {
    pub args: Value,
    pub gate: Verdict,
}

/// A call was handed to its executor after an approval or an answer, or again after its node died.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ToolStarted {
    pub call_id: CallId,
    pub tool: String,
    pub executor: Executor,
    #[serde(default)]
    pub intent: Intent,
    pub args: Value,
    pub attempt: u32,
}

/// A call is done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ToolResult {
    pub call_id: CallId,
    #[serde(flatten)]
    pub outcome: Outcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ui: Option<Ui>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<EffectiveArgs>,
}

/// A structured answer broke its schema; the model is asked once more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RepairRequested {
    pub reason: String,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum TurnOutcome {
    Completed,
    Cancelled,
    Halted,
    Failed,
}

/// A turn is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TurnEnded {
    pub outcome: TurnOutcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A user's own call starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DispatchStarted {
    pub call_id: CallId,
    pub tool: String,
    pub input: Value,
    pub principal: Principal,
    pub revision: Revision,
    pub attempt: u32,
    #[serde(default)]
    pub on_interrupt: OnInterrupt,
    /// The request that asked for it, so that a repeat joins it: key → fingerprint of its body.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<Verdict>,
    /// The child conversation that is to answer it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<ConversationId>,
}

/// A user's own call, done. The model never sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DispatchFinished {
    pub call_id: CallId,
    pub tool: String,
    pub input: Value,
    pub principal: Principal,
    pub result: Outcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ui: Option<Ui>,
    /// What the gate decided, of a call that it refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<Verdict>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<EffectiveArgs>,
}

/// A call of `plan_mode` changed what may be done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PhaseChanged {
    pub call_id: CallId,
    /// What holds now.
    pub phase: PermissionPhase,
    /// Whether it is `plan` by the conversation's own choice, whatever its agent says.
    pub planning: bool,
}

/// How far one thing on the list has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    Pending,
    InProgress,
    Completed,
}

/// One thing that is to be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Todo {
    pub content: String,
    pub status: TodoStatus,
}

/// A call of `todo_write` replaced the list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TodosChanged {
    pub call_id: CallId,
    pub todos: Vec<Todo>,
}

/// The workspace was used for the first time; from here on it must be on this storage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkspaceOpened {
    /// The directory that the agent names; empty for the program's own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub root: String,
    pub storage: String,
}
