//! The tools of the MCP server. None of them answers a call that waits: only people do that.

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

/// Lists what waits for somebody.
pub const PENDING: &str = "abide_pending";
/// Reads a conversation.
pub const CONVERSATION: &str = "abide_conversation";
/// What a tool without a description does.
const NO_DESCRIPTION: &str = "Sends a message to this agent and returns its answer.";

/// Whether an agent of this name is no tool, because another tool has the name.
pub fn is_taken(name: &str) -> bool {
    [PENDING, CONVERSATION].contains(&name)
}

/// The tool that sends a message to an agent.
pub fn agent(name: &str, description: &str) -> Tool {
    let description = if description.is_empty() { NO_DESCRIPTION } else { description };
    let schema = schema(json!({
        "type": "object",
        "properties": {
            "message": {"type": "string", "description": "What to say to the agent. Empty: follows \
                what the conversation does already, or repeats its last answer."},
            "conversation_id": {"type": "string", "pattern": "^[A-Za-z0-9_.:-]{1,128}$",
                "description": "The conversation to go on with, or the id of a new one. Absent: a \
                    new conversation, whose id the result has."},
        },
        "required": ["message"],
        "additionalProperties": false,
    }));
    let annotations =
        ToolAnnotations::from_raw(None, Some(false), Some(false), Some(false), Some(true));
    Tool::new(name.to_owned(), description.to_owned(), schema).with_annotations(annotations)
}

/// The tool that lists what waits for somebody.
pub fn pending() -> Tool {
    let description = "Lists the calls of agents that wait for a person: approvals, questions, and \
        calls of a page. People answer them elsewhere; this tool cannot.";
    let schema = schema(json!({
        "type": "object",
        "properties": {
            "conversation": {"type": "string", "description": "Only those of this conversation."},
            "agent": {"type": "string", "description": "Only those of this agent."},
            "limit": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 50},
            "cursor": {"type": "string", "description": "The cursor of the page before."},
        },
        "additionalProperties": false,
    }));
    Tool::new(PENDING, description, schema).with_annotations(read_only())
}

/// The tool that reads a conversation.
pub fn conversation() -> Tool {
    let description = "Reads the state of a conversation with an agent: whether a turn runs, what \
        it waits for, and what it used.";
    let schema = schema(json!({
        "type": "object",
        "properties": {"conversation_id": {"type": "string"}},
        "required": ["conversation_id"],
        "additionalProperties": false,
    }));
    Tool::new(CONVERSATION, description, schema).with_annotations(read_only())
}

fn read_only() -> ToolAnnotations {
    ToolAnnotations::from_raw(None, Some(true), None, None, Some(false))
}

fn schema(schema: Value) -> JsonObject {
    match schema {
        Value::Object(schema) => schema,
        _ => JsonObject::new(),
    }
}
