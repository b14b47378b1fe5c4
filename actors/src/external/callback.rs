//! Callbacks of HTTP tools as a port: who makes their tokens.

use abide_conversation::identity::Tenant;
use abide_conversation::ids::{CallId, ConversationId, TurnId};
use abide_conversation::{Attempt, Timestamp};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// Where a tool that answers 202 is to send its result, and until when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Callback {
    pub url: String,
    pub token: String,
    pub expires_at: Timestamp,
}

/// The attempt of a call that a token is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallbackClaims {
    pub tenant: Tenant,
    pub conversation: ConversationId,
    /// The ids of conversations and calls may come again, those of turns never do.
    pub turn: TurnId,
    pub call: CallId,
    pub attempt: Attempt,
    /// In seconds since 1970.
    pub exp: i64,
}

/// Makes callbacks, each for one attempt of one call.
#[async_trait]
pub trait CallbackIssuer: Send + Sync + 'static {
    /// The callback of an attempt; `None` if tools cannot reach this node, as far as it knows.
    async fn issue(&self, claims: CallbackClaims, expires_at: Timestamp) -> Option<Callback>;
}

/// Makes none.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCallbacks;

#[async_trait]
impl CallbackIssuer for NoCallbacks {
    async fn issue(&self, _: CallbackClaims, _: Timestamp) -> Option<Callback> {
        None
    }
}
