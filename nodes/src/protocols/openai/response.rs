//! A response: a segment of a turn, from the message or the answers that began it to where the turn
//! rests or ends.

use std::fmt;

use abide_conversation::usage::Usage;
use abide_conversation::{AgentName, ConversationId, Seq, Timestamp, TurnId};
use serde_json::{Value, json};

/// What the ids of turns begin with.
const TURN_PREFIX: &str = "turn_";

/// The id of a response, `resp_FROMSEQ.TURN.CONVERSATION`: all that is needed to find it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseId {
    /// The event that began the response: a message, or an answer.
    pub from: Seq,
    pub turn: TurnId,
    pub conversation: ConversationId,
}

impl ResponseId {
    /// Parses an id; `None` if no response can have it.
    pub fn parse(id: &str) -> Option<Self> {
        let mut parts = id.strip_prefix("resp_")?.splitn(3, '.');
        let [from, turn] = [parts.next()?, parts.next()?];
        let conversation = parts.next()?;
        let is_number = !from.is_empty() && from.bytes().all(|byte| byte.is_ascii_digit());
        let from = from.parse::<u64>().ok().filter(|seq| is_number && *seq > 0)?;
        let is_turn = turn.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        (is_turn && !turn.is_empty()).then_some(())?;
        Some(Self {
            from: Seq::new(from),
            turn: TurnId::new(format!("{TURN_PREFIX}{turn}")),
            conversation: ConversationId::parse(conversation)?,
        })
    }
}

impl fmt::Display for ResponseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let turn = self.turn.as_str();
        let turn = turn.strip_prefix(TURN_PREFIX).unwrap_or(turn);
        write!(f, "resp_{}.{turn}.{}", self.from, self.conversation)
    }
}

/// What is known of a response before anything of it is told.
#[derive(Clone, Debug)]
pub struct ResponseHead {
    pub id: ResponseId,
    /// The conversation's agent.
    pub model: AgentName,
    pub created_at: Timestamp,
}

/// How far a response is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ResponseStatus {
    /// Its turn waits for the turn before it, or has just begun.
    Queued,
    #[default]
    InProgress,
    /// The turn is complete, or rests.
    Completed,
    Cancelled,
    /// The turn was halted for this reason, or the response ends before the turn.
    Incomplete(String),
    Failed(String),
}

impl ResponseStatus {
    fn name(&self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Incomplete(_) => "incomplete",
            Self::Failed(_) => "failed",
        }
    }

    /// The type of the event that ends a stream with this status.
    pub(super) fn last_event(&self) -> &'static str {
        match self {
            Self::Completed => "response.completed",
            Self::Failed(_) => "response.failed",
            Self::Queued | Self::InProgress | Self::Cancelled | Self::Incomplete(_) => {
                "response.incomplete"
            }
        }
    }
}

/// A response as its client gets it.
pub fn response(
    head: &ResponseHead,
    status: &ResponseStatus,
    output: Vec<Value>,
    usage: Option<&Usage>,
) -> Value {
    let (mut error, mut incomplete) = (Value::Null, Value::Null);
    match status {
        ResponseStatus::Failed(why) => error = json!({"code": "server_error", "message": why}),
        ResponseStatus::Incomplete(why) => incomplete = json!({"reason": why}),
        ResponseStatus::Queued
        | ResponseStatus::InProgress
        | ResponseStatus::Completed
        | ResponseStatus::Cancelled => {}
    }
    json!({
        "id": head.id.to_string(),
        "object": "response",
        "created_at": head.created_at.as_second(),
        "status": status.name(),
        "background": false,
        "error": error,
        "incomplete_details": incomplete,
        "instructions": null,
        "max_output_tokens": null,
        "model": head.model,
        "output": output,
        "parallel_tool_calls": true,
        "previous_response_id": null,
        "conversation": {"id": head.id.conversation},
        "reasoning": {"effort": null, "summary": null},
        "store": true,
        "temperature": null,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": null,
        "truncation": "disabled",
        "usage": usage.map(usage_of),
        "user": null,
        "metadata": {},
    })
}

/// Usage in the words of Responses.
fn usage_of(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.tokens(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_response_says_where_it_is() {
        for id in ["resp_7.k_0198aa.conv_1", "resp_1.k_a.a.b:c-d"] {
            let parsed = ResponseId::parse(id).unwrap();
            assert_eq!(parsed.to_string(), id);
        }
        let parsed = ResponseId::parse("resp_7.k_0198aa.a.b").unwrap();
        assert_eq!((parsed.from, parsed.turn.as_str()), (Seq::new(7), "turn_k_0198aa"));
        assert_eq!(parsed.conversation.as_str(), "a.b");
    }

    #[test]
    fn an_id_that_no_response_has_is_none() {
        for wrong in [
            "",
            "resp_",
            "resp_abc",
            "resp_0.k_a.c",
            "resp_+1.k_a.c",
            "resp_-1.k_a.c",
            "resp_1..c",
            "resp_1.k_a.",
            "resp_1.k_a",
            "resp_1.k/a.c",
            "resp_1.k_a.c/d",
            "resp_99999999999999999999.k_a.c",
            "7.k_a.c",
        ] {
            assert_eq!(ResponseId::parse(wrong), None, "{wrong}");
        }
    }
}
