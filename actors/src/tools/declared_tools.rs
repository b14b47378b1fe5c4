//! The tools that a client declared, beside those of the agent.

use std::sync::Arc;

use abide_conversation::TurnId;
use abide_conversation::state::Turn;

use crate::definition::Tool;

/// The tools that a client declared for its conversation, and for the open turn.
#[derive(Clone, Debug, Default)]
pub struct DeclaredTools {
    /// Those of the whole conversation.
    pub conversation: Arc<[Tool]>,
    /// Those of the open turn; each takes the place of one of the conversation's of the same name.
    pub turn: Arc<[Tool]>,
    turn_id: Option<TurnId>,
}

impl From<Arc<[Tool]>> for DeclaredTools {
    fn from(conversation: Arc<[Tool]>) -> Self {
        Self { conversation, ..Self::default() }
    }
}

impl DeclaredTools {
    /// Whether one of them has this name.
    pub fn has(&self, name: &str) -> bool {
        self.conversation.iter().chain(&*self.turn).any(|tool| tool.name == name)
    }

    /// Whether the tools of this turn, or that no turn is open, are known already.
    pub fn is_of(&self, turn: Option<&Turn>) -> bool {
        self.turn_id.as_ref() == turn.map(|turn| &turn.id)
    }

    /// Notes the open turn, whose tools these are.
    pub fn begin_turn(&mut self, turn: Option<&Turn>, tools: Arc<[Tool]>) {
        self.turn_id = turn.map(|turn| turn.id.clone());
        self.turn = tools;
    }
}
