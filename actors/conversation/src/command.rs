//! What is asked of a conversation. Time, ids and everything looked up elsewhere comes in here.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Timestamp;
use crate::child::Parent;
use crate::cost::Budget;
use crate::event::{
    AddedContext, AnswerFormat, ContextReduced, EffectiveArgs, Event, Executor, Intent,
    OnInterrupt, Summarized, Todo,
};
use crate::fork::Fork;
use crate::ids::{
    AgentName, CallId, ConversationId, DecisionId, MessageId, Principal, Revision, TurnId,
};
use crate::input::InputRequest;
use crate::message::{Outcome, ProviderMessage, StopReason, Ui, Usage};
use crate::permission::{PermissionPhase, Verdict};
use crate::remembered::{Match, Scope};

/// An action and the moment at which it is judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    pub at: Timestamp,
    pub action: Action,
}

/// The stories; each has a file in `decide`.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "one exists at a time, and is taken apart at once")]
pub enum Action {
    Create(Create),
    /// The next events of the conversation whose prefix this one begins with.
    Copied(CopiedEvents),
    Send(Send),
    Start(Start),
    ModelReplied(ModelReplied),
    ModelFailed(ModelFailed),
    ToolReturned(ToolReturned),
    Resolve(Resolve),
    PageMissing(ClientMissing),
    FailCall(FailCall),
    Wake,
    Cancel(Cancel),
    Revive,
    Dispatch(Dispatch),
    /// A parent asks: creates the conversation and sends its one message, or finds that done.
    Spawn(Send),
    ChildStarted(ChildStarted),
    ChildEnded(ChildEnded),
    /// A child that was to be stopped is.
    ChildReleased {
        child: ConversationId,
        /// What it cost, and its own children.
        usage: Usage,
    },
    /// The parent was told of a turn.
    Told(TurnId),
    /// The workspace below this root is about to be used for the first time, on this storage.
    WorkspaceOpened {
        root: String,
        storage: String,
    },
    /// The parent wants nothing of this conversation any more, which may not even exist yet.
    Abandon(Create),
    /// Durable hooks added to the context of the step that is next.
    ContextAdded {
        turn: TurnId,
        step: u32,
        added: Vec<AddedContext>,
    },
    /// A hook ends the turn before its next step.
    Halt {
        turn: TurnId,
        step: u32,
        reason: String,
    },
    /// Less is to be shown to the model from this step on.
    ContextReduced {
        turn: TurnId,
        reduced: ContextReduced,
    },
    /// A summary was written, after the one that covered up to `after`.
    Summarized {
        after: u64,
        summarized: Summarized,
    },
    /// It was not.
    SummaryFailed {
        reason: String,
    },
    /// The agent has the decision.
    DecisionKept(DecisionId),
    /// A remembered decision of this conversation is to hold no more.
    RevokeDecision(DecisionId),
}

/// Brings the conversation into being.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Create {
    pub agent: AgentName,
    pub assigns: Map<String, Value>,
    pub metadata: Map<String, Value>,
    pub tools: Vec<Value>,
    #[serde(default)]
    pub parent: Option<Box<Parent>>,
    /// Begins with the prefix of another conversation.
    #[serde(default)]
    pub fork: Option<Fork>,
}

/// What was read of the other conversation's journal.
#[derive(Clone, Debug, PartialEq)]
pub struct CopiedEvents {
    /// The event before the first of them.
    pub after: u64,
    pub events: Vec<Event>,
    /// Whether that was all.
    pub whole: bool,
}

/// The agent's facts that a turn starts with.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnSettings {
    pub agent: AgentName,
    pub revision: Revision,
    pub max_steps: u32,
    pub budget: Budget,
    pub summarize_over: Option<u64>,
}

/// What to do with a message while a turn runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum IfBusy {
    #[default]
    Reject,
    Queue,
    Interrupt,
}

/// A user's message.
#[derive(Clone, Debug, PartialEq)]
pub struct Send {
    /// Creates the conversation first, if it does not exist.
    pub create: Option<Create>,
    pub basis: TurnSettings,
    pub turn_id: TurnId,
    pub id: MessageId,
    pub content: Vec<Value>,
    pub message_id: Option<String>,
    pub principal: Principal,
    pub assigns: Map<String, Value>,
    pub shape: AnswerFormat,
    pub if_busy: IfBusy,
    /// What the running stream had said, in case this interrupts it.
    pub partial: Option<PartialMessage>,
}

/// The next queued turn starts, or fails since its agent is gone.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    pub turn: TurnId,
    pub basis: Option<TurnSettings>,
}

/// What a stream had said when it was cut.
#[derive(Clone, Debug, PartialEq)]
pub struct PartialMessage {
    pub id: MessageId,
    pub step: u32,
    pub content: Vec<Value>,
}

/// The model's whole message.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelReplied {
    pub turn: TurnId,
    pub step: u32,
    pub id: MessageId,
    pub content: Vec<Value>,
    pub calls: Vec<PlannedCall>,
    pub usage: Option<Usage>,
    pub stop: Option<StopReason>,
    pub verbatim: Option<ProviderMessage>,
    /// Tokens of the context, this message included.
    pub context_tokens: Option<u64>,
    /// The last event when its context was drawn.
    pub read_at: u64,
    /// How a structured answer was judged; `None` for a plain one.
    pub object: Option<Result<Value, String>>,
    pub judged: MessageVerdict,
}

/// What hooks made of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MessageVerdict {
    #[default]
    GoOn,
    /// The turn ends with it; its calls come to nothing.
    Halt(String),
    /// The model is to be asked once more; a second refusal in one turn halts it.
    Refuse { hook: String, reason: String },
}

/// A call as the model made it, and what the turn's definition says of it.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedCall {
    /// What the provider calls it.
    pub given_id: String,
    pub tool: String,
    pub args: Value,
    /// The arguments as the model gave them, if a hook changed them.
    pub said: Option<Value>,
    pub plan: CallPlan,
    /// What the gate decided, if the call came so far.
    pub gate: Option<Verdict>,
}

/// What is to become of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum CallPlan {
    /// It ends at once: refused, answered by its default, or executed by the provider.
    Answer { executor: Executor, intent: Intent, outcome: Outcome },
    /// It goes to its executor, behind a gate if `gate` has the question to ask there.
    Execute {
        executor: Executor,
        intent: Intent,
        gate: Option<String>,
        /// What a person or a page is shown by a call that is theirs to answer.
        message: String,
        timeout_ms: u64,
        grace_ms: Option<u64>,
        on_interrupt: OnInterrupt,
        /// The result of a client call that is answered at once when it is approved.
        answer: Option<Value>,
        /// The child conversation that is to answer it.
        child: Option<ConversationId>,
        /// Calls in the same lane run one after another, such as those on one file.
        lane: Option<String>,
    },
}

impl CallPlan {
    /// Whether the model's provider ran the call by itself.
    pub fn is_provided(&self) -> bool {
        matches!(self, Self::Answer { executor: Executor::Provider, outcome: Outcome::Ok(_), .. })
    }
}

/// The model could not be asked, or its stream broke.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFailed {
    pub turn: TurnId,
    pub step: u32,
    pub reason: String,
    pub partial: Option<PartialMessage>,
}

/// A run of a tool came to an end.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolReturned {
    pub call: CallId,
    pub attempt: u32,
    pub outcome: Outcome,
    pub ui: Option<Ui>,
    /// Ends the turn as halted, with this reason.
    pub halt: Option<String>,
    /// What it changes in the conversation itself, in the same commit.
    pub changes: Vec<StateChange>,
    /// What it must know first; there is no result yet, and `outcome` says nothing.
    pub asks: Option<InputRequest>,
    /// With what it ran, if not with the arguments that were journalled.
    pub ran: Option<EffectiveArgs>,
}

/// What a tool changes in its conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum StateChange {
    Todos(Vec<Todo>),
    Phase { phase: PermissionPhase, planning: bool },
}

/// An answer to an open suspension.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolve {
    pub call: CallId,
    /// The suspension that is meant; absent: whichever is open.
    pub suspension: Option<u32>,
    pub by: Principal,
    pub answer: ResolutionAnswer,
    /// What the gate decided about edited arguments.
    pub gate: Option<Verdict>,
    /// The decision is to hold for later calls, too.
    pub remember: Option<RememberDecision>,
    /// A hook ends the turn on seeing the edited arguments.
    pub halt: Option<String>,
}

/// A wish that a decision be remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RememberDecision {
    pub id: DecisionId,
    pub scope: Scope,
    pub matching: Match,
    /// What the tool is.
    pub does: String,
    /// Of the call as it is approved, with the approver's edits.
    pub fingerprint: String,
    pub for_ms: u64,
}

/// The forms of an answer; each fits one kind of suspension.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ResolutionAnswer {
    /// For an approval. Edited arguments have been validated.
    Approval { approved: bool, reason: Option<String>, args: Option<Value> },
    /// For an elicitation or a client call.
    Result(Value),
    /// The same, as an error.
    Error(String),
}

/// No page was connected for the grace time of a client call.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientMissing {
    pub call: CallId,
    pub suspension: u32,
}

/// An operator gives up on an open call: it ends with an error, whatever it was doing.
#[derive(Clone, Debug, PartialEq)]
pub struct FailCall {
    pub call: CallId,
    pub by: Principal,
    pub error: String,
}

/// Ends the running turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Cancel {
    pub partial: Option<PartialMessage>,
}

/// A user's own call of a server tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Dispatch {
    pub call: CallId,
    pub tool: String,
    pub input: Value,
    pub principal: Principal,
    pub revision: Revision,
    pub on_interrupt: OnInterrupt,
    pub requests: BTreeMap<String, String>,
    pub gate: Verdict,
    pub child: Option<ConversationId>,
}

/// A child conversation has taken a call up.
#[derive(Clone, Debug, PartialEq)]
pub struct ChildStarted {
    pub call: CallId,
    pub attempt: u32,
    /// How long it may take.
    pub within_ms: u64,
    /// With what it was asked, if not with the arguments that were journalled.
    pub ran: Option<EffectiveArgs>,
}

/// A child conversation has come to its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChildEnded {
    pub call: CallId,
    pub child: ConversationId,
    pub outcome: Outcome,
    pub ui: Option<Ui>,
    pub usage: Usage,
    /// The storage that it found its workspaces on.
    #[serde(default)]
    pub storages: BTreeMap<String, String>,
}
