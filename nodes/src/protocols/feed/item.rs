//! What happens in a turn, as clients of other protocols are told of it.

use abide_conversation::event::{
    AssistantMsg, Executor, Intent, Resolution, Steered, SuspensionKind, Todo, TurnEnded,
};
use abide_conversation::message::{Outcome, Ui};
use abide_conversation::{
    AnswerSchema, Attempt, CallArgs, CallId, MessageId, Principal, Seq, Timestamp, TurnId,
};
use serde_json::Value;

/// One thing that happens in a turn.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// The turn has started.
    Started { turn: TurnId, seq: Seq },
    /// The model's thinking goes on by this piece.
    Thinking(Piece),
    /// The text of the model's message goes on by this piece.
    Text(Piece),
    /// The model's message is complete and journalled. All pieces of it came before.
    Message(Box<MessageItem>),
    /// Somebody has added a message to the turn, which the model reads before its next step.
    Steered(Box<SteeringMessage>),
    /// A call was handed to its executor.
    CallStarted(CallStart),
    /// A call waits for somebody, or an approver has edited the arguments of a call that waits.
    Suspended(Box<SuspendedCall>),
    /// Somebody answered a call that waited.
    Resolved(Box<ResolvedCall>),
    /// A running tool reports its progress; may be lost.
    Progress { call: CallId, payload: Value },
    /// What a tool shows to people.
    Ui { call: CallId, ui: Ui },
    /// The list of todos was replaced.
    Todos(Vec<Todo>),
    /// A call has its one result.
    Result { call: CallId, outcome: Outcome },
    /// A hook refused the message: what was told of it is void.
    Refused { message: MessageId, reason: String },
    /// The message was begun anew after its node died: what was told of it is void.
    Restarted { message: MessageId },
    /// Everything that is journalled was told. Live items follow.
    CaughtUp,
    /// Nothing goes on in the turn until somebody answers one of these calls.
    Rest(Vec<SuspendedCall>),
    /// The turn has ended; nothing follows.
    End(TurnEnded),
}

/// A piece of a message.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    pub message: MessageId,
    /// The place of the piece in the message's text, or its thinking, in characters.
    pub place: usize,
    pub text: String,
}

/// A message of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct MessageItem {
    pub assistant: AssistantMsg,
    pub seq: Seq,
}

/// A user's message that was added to the turn.
#[derive(Clone, Debug, PartialEq)]
pub struct SteeringMessage {
    /// The id that the client gave it, or else its own.
    pub id: String,
    pub content: Vec<Value>,
}

impl From<&Steered> for SteeringMessage {
    fn from(steered: &Steered) -> Self {
        let Steered { message, message_id, .. } = steered;
        let id = message_id.clone().unwrap_or_else(|| message.id.to_string());
        Self { id, content: message.content.clone() }
    }
}

/// A call that begins to run.
#[derive(Clone, Debug, PartialEq)]
pub struct CallStart {
    pub call: CallId,
    pub tool: String,
    pub executor: Executor,
    pub intent: Intent,
    pub args: CallArgs,
    pub attempt: Attempt,
}

/// A call that waits for somebody.
#[derive(Clone, Debug, PartialEq)]
pub struct SuspendedCall {
    pub call: CallId,
    pub tool: String,
    pub executor: Executor,
    pub kind: SuspensionKind,
    pub intent: Intent,
    /// The arguments, as an approver last edited them.
    pub args: CallArgs,
    pub message: String,
    /// The number of the suspension, from 1.
    pub suspension: u32,
    pub expires_at: Timestamp,
    /// The JSON Schema of an answer; `None` if any fits.
    pub answer_schema: Option<AnswerSchema>,
    /// Whether the caller may answer it.
    pub may_answer: bool,
}

impl SuspendedCall {
    /// The id of the question, for protocols that give it one: `CALL/N`.
    pub fn id(&self) -> String {
        suspension_id(&self.call, self.suspension)
    }
}

/// The id of a question, for protocols that give it one: `CALL/N`.
pub fn suspension_id(call: &CallId, suspension: u32) -> String {
    format!("{call}/{suspension}")
}

/// The call and the number of the suspension in such an id. A call's id may have slashes.
pub fn parse_suspension_id(id: &str) -> Option<(CallId, u32)> {
    let (call, number) = id.rsplit_once('/')?;
    let number = number.parse().ok().filter(|number| *number > 0)?;
    (!call.is_empty()).then(|| (CallId::new(call), number))
}

/// The answer to a call that waited.
#[derive(Clone, Debug, PartialEq)]
pub struct ResolvedCall {
    pub call: CallId,
    pub suspension: u32,
    pub kind: SuspensionKind,
    pub by: Principal,
    /// Approvals only.
    pub approved: Option<bool>,
    pub reason: Option<String>,
}

impl ResolvedCall {
    /// The id of the question that was answered.
    pub fn id(&self) -> String {
        suspension_id(&self.call, self.suspension)
    }
}

impl From<&Resolution> for ResolvedCall {
    fn from(resolution: &Resolution) -> Self {
        Self {
            call: resolution.call_id.clone(),
            suspension: resolution.suspension,
            kind: resolution.kind,
            by: resolution.by.clone(),
            approved: resolution.approved,
            reason: resolution.reason.clone(),
        }
    }
}
