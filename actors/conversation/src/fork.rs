//! Forks: conversations that begin with the prefix of another, the original.

use serde::{Deserialize, Serialize};

use crate::Timestamp;
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
    /// When the original was created: another conversation may have its id later. Absent in journals
    /// of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
}

impl Fork {
    /// Whether an event `forked` with this `seq` ends the copy of this prefix. It may be an event of
    /// the prefix, which says where the prefix of the original or of an earlier fork ended.
    pub fn is_ended_by(&self, seq: Seq, forked: &Fork) -> bool {
        let is_same_life = match (self.created_at, forked.created_at) {
            (Some(own), Some(other)) => own == other,
            // An earlier version ended a copy that this one had begun, and copied no event of it with a
            // greater `seq`.
            (Some(_), None) => seq > self.at_seq,
            // Who ends a copy repeats what it began with.
            (None, Some(_)) => false,
            (None, None) => true,
        };
        is_same_life && self.conversation_id == forked.conversation_id
    }
}
