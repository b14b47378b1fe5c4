//! The requests to a conversation, and their replies.

mod deletion_reason;
mod inspection;
mod steering;
mod update;

use std::borrow::Cow;
use std::sync::Arc;

use abide_conversation::command::{ChildEnded, Create, Extension, IfBusy, ResolutionAnswer};
use abide_conversation::erase::SubjectAlias;
use abide_conversation::event::{AnswerFormat, Operated};
use abide_conversation::identity::{Identity, Participants};
use abide_conversation::ids::{
    AgentName, CallId, ConversationId, DecisionId, Principal, QueueName, Revision, ScheduledId,
    TurnId,
};
pub use abide_conversation::limits::MAX_MAP_BYTES;
use abide_conversation::message::{Outcome, Ui};
use abide_conversation::parent::Parent;
use abide_conversation::remembered_decision::{Match, Scope};
use abide_conversation::usage::Usage;
use abide_conversation::{Rejection, Seq, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::oneshot;

use crate::access::{Access, AccessError};
use crate::external::{ExternalRequest, Work};
use crate::journal::StoreError;
pub use deletion_reason::{DeletionCondition, DeletionReason};
pub use inspection::{Inspection, ReleaseOutcome};
pub use steering::{RegenerateRequest, RewindRequest, WithdrawRequest};
pub use update::UpdateRequest;

/// A request on its way to a conversation.
///
/// A delivery that is dropped before it was [taken](Delivery::take), because the actor ended with
/// it still in its mailbox, returns to its sender: nothing was done, and it may be delivered again.
#[derive(Debug)]
pub struct Delivery(Option<DeliveryContent>);

/// The content of a delivery.
#[derive(Debug)]
pub struct DeliveryContent {
    pub request: Box<Request>,
    pub context: RequestContext,
    pub reply: ReplyPort,
}

/// What comes with every request: who makes it, and how a repeat is recognised.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestContext {
    pub access: Access,
    /// The keys by which it is recognised as a repeat of an earlier request.
    pub idempotency_keys: Vec<IdempotencyKey>,
}

impl RequestContext {
    /// That of a request of the program itself, which nobody judges.
    pub fn of_the_program(idempotency_keys: Vec<IdempotencyKey>) -> Self {
        Self { access: Access::Unrestricted, idempotency_keys }
    }
}

/// Where the outcome of a delivery goes.
pub type ReplyPort = oneshot::Sender<DeliveryOutcome>;

/// The outcome of a delivery.
#[derive(Debug)]
pub enum DeliveryOutcome {
    Done(Reply),
    Failed(RequestError),
    /// No actor took the request; nothing was done.
    NotTaken(Box<Request>, RequestContext),
}

impl Delivery {
    /// A delivery, and the receiver of its outcome.
    pub fn new(
        request: Box<Request>,
        context: RequestContext,
    ) -> (Self, oneshot::Receiver<DeliveryOutcome>) {
        let (reply, outcome) = oneshot::channel();
        (Self(Some(DeliveryContent { request, context, reply })), outcome)
    }

    /// A delivery of a request that was taken and not carried out.
    pub(crate) fn again(content: DeliveryContent) -> Self {
        Self(Some(content))
    }

    /// The request; `None` once it was taken.
    pub fn request(&self) -> Option<&Request> {
        self.0.as_ref().map(|content| &*content.request)
    }

    /// Takes the content. From here on, the request counts as possibly carried out.
    pub fn take(mut self) -> Option<DeliveryContent> {
        self.0.take()
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if let Some(content) = self.0.take() {
            let DeliveryContent { request, context, reply } = content;
            // The sender may be gone, too.
            let _ = reply.send(DeliveryOutcome::NotTaken(request, context));
        }
    }
}

impl From<Result<Reply, RequestError>> for DeliveryOutcome {
    fn from(result: Result<Reply, RequestError>) -> Self {
        match result {
            Ok(reply) => Self::Done(reply),
            Err(error) => Self::Failed(error),
        }
    }
}

/// A key that a client gave its request, and a fingerprint of that request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdempotencyKey {
    pub key: String,
    pub fingerprint: String,
    /// The field or header that held the key, for the error when it is reused for another request.
    pub field: Cow<'static, str>,
}

/// A request; everything in it has been parsed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// `POST /v1/conversations`.
    Create(Create),
    Send(SendRequest),
    Resolve(ResolveRequest),
    /// `POST …/resolutions`: each answer stands by itself. Nodes before this variant do not know it.
    ResolveAll(Vec<ResolveRequest>),
    Cancel,
    Dispatch(DispatchRequest),
    /// An alarm is due.
    Wake,
    /// `DELETE /v1/conversations/{id}`.
    Delete,
    /// A deletion for another reason. Nodes before this variant do not know it.
    DeleteFor(DeletionReason),
    /// A deletion if the conversation meets the condition when its turn comes; [`Reply::NotDue`]
    /// otherwise. Nodes before this variant do not know it.
    DeleteIf(DeletionCondition),
    /// A parent starts its child with a first message.
    Spawn(Box<SpawnRequest>),
    /// A child reports its outcome to its parent.
    ChildEnded(Box<ChildEnded>),
    /// A parent no longer needs its child.
    Abandon(Box<Create>),
    /// `DELETE …/decisions/{id}`.
    RevokeDecision(DecisionId),
    /// `POST /v1/conversations/{id}/fork`, delivered to the new conversation.
    Fork(ForkRequest),
    /// `POST /admin/actors/{id}/calls/{call_id}/fail`.
    FailCall(FailCallRequest),
    /// `PATCH /v1/conversations/{id}`.
    Update(UpdateRequest),
    /// `PUT | DELETE …/state/{key}`. Nodes before this variant do not know it.
    ChangeState(ChangeStateRequest),
    /// An operator is about to do something about the conversation, whose journal is to have it.
    Operate(Operated),
    /// About a call that a program outside carries out. Nodes before this variant do not know it.
    External(ExternalRequest),
    /// `POST …/messages` with a time. Nodes before this variant do not know it.
    Schedule(Box<ScheduleRequest>),
    /// `DELETE …/scheduled/{id}`.
    Unschedule(UnscheduleRequest),
    /// `POST …/calls/{call_id}/extend`.
    Extend(ExtendRequest),
    /// `DELETE …/queue/{turn_id}`. Nodes before this variant do not know it.
    Withdraw(WithdrawRequest),
    /// Ends this turn, whether it waits or runs, and no other. Nodes before this variant do not know it.
    CancelTurn(WithdrawRequest),
    /// `POST …/rewind`. Nodes before this variant do not know it.
    Rewind(Box<RewindRequest>),
    /// `POST …/regenerate`. Nodes before this variant do not know it.
    Regenerate(Box<RegenerateRequest>),
    /// An erasure replaces a subject. Nodes before this variant do not know it.
    EraseSubject(SubjectAlias),
}

/// A message that is to be delivered later.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScheduleRequest {
    pub deliver_at: Timestamp,
    pub message: SendRequest,
}

/// A scheduled message is not to be delivered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnscheduleRequest {
    pub scheduled_id: ScheduledId,
    pub by: Principal,
}

/// A suspension is to wait longer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExtendRequest {
    pub call: CallId,
    pub suspension: Option<u32>,
    pub extension: Extension,
    pub by: Principal,
}

/// What is to change in the key-value state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangeStateRequest {
    /// The new value of each key; null deletes it.
    pub changes: Map<String, Value>,
    pub by: Principal,
}

/// An operator fails an open call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailCallRequest {
    pub call: CallId,
    pub by: Principal,
    /// Who does it; absent if nobody was authenticated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Arc<Identity>>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The error that the model reads.
    pub error: String,
}

/// The conversation whose prefix is copied, and its last event; `None` for all of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ForkRequest {
    pub from: ConversationId,
    pub at_seq: Option<Seq>,
}

/// The beginning of a child.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpawnRequest {
    pub parent: Parent,
    pub agent: AgentName,
    pub content: Vec<Value>,
    pub principal: Principal,
    /// Who sent the message of the parent's turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Arc<Identity>>,
    /// Those of the parent.
    #[serde(default, skip_serializing_if = "Participants::is_empty")]
    pub participants: Participants,
    /// The child's own: those of the parent and of its agent.
    pub assigns: Map<String, Value>,
    /// Those of the message to the parent, for the message to the child. Builds before this field
    /// put them among the child's own.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub message_assigns: Map<String, Value>,
}

/// `POST …/messages`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SendRequest {
    /// The agent of the conversation, if the request creates it.
    pub agent: Option<AgentName>,
    pub content: Vec<Value>,
    pub message_id: Option<String>,
    pub principal: Principal,
    pub assigns: Map<String, Value>,
    #[serde(rename = "shape")]
    pub answer_format: AnswerFormat,
    /// Tools for this turn only, as definitions. A node before this field leaves them out.
    #[serde(default, skip_serializing_if = "<[Value]>::is_empty")]
    pub tools: Arc<[Value]>,
    /// Blocks for the end of this turn's prompts. A node before this field leaves them out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<Value>,
    pub if_busy: IfBusy,
}

/// `POST …/calls/{call_id}/resolution`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResolveRequest {
    pub call: CallId,
    pub suspension: Option<u32>,
    pub by: Principal,
    pub answer: ResolutionAnswer,
    /// Whether and how the decision applies to later calls.
    #[serde(default)]
    pub remember: Option<RememberRequest>,
}

/// The calls that a remembered decision applies to, and for how long.
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

/// The reply to a request that was carried out. It is stored with the commit, so that a repeat gets
/// the same.
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
        seq: Seq,
    },
    Resolved {
        seq: Seq,
    },
    /// A vote that does not decide yet.
    Recorded {
        /// How many have voted so.
        votes: u32,
        /// How many must.
        needed: u32,
        seq: Seq,
    },
    /// The outcome of each of several answers, in their order.
    ResolvedAll {
        outcomes: Vec<AnswerOutcome>,
    },
    Cancelled {
        cancelled: bool,
    },
    Dispatched {
        outcome: Outcome,
        ui: Option<Ui>,
    },
    Scheduled {
        conversation_id: ConversationId,
        scheduled_id: ScheduledId,
        deliver_at: Timestamp,
    },
    Unscheduled,
    Withdrawn,
    Rewound {
        seq: Seq,
    },
    Extended {
        expires_at: Timestamp,
        seq: Seq,
    },
    Woken,
    Deleted,
    /// The conversation does not meet the condition of its deletion, and was left alone.
    NotDue,
    Revoked,
    Updated,
    /// Between conversations: the request is journalled now, or was before.
    Noted,
    /// A child's reply to `Abandon`: the usage so far.
    Abandoned {
        usage: Usage,
    },
    /// The journal has the alias where it named the subject.
    SubjectErased {
        /// How many events named the subject.
        events: u64,
    },
    /// A worker has the call.
    Leased {
        work: Box<Work>,
    },
    /// A worker's lease ends then.
    LeaseExtended {
        until: Timestamp,
        queue: QueueName,
        worker: String,
    },
}

/// What became of one of several answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerOutcome {
    Resolved {
        seq: Seq,
    },
    /// A vote that does not decide yet, as in [`Reply::Recorded`].
    Recorded {
        votes: u32,
        needed: u32,
        seq: Seq,
    },
    /// Nothing was done with it.
    Refused(RequestError),
}

/// Why a request was not carried out, or is not known to have been.
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
    #[error("{0}: was used before for another request")]
    KeyReused(Cow<'static, str>),
    #[error(transparent)]
    #[serde(rename = "Refused")]
    Store(#[from] StoreError),
    /// The actor died before it answered; whether the request was carried out is unknown.
    #[error("the conversation's actor stopped before it answered")]
    Lost,
    #[error("the conversation is quarantined: {0}")]
    Quarantined(String),
    #[error("too many requests are waiting for this conversation")]
    Overloaded,
    /// The caller may read the conversation, and not do this.
    #[error("the credential does not permit this: it needs {needs}")]
    Forbidden { needs: String },
    /// A deletion found children, which must be deleted first.
    #[error("the conversation still has sub-agents")]
    ChildrenRemain,
    /// The cluster cannot serve the request now, for a reason other than its store. Whether the
    /// request was carried out is unknown.
    #[error("{0}")]
    Unavailable(String),
}

impl From<AccessError> for RequestError {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::Hidden => Rejection::NotFound.into(),
            AccessError::Needs(needs) => Self::Forbidden { needs },
            AccessError::Approval(because) => Rejection::VoteRefused(because).into(),
        }
    }
}

impl RequestError {
    /// An invalid field of the request, and what is wrong with it.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), message: message.into() }
    }
}
