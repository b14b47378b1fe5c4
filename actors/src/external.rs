//! Calls that programs outside carry out: workers of queues, and tools that call back.

mod arrivals;
mod callback;
mod lease_token;

use abide_conversation::approval::Approver;
use abide_conversation::command::{CompleteCall, ExtendLease, LeaseCall, Proof};
use abide_conversation::ids::{CallId, ConversationId, Principal, TurnId};
use abide_conversation::{Attempt, CallArgs, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

pub use arrivals::{QueueArrival, QueueArrivals};
pub use callback::{Callback, CallbackClaims, CallbackIssuer, NoCallbacks};
pub use lease_token::LeaseToken;

/// What is asked of a conversation about a call that a program outside carries out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExternalRequest {
    /// A worker takes the call.
    Lease(LeaseCall),
    Extend(ExtendLease),
    Progress {
        call: CallId,
        proof: Proof,
        progress: Value,
    },
    Complete(Box<CompleteCall>),
}

/// A call that a worker has taken, with all that it needs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Work {
    /// Names the lease in `/v1/leases/{lease_id}/…`; opaque.
    pub lease_id: String,
    pub conversation_id: ConversationId,
    pub turn_id: TurnId,
    pub call_id: CallId,
    #[schema(value_type = u32)]
    pub attempt: Attempt,
    pub tool: String,
    #[schema(value_type = Value)]
    pub args: CallArgs,
    #[schema(value_type = Object)]
    pub assigns: Map<String, Value>,
    pub principal: Principal,
    /// Those whose votes approved the call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<Approver>,
    /// The key is the same for each attempt of the call, and for no other call.
    pub idempotency_key: String,
    /// When the lease runs out, unless it is extended.
    pub lease_until: Timestamp,
    /// When the call ends without a result, whatever its leases.
    pub deadline: Timestamp,
}
