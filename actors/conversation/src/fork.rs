//! A conversation that begins as another's prefix.

use serde::{Deserialize, Serialize};

use crate::ids::ConversationId;

/// Whose prefix a conversation begins with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Fork {
    pub conversation_id: ConversationId,
    /// The last event that it has of the other.
    pub at_seq: u64,
}
