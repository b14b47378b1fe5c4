//! A credential that was verified: who brought it, what it is limited to, and when it ends.

use std::collections::BTreeSet;
use std::sync::Arc;

use abide_conversation::identity::{AuthMethod, Identity};
use abide_conversation::{AgentName, CallId, ConversationId, QueueName, Timestamp};
use serde::{Deserialize, Serialize};

/// What a verified credential says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Credential {
    pub(crate) identity: Identity,
    /// A conversation token only: what it may do, instead of what roles may.
    pub(crate) grant: Option<TokenGrant>,
    /// When the caller last proved to be themselves with a second factor.
    pub(crate) mfa_at: Option<Timestamp>,
    /// `None`: it does not expire.
    pub(crate) expires_at: Option<Timestamp>,
    /// The queues that a worker's key is for.
    pub(crate) queues: Arc<BTreeSet<QueueName>>,
    /// When it is refused: a JWT a little after it has expired, because clocks differ.
    pub(crate) valid_until: Option<Timestamp>,
}

impl Credential {
    /// The value of the label `result` of `abide_auth_total`.
    pub(crate) fn label(&self) -> &'static str {
        match self.identity.auth {
            AuthMethod::Key => "key",
            AuthMethod::Jwt => "jwt",
            AuthMethod::Token => "token",
            AuthMethod::None => "none",
        }
    }
}

/// What a conversation token permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenGrant {
    pub(crate) target: TokenTarget,
    pub(crate) scopes: BTreeSet<Scope>,
    /// The only agent of conversations that the token creates.
    pub(crate) agent: Option<AgentName>,
}

/// What a token is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TokenTarget {
    /// One conversation. One that was deleted and made anew has another `born`.
    Conversation { id: ConversationId, born: Option<Timestamp> },
    /// All conversations whose ids begin with this text.
    Prefix(String),
    /// These suspensions of calls, all of one conversation.
    Calls { id: ConversationId, born: Timestamp, calls: Vec<(CallId, u32)> },
}

impl TokenTarget {
    /// Whether the token is for this conversation.
    pub(crate) fn includes(&self, conversation: &ConversationId) -> bool {
        match self {
            Self::Conversation { id, .. } | Self::Calls { id, .. } => id == conversation,
            Self::Prefix(prefix) => conversation.as_str().starts_with(prefix.as_str()),
        }
    }
}

/// One thing that a conversation token permits.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
)]
#[schema(as = TokenScope)]
pub enum Scope {
    #[serde(rename = "create")]
    Create,
    #[serde(rename = "read")]
    Read,
    #[serde(rename = "send")]
    Send,
    #[serde(rename = "cancel")]
    Cancel,
    #[serde(rename = "answer:client")]
    AnswerClient,
    #[serde(rename = "answer:human")]
    AnswerHuman,
    #[serde(rename = "approve")]
    Approve,
}

impl Scope {
    /// The scopes that answer a call.
    pub const ANSWERS: [Self; 3] = [Self::AnswerClient, Self::AnswerHuman, Self::Approve];
}
