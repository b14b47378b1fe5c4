//! The turn that a call is about.

use abide_conversation::{ConversationId, Scoped, Seq, TurnId};

use crate::protocols::mcp::agent_turn::TurnIds;

/// A turn that a call is about.
pub(super) struct CallTurn {
    pub(super) id: Scoped<ConversationId>,
    pub(super) turn: TurnId,
    /// The event with which it begins.
    pub(super) from: Seq,
}

impl CallTurn {
    /// The ids of the turn in this conversation.
    pub(super) fn ids<'a>(&'a self, conversation: &'a ConversationId) -> TurnIds<'a> {
        TurnIds { conversation: conversation.as_str(), turn: self.turn.as_str() }
    }
}
