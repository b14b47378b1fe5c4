//! The id of a turn for protocols that call it a task.

use std::fmt;

use abide_conversation::{ConversationId, TurnId};

/// What the ids of turns begin with.
const TURN_PREFIX: &str = "turn_";

/// The id of a task, `TURN.CONVERSATION`: all that is needed to find it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskId {
    pub turn: TurnId,
    pub conversation: ConversationId,
}

impl TaskId {
    /// Parses an id; `None` if no task can have it.
    pub fn parse(id: &str) -> Option<Self> {
        let (turn, conversation) = id.split_once('.')?;
        let is_turn = turn.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        (is_turn && !turn.is_empty()).then_some(())?;
        Some(Self {
            turn: TurnId::new(format!("{TURN_PREFIX}{turn}")),
            conversation: ConversationId::parse(conversation)?,
        })
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let turn = self.turn.as_str();
        let turn = turn.strip_prefix(TURN_PREFIX).unwrap_or(turn);
        write!(f, "{turn}.{}", self.conversation)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_task_says_where_it_is() {
        for id in ["k_0198aa.conv_1", "k_a.a.b:c-d", "0198aa.c"] {
            assert_eq!(TaskId::parse(id).unwrap().to_string(), id);
        }
        let parsed = TaskId::parse("k_0198aa.a.b").unwrap();
        assert_eq!((parsed.turn.as_str(), parsed.conversation.as_str()), ("turn_k_0198aa", "a.b"));
    }

    #[test]
    fn an_id_that_no_task_has_is_none() {
        for wrong in ["", "a", ".c", "a.", "a/b.c", "a-b.c", "a.c/d", "a.c d", "a..", "é.c"] {
            assert_eq!(TaskId::parse(wrong), None, "{wrong}");
        }
    }
}
