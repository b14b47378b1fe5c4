//! Forks: conversations that begin with the prefix of another, the original.

use serde::{Deserialize, Serialize};

use crate::ids::ConversationId;
use crate::numbers::Seq;

/// The prefix that a conversation begins with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Fork {
    pub conversation_id: ConversationId,
    /// The last event of the prefix.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub at_seq: Seq,
}
