//! Commands to a conversation. Time, new ids and everything looked up elsewhere come in with them.

mod child;
mod external;
mod later;
mod steering;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::approval::{ApprovalPolicy, SubjectId};
use crate::elicitation::InputRequest;
pub use crate::event::IfBusy;
use crate::event::{
    AddedContext, AnswerFormat, CallKind, ContextReduced, EffectiveArgs, Event, Executor, Intent,
    OnInterrupt, Operated, Summarized, Todo, WaitingRules,
};
use crate::fork::Fork;
use crate::identity::{Identity, Participants};
use crate::ids::{
    AgentName, CallId, ConversationId, DecisionId, MessageId, Principal, Revision, TurnId,
};
use crate::message::{FallbackModel, Outcome, ProviderMessage, StopReason, Ui};
use crate::numbers::{Attempt, Seq, Step};
use crate::parent::Parent;
use crate::permission::{PermissionPhase, Verdict};
use crate::remembered_decision::Extent;
use crate::usage::{Budget, Usage};
use crate::{AnswerSchema, CallArgs, Timestamp};
pub use child::{ChildEnded, ChildStarted};
pub use external::{
    AwaitCallback, CompleteCall, ExtendLease, ExternalAction, LeaseCall, Proof, QueueCall,
};
pub use later::{Extend, Extension, Schedule, Unschedule};
pub use steering::{Regenerate, Rewind, Withdraw};

/// An action and the moment at which it is decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    pub at: Timestamp,
    pub action: Action,
}

/// Everything that can be asked of a conversation, or reported to it. Each has a file in `decide`.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "one exists at a time, and is taken apart at once")]
pub enum Action {
    Create(Create),
    /// The next events of the original arrived, for a fork whose prefix is being copied.
    EventsCopied(CopiedEvents),
    /// The original is gone before its prefix was copied. Nothing is decided: the fork is to be deleted.
    OriginalGone,
    Send(Send),
    Start(Start),
    ModelReplied(ModelReplied),
    ModelFailed(ModelFailed),
    ToolReturned(ToolReturned),
    Resolve(Resolve),
    ClientMissing(ClientMissing),
    FailCall(FailCall),
    Wake,
    Cancel(Cancel),
    Revive,
    /// Like [`Self::Revive`], by an actor that knows on which node the last one ran.
    ReviveAfter(String),
    /// An attempt of a tool failed, and is to be followed by another one.
    AttemptFailed(AttemptFailed),
    /// An operator wants the next attempts of failed calls now.
    AttemptNow,
    /// The connection to a tool broke after its request may have arrived, and a person is to say what
    /// becomes of the call.
    ConnectionBroke {
        call: CallId,
        attempt: Attempt,
    },
    ChangeState(ChangeState),
    Dispatch(Dispatch),
    /// A parent creates this child and sends it its one message. Sent again, it changes nothing.
    Spawn(Send),
    ChildStarted(ChildStarted),
    ChildEnded(ChildEnded),
    /// An orphaned child has stopped.
    ChildReleased {
        child: ConversationId,
        /// The usage of the child and of its own children.
        usage: Usage,
    },
    /// The parent has the report of this turn.
    ParentNotified(TurnId),
    /// The workspace below `root` is about to be used for the first time, on `storage`.
    WorkspaceOpened {
        root: String,
        storage: String,
    },
    /// The parent needs nothing more from this child.
    Abandon(Create),
    /// Durable hooks added content to the context of the next step.
    ContextAdded {
        turn: TurnId,
        step: Step,
        added: Vec<AddedContext>,
    },
    /// A hook ends the turn before its next step.
    Halt {
        turn: TurnId,
        step: Step,
        reason: String,
    },
    /// The model is to be shown less from this step on.
    ContextReduced {
        turn: TurnId,
        reduced: ContextReduced,
    },
    /// A summary was written; the one before it covers events up to `after`.
    Summarized {
        after: Seq,
        summarized: Summarized,
    },
    /// The summary could not be written.
    SummaryFailed {
        reason: String,
    },
    /// The agent has the decision.
    DecisionPublished(DecisionId),
    /// Revokes a remembered decision of this conversation.
    RevokeDecision(DecisionId),
    /// Replaces what is written about the conversation.
    Update(Update),
    /// An operator is about to do something about the conversation.
    Operate(Operated),
    /// Something about a call that a program outside carries out.
    External(ExternalAction),
    /// A message is to be delivered later.
    Schedule(Schedule),
    /// A scheduled message is not to be delivered.
    Unschedule(Unschedule),
    /// A suspension is to wait longer.
    Extend(Extend),
    /// [`Wake`](Self::Wake), when a scheduled message is due that interrupts the open turn.
    WakeToInterrupt(Cancel),
    /// A queued turn is not to start, or one turn and no other is to end.
    Withdraw(Withdraw),
    /// The conversation goes on from an earlier event.
    Rewind(Rewind),
    /// A turn is taken back, and begins anew.
    Regenerate(Box<Regenerate>),
}

/// Creates the conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Create {
    pub agent: AgentName,
    pub assigns: Map<String, Value>,
    pub metadata: Map<String, Value>,
    pub tools: Vec<Value>,
    #[serde(default)]
    pub parent: Option<Box<Parent>>,
    /// The original whose prefix the new conversation begins with.
    #[serde(default)]
    pub fork: Option<Fork>,
    #[serde(default, skip_serializing_if = "Participants::is_empty")]
    pub participants: Participants,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// When the conversation is to be deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// What is written about the conversation from now on; `None` stays as it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    pub metadata: Option<Map<String, Value>>,
    pub members: Option<Vec<String>>,
    /// `Some(None)` removes it.
    pub title: Option<Option<String>>,
    /// `Some(None)` removes it.
    pub expires_at: Option<Option<Timestamp>>,
    pub by: Principal,
    pub identity: Option<Arc<Identity>>,
}

/// Some events of the original's journal.
#[derive(Clone, Debug, PartialEq)]
pub struct CopiedEvents {
    /// The `seq` of the event before the first of them.
    pub after: Seq,
    pub events: Vec<Event>,
    /// Whether nothing is left to copy.
    pub is_last: bool,
}

/// What a turn needs of its agent's definition, which stays outside.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnSettings {
    pub agent: AgentName,
    pub revision: Revision,
    pub max_steps: u32,
    pub budget: Budget,
    pub summarize_over: Option<u64>,
}

impl TurnSettings {
    /// For a turn that ends before its first step, because its agent is gone or the conversation
    /// forks.
    pub(crate) fn without_steps(agent: AgentName) -> Self {
        Self {
            agent,
            revision: Revision::new(""),
            max_steps: 0,
            budget: Budget::default(),
            summarize_over: None,
        }
    }
}

/// A user's message.
#[derive(Clone, Debug, PartialEq)]
pub struct Send {
    /// Creates the conversation first, if it does not exist.
    pub create: Option<Create>,
    pub settings: TurnSettings,
    pub turn_id: TurnId,
    pub id: MessageId,
    pub content: Vec<Value>,
    pub message_id: Option<String>,
    pub principal: Principal,
    pub identity: Option<Arc<Identity>>,
    pub assigns: Map<String, Value>,
    pub answer_format: AnswerFormat,
    /// Tools for this turn only, as definitions.
    pub tools: Arc<[Value]>,
    /// Blocks for the end of this turn's prompts.
    pub context: Vec<Value>,
    pub if_busy: IfBusy,
    /// The output of the running stream so far, in case this message interrupts it.
    pub partial: Option<PartialMessage>,
}

/// The next queued turn starts, or fails because its agent is gone.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    pub turn: TurnId,
    pub settings: Option<TurnSettings>,
}

/// The output of a stream that was cut.
#[derive(Clone, Debug, PartialEq)]
pub struct PartialMessage {
    pub id: MessageId,
    pub step: Step,
    pub content: Vec<Value>,
}

/// The model's whole message.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelReplied {
    pub turn: TurnId,
    pub step: Step,
    pub id: MessageId,
    pub content: Vec<Value>,
    pub calls: Vec<PlannedCall>,
    pub usage: Option<Usage>,
    pub stop: Option<StopReason>,
    pub verbatim: Option<ProviderMessage>,
    /// The model that replied, if it is not the definition's first.
    pub fallback: Option<FallbackModel>,
    /// Tokens of the context, including this message.
    pub context_tokens: Option<u64>,
    /// The last event that the context of this call included.
    pub context_seq: Seq,
    /// A structured answer, or how it violates its schema; `None` for a plain answer.
    pub object: Option<Result<Value, String>>,
    pub verdict: MessageVerdict,
}

/// What hooks decided about a model's message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MessageVerdict {
    #[default]
    Accept,
    /// The turn ends with this message; its calls do not run.
    Halt(String),
    /// The model is asked once more. A second refusal in the same turn halts the turn.
    Refuse { hook: String, reason: String },
}

/// A call as the model made it, and the plan for it by the turn's definition.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedCall {
    /// The provider's id for the call.
    pub given_id: String,
    pub tool: String,
    pub args: CallArgs,
    /// The model's arguments, if a hook changed them.
    pub original_args: Option<CallArgs>,
    pub plan: CallPlan,
    /// The gate's verdict, if the call reached the gate.
    pub verdict: Option<Verdict>,
}

/// What happens to a call.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "one exists at a time, and is taken apart at once")]
pub enum CallPlan {
    /// It ends at once: refused, answered with its default, or already executed by the provider.
    Complete { executor: Executor, intent: Intent, outcome: Outcome },
    /// It goes to its executor, after an approval if there is a `gate`.
    Execute {
        kind: CallKind,
        intent: Intent,
        gate: Option<ApprovalQuestion>,
        /// Shown to the person or the page that is to answer.
        message: String,
        /// The JSON Schema of what the person or the page is to answer, if it has one.
        answer_schema: Option<AnswerSchema>,
        timeout_ms: u64,
        waiting_rules: Option<Arc<WaitingRules>>,
    },
}

/// What approvers are asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalQuestion {
    pub message: String,
    /// Who may approve, and how many must; `None` where nobody is authenticated.
    pub policy: Option<ApprovalPolicy>,
    /// The JSON Schema of the answer.
    pub answer_schema: Option<AnswerSchema>,
}

impl CallPlan {
    /// Who produces the call's result.
    pub fn executor(&self) -> Executor {
        match self {
            Self::Complete { executor, .. } => *executor,
            Self::Execute { kind, .. } => kind.executor(),
        }
    }

    /// Whether the model's provider executed the call.
    pub fn is_provided(&self) -> bool {
        matches!(self, Self::Complete { executor: Executor::Provider, outcome: Outcome::Ok(_), .. })
    }
}

/// The model could not be reached, or its stream broke.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFailed {
    pub turn: TurnId,
    pub step: Step,
    pub reason: String,
    pub partial: Option<PartialMessage>,
}

/// An attempt of a tool returned.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolReturned {
    pub call: CallId,
    pub attempt: Attempt,
    pub outcome: Outcome,
    pub ui: Option<Ui>,
    /// Halts the turn, for this reason.
    pub halt: Option<String>,
    /// What the tool changes in the conversation itself, in the same commit.
    pub changes: Vec<StateChange>,
    /// What the tool needs from a person first. There is no result yet, and `outcome` is ignored.
    pub input_request: Option<InputRequest>,
    /// The arguments that the tool ran with, if they are not the journalled ones.
    pub effective_args: Option<EffectiveArgs>,
}

/// An attempt of a tool failed; the next one begins at `retry_at`.
#[derive(Clone, Debug, PartialEq)]
pub struct AttemptFailed {
    pub call: CallId,
    pub attempt: Attempt,
    pub error: String,
    pub retry_at: Timestamp,
}

/// A change of the key-value state.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangeState {
    /// The new value of each key; null deletes it.
    pub changes: Map<String, Value>,
    pub by: Principal,
    pub identity: Option<Arc<Identity>>,
}

/// A change that a tool makes in its conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum StateChange {
    Todos(Vec<Todo>),
    Phase {
        phase: PermissionPhase,
        planning: bool,
    },
    /// New values of keys of the key-value state; null deletes a key.
    KeyValues(Map<String, Value>),
}

/// An answer to an open suspension.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolve {
    pub call: CallId,
    /// The number of the suspension; `None` for whichever is open.
    pub suspension: Option<u32>,
    pub by: Principal,
    pub identity: Option<Arc<Identity>>,
    /// When whoever answers last proved a second factor.
    pub mfa_at: Option<Timestamp>,
    pub answer: ResolutionAnswer,
    /// Identifies the arguments that an approval is about.
    pub args_fingerprint: String,
    /// Voters whose credentials were revoked after they had voted.
    pub revoked: BTreeSet<SubjectId>,
    /// The gate's verdict on edited arguments.
    pub verdict: Option<Verdict>,
    /// Set if the decision is to hold for later calls, too.
    pub remember: Option<RememberDecision>,
    /// Why a hook, having seen the edited arguments, ends the turn.
    pub halt: Option<String>,
}

/// How a decision is to be remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RememberDecision {
    pub id: DecisionId,
    pub extent: Extent,
    /// The tool's digest, as in `RememberedDecision::tool_digest`.
    pub tool_digest: String,
}

/// The answer to a suspension; which form fits depends on the suspension's kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ResolutionAnswer {
    /// For an approval. Edited arguments are validated already.
    Approval { approved: bool, reason: Option<String>, args: Option<Value> },
    /// For an elicitation, a client call or a call in doubt.
    Result(Value),
    /// An error, for an elicitation, a client call or a call in doubt.
    Error(String),
    /// For a call in doubt: it runs again.
    Retry,
}

/// No client was connected for the grace time of a client call.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientMissing {
    pub call: CallId,
    pub suspension: u32,
}

/// An operator gives up on an open call: it ends with an error, in whatever phase it is.
#[derive(Clone, Debug, PartialEq)]
pub struct FailCall {
    pub call: CallId,
    pub by: Principal,
    pub identity: Option<Arc<Identity>>,
    /// Why, for people.
    pub reason: Option<String>,
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
    pub input: CallArgs,
    pub principal: Principal,
    pub identity: Option<Arc<Identity>>,
    pub revision: Revision,
    pub on_interrupt: OnInterrupt,
    pub requests: BTreeMap<String, String>,
    pub verdict: Verdict,
    pub child: Option<ConversationId>,
}
