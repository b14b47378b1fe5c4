//! What may be asked of a live conversation, and what it answers.

use std::borrow::Cow;
use std::collections::BTreeMap;

use abide_conversation::child::Parent;
use abide_conversation::command::{ChildEnded, Create, IfBusy, ResolutionAnswer};
use abide_conversation::event::AnswerFormat;
use abide_conversation::ids::{
    AgentName, CallId, ConversationId, DecisionId, Principal, Revision, TurnId,
};
use abide_conversation::message::{Outcome, Ui, Usage};
use abide_conversation::remembered::{Match, Scope};
use abide_conversation::{Rejection, State};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::oneshot;

use crate::journal::{Claim, Holder, StoreError};
use crate::pauses::Backoff;
use crate::streaming::StreamingMessage;

/// A request on its way to a conversation.
///
/// One that is dropped before it was [taken](Delivery::take), since the actor ended with it still in
/// its mailbox, goes back to its sender: nothing was done, and it may be delivered again.
#[derive(Debug)]
pub struct Delivery(Option<DeliveryContent>);

/// What a delivery holds.
#[derive(Debug)]
pub struct DeliveryContent {
    pub request: Request,
    /// What makes it a repeat of an earlier one.
    pub repeats: Vec<IdempotencyKey>,
    pub reply: ReplyPort,
}

/// Where the answer to a delivery goes.
pub type ReplyPort = oneshot::Sender<DeliveryOutcome>;

/// What became of a delivery.
#[derive(Debug)]
pub enum DeliveryOutcome {
    Done(Reply),
    Failed(RequestError),
    /// Nobody took it up.
    NotTaken(Request, Vec<IdempotencyKey>),
}

impl Delivery {
    /// A request, and where its answer will come.
    pub fn new(
        request: Request,
        repeats: Vec<IdempotencyKey>,
    ) -> (Self, oneshot::Receiver<DeliveryOutcome>) {
        let (reply, answer) = oneshot::channel();
        (Self(Some(DeliveryContent { request, repeats, reply })), answer)
    }

    /// A request that was taken and not carried out waits on.
    pub(crate) fn back(parcel: DeliveryContent) -> Self {
        Self(Some(parcel))
    }

    /// What is asked; `None` when it was taken up.
    pub fn request(&self) -> Option<&Request> {
        self.0.as_ref().map(|parcel| &parcel.request)
    }

    /// Takes the request up; from here on it may have been carried out.
    pub fn take(mut self) -> Option<DeliveryContent> {
        self.0.take()
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if let Some(DeliveryContent { request, repeats, reply }) = self.0.take() {
            // Its sender may have gone, too.
            let _ = reply.send(DeliveryOutcome::NotTaken(request, repeats));
        }
    }
}

impl From<Result<Reply, RequestError>> for DeliveryOutcome {
    fn from(result: Result<Reply, RequestError>) -> Self {
        match result {
            Ok(reply) => Self::Done(reply),
            Err(failure) => Self::Failed(failure),
        }
    }
}

/// A name that a client gave its request, and a fingerprint of what it asked under that name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdempotencyKey {
    pub key: String,
    pub fingerprint: String,
    /// Where the client said the name, for the error when it is used for something else.
    pub field: Cow<'static, str>,
}

/// A client's request; everything in it has been parsed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// `POST /v1/conversations`.
    Create(Create),
    Send(SendRequest),
    Resolve(ResolveRequest),
    Cancel,
    Dispatch(DispatchRequest),
    /// The alarm rang.
    Wake,
    Delete,
    /// A parent asks its child, which begins with that.
    Spawn(Box<SpawnRequest>),
    /// A child tells its parent what it came to.
    ChildEnded(Box<ChildEnded>),
    /// A parent wants nothing of its child any more.
    Abandon(Box<Create>),
    /// `DELETE …/decisions/{id}`.
    RevokeDecision(DecisionId),
    /// `POST /v1/conversations/{id}/fork`, to the conversation that is to be.
    Fork(ForkRequest),
    /// `POST /admin/actors/{id}/calls/{call_id}/fail`.
    FailCall(FailCallRequest),
}

/// An operator gives up on an open call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailCallRequest {
    pub call: CallId,
    pub by: Principal,
    /// What the model reads.
    pub error: String,
}

/// Whose prefix, and up to which event; absent: all of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ForkRequest {
    pub from: ConversationId,
    pub at_seq: Option<u64>,
}

/// What a child begins with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpawnRequest {
    pub parent: Parent,
    pub agent: AgentName,
    pub content: Vec<Value>,
    pub principal: Principal,
    pub assigns: Map<String, Value>,
}

/// `POST …/messages`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SendRequest {
    /// Creates the conversation, if it is new.
    pub agent: Option<AgentName>,
    pub content: Vec<Value>,
    pub message_id: Option<String>,
    pub principal: Principal,
    pub assigns: Map<String, Value>,
    pub shape: AnswerFormat,
    pub if_busy: IfBusy,
}

/// `POST …/calls/{call_id}/resolution`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResolveRequest {
    pub call: CallId,
    pub suspension: Option<u32>,
    pub by: Principal,
    pub answer: ResolutionAnswer,
    /// The decision is to hold for later calls, too.
    #[serde(default)]
    pub remember: Option<RememberRequest>,
}

/// For how much a decision is to hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RememberRequest {
    pub scope: Scope,
    pub matching: Match,
    pub for_ms: u64,
}

/// `POST …/dispatch`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DispatchRequest {
    pub tool: String,
    pub input: Value,
    pub approved: bool,
    pub principal: Principal,
}

/// What was done. Kept with the commit, so that a repeat gets the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    Created {
        id: ConversationId,
        agent: AgentName,
        revision: Revision,
    },
    Sent {
        conversation_id: ConversationId,
        turn_id: TurnId,
        seq: u64,
    },
    Resolved {
        seq: u64,
    },
    Cancelled {
        cancelled: bool,
    },
    Dispatched {
        outcome: Outcome,
        ui: Option<Ui>,
    },
    Woken,
    Deleted,
    Revoked,
    /// Between conversations: it is journalled, or was before.
    Noted,
    /// The same of a child that is wanted no more: what it has cost.
    Abandoned {
        usage: Usage,
    },
}

/// Why it was not done, or not known to be done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
pub enum RequestError {
    #[error(transparent)]
    Rejected(#[from] Rejection),
    #[error("agent {0} does not exist")]
    AgentMissing(AgentName),
    #[error("{field}: {message}")]
    Invalid { field: String, message: String },
    #[error("unknown tool: {0}")]
    ToolNotFound(String),
    #[error("tool {0} needs an approval: send \"approved\": true")]
    ApprovalRequired(String),
    #[error("{0}: was used before, for another request")]
    KeyReused(Cow<'static, str>),
    #[error(transparent)]
    Refused(#[from] StoreError),
    /// The actor died before it answered; whether the request was carried out is unknown.
    #[error("the conversation's actor stopped before it answered")]
    Lost,
    #[error("the conversation is quarantined: {0}")]
    Quarantined(String),
    #[error("too many requests wait for this conversation")]
    Overloaded,
}

impl RequestError {
    /// The field of the request that is wrong, and how.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), message: message.into() }
    }
}

/// A live conversation, as it is at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Inspection {
    pub state: State,
    pub held: Claim,
    pub streaming: Option<StreamingMessage>,
    /// What each running tool said last.
    pub progress: BTreeMap<CallId, Value>,
    /// What runs, for people.
    pub running: Vec<String>,
    /// What of that waits for a later attempt.
    #[serde(default)]
    pub pauses: Vec<Backoff>,
}

/// What became of the wish that a conversation be let go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReleaseOutcome {
    /// It was, and this is who holds it now.
    Parted(Option<Holder>),
    /// It was not: these calls run, and must not run twice.
    Runs(Vec<CallId>),
}
