//! The calls between nodes: one type for each operation, which names the type of its response.

use std::time::Duration;

use abide_actors::access::Access;
use abide_actors::journal::Holder;
use abide_actors::permit_sync::PermitSync;
use abide_actors::request::{
    IdempotencyKey, Inspection, ReleaseOutcome, Reply, Request, RequestError,
};
use abide_conversation::{ConversationId, Scoped};
use serde::{Deserialize, Serialize};

use super::{CallOutcome, CallRequest, LiveUpdate, Register, Registered};
use crate::actor_view::{ActorDetails, ActorSummary};
use crate::queue_calls::{QueueRequest, QueueResponse};

/// A request that takes longer than this is answered "unavailable", and its outcome is unknown.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
/// A user's own tool call takes as long as its tool may, but no longer than this on another node.
const DISPATCH_TIMEOUT: Duration = Duration::from_secs(3_600);
/// How long another node may take to do what an operator asks of it.
const OPERATOR_TIMEOUT: Duration = Duration::from_secs(5);
/// How long another node may take to describe a conversation; the store knows nearly as much.
const INSPECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the keeper of a queue may take to answer, when nobody has to wait for a call.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the node that gives permits may take; it is asked again then.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long another node may take to accept an update of the live plane.
const LIVE_UPDATE_TIMEOUT: Duration = Duration::from_secs(5);

/// An operation that one node asks another to carry out.
pub trait Call: Into<CallRequest> + Send {
    type Response: Send;

    /// How long the caller waits for the response.
    fn timeout(&self) -> Duration;

    /// The response as it travels.
    fn encode(response: Self::Response) -> CallOutcome;

    /// The response that was received; an outcome that does not answer this call comes back.
    fn decode(outcome: CallOutcome) -> Result<Self::Response, Box<CallOutcome>>;
}

/// Carries a request to a conversation that lives on the other node, or is to live there.
#[derive(Debug, Serialize, Deserialize)]
pub struct Deliver {
    pub id: Scoped<ConversationId>,
    pub request: Box<Request>,
    #[serde(rename = "repeats")]
    pub idempotency_keys: Vec<IdempotencyKey>,
    /// What the request may do; a node of an older version authenticates nobody.
    #[serde(default, skip_serializing_if = "Access::is_unrestricted")]
    pub access: Access,
}

/// Starts a conversation on the other node.
#[derive(Debug, Serialize, Deserialize)]
pub struct Start {
    pub id: Scoped<ConversationId>,
}

/// Asks what a live conversation is doing.
#[derive(Debug, Serialize, Deserialize)]
pub struct Inspect {
    pub id: Scoped<ConversationId>,
}

/// Asks what a live conversation is doing, as operators see it.
#[derive(Debug, Serialize, Deserialize)]
pub struct GetActor {
    pub id: Scoped<ConversationId>,
}

/// Lists the conversations that live on the other node, by id.
#[derive(Debug, Serialize, Deserialize)]
pub struct ListActors {
    pub after: Option<String>,
    pub limit: usize,
    /// Whether only those that it has quarantined; a node of a version without this lists all.
    #[serde(default)]
    pub quarantined: bool,
}

/// Crashes the actor of a conversation and lets the conversation out of quarantine.
#[derive(Debug, Serialize, Deserialize)]
pub struct Kill {
    pub id: Scoped<ConversationId>,
}

/// Has the other node drain.
#[derive(Debug)]
pub struct Drain;

/// Retries at once what backs off in a conversation.
#[derive(Debug, Serialize, Deserialize)]
pub struct Retry {
    pub id: Scoped<ConversationId>,
}

/// Has the other node give up its claim on a conversation, to another holder or to nobody.
#[derive(Debug, Serialize, Deserialize)]
pub struct Release {
    pub id: Scoped<ConversationId>,
    pub to: Option<Holder>,
    pub force: bool,
}

/// Tells the node that gives the permits of a tool what the caller runs.
#[derive(Debug, Serialize, Deserialize)]
pub struct SyncPermits {
    #[serde(flatten)]
    pub sync: PermitSync,
}

/// Implements [`Call`] for a call whose response is the content of one variant of [`CallOutcome`].
macro_rules! impl_call {
    ($call:ident -> $outcome:ident($response:ty), $timeout:expr) => {
        impl From<$call> for CallRequest {
            fn from(call: $call) -> Self {
                Self::$call(call)
            }
        }

        impl Call for $call {
            type Response = $response;

            fn timeout(&self) -> Duration {
                let timeout: fn(&Self) -> Duration = $timeout;
                timeout(self)
            }

            fn encode(response: $response) -> CallOutcome {
                CallOutcome::$outcome(response)
            }

            fn decode(outcome: CallOutcome) -> Result<$response, Box<CallOutcome>> {
                match outcome {
                    CallOutcome::$outcome(response) => Ok(response),
                    other => Err(Box::new(other)),
                }
            }
        }
    };
}

/// Implements [`Call`] for a call whose response says only that it was carried out.
macro_rules! impl_unit_call {
    ($call:ident -> $outcome:ident, $into:expr, $timeout:expr) => {
        impl From<$call> for CallRequest {
            fn from(call: $call) -> Self {
                let into: fn($call) -> Self = $into;
                into(call)
            }
        }

        impl Call for $call {
            type Response = ();

            fn timeout(&self) -> Duration {
                $timeout
            }

            fn encode((): ()) -> CallOutcome {
                CallOutcome::$outcome
            }

            fn decode(outcome: CallOutcome) -> Result<(), Box<CallOutcome>> {
                match outcome {
                    CallOutcome::$outcome => Ok(()),
                    other => Err(Box::new(other)),
                }
            }
        }
    };
}

impl_call!(Deliver -> Delivered(Result<Reply, RequestError>), |call| match *call.request {
    Request::Dispatch(_) => DISPATCH_TIMEOUT,
    _ => REQUEST_TIMEOUT,
});
impl_call!(Inspect -> Inspected(Option<Box<Inspection>>), |_| INSPECT_TIMEOUT);
impl_call!(GetActor -> Actor(Option<Box<ActorDetails>>), |_| OPERATOR_TIMEOUT);
impl_call!(ListActors -> Actors(Vec<ActorSummary>), |_| OPERATOR_TIMEOUT);
impl_call!(Kill -> Killed(bool), |_| OPERATOR_TIMEOUT);
impl_call!(Retry -> Retried(Result<Vec<String>, RequestError>), |_| OPERATOR_TIMEOUT);
impl_call!(Release -> Released(Result<ReleaseOutcome, RequestError>), |_| REQUEST_TIMEOUT);
impl_call!(SyncPermits -> PermitsGiven(Option<u32>), |_| PERMIT_TIMEOUT);
impl_call!(Register -> Registered(Registered), |_| LIVE_UPDATE_TIMEOUT);
impl_call!(QueueRequest -> Queue(QueueResponse), |call| match call {
    // The worker waits at the other node.
    QueueRequest::Take(take) => take.wait.saturating_add(QUEUE_TIMEOUT),
    _ => QUEUE_TIMEOUT,
});
impl_unit_call!(Start -> Started, Self::Start, REQUEST_TIMEOUT);
impl_unit_call!(Drain -> Acknowledged, |_| Self::Drain, OPERATOR_TIMEOUT);
impl_unit_call!(LiveUpdate -> Acknowledged, Self::Tell, LIVE_UPDATE_TIMEOUT);
