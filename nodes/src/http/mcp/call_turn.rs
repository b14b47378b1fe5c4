//! The turn that a call is about.

use abide_conversation::{ConversationId, Scoped, Seq, TurnId};

use crate::protocols::mcp::agent_turn::Place;

/// A turn that a call is about.
pub(super) struct CallTurn {
    pub(super) id: Scoped<ConversationId>,
    pub(super) turn: TurnId,
    /// The event with which it begins.
    pub(super) from: Seq,
}

impl CallTurn {
    /// The place of the turn in this conversation.
    pub(super) fn place<'a>(&'a self, conversation: &'a ConversationId) -> Place<'a> {
        Place { conversation: conversation.as_str(), turn: self.turn.as_str() }
    }
}
