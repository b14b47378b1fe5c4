//! The errors of the operations whose clients are OpenAI's.

use std::collections::BTreeSet;

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::problem::Kind;

/// What the ids of these operations begin with.
pub(super) const PREFIX: &str = "openai_";

/// The schema of an error.
pub(super) fn error() -> Value {
    json!({
        "type": "object",
        "description": "An error in the form that OpenAI's clients read. Switch on `code`.",
        "required": ["error"],
        "properties": {"error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"], "description": "The field that is wrong."},
                "code": {"type": "string"},
            },
        }},
    })
}

/// Adds the errors that an operation may answer with.
pub(super) fn describe<'a>(operation: &mut Value, kinds: impl Iterator<Item = &'a Kind>) {
    let mut statuses: BTreeSet<StatusCode> = kinds.map(|kind| kind.openai_status()).collect();
    statuses.insert(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    if operation["operationId"] == "openai_create_chat_completion" {
        statuses.insert(StatusCode::BAD_GATEWAY);
    }
    let schema = json!({"$ref": "#/components/schemas/OpenAiError"});
    for status in statuses {
        let description = status.canonical_reason().unwrap_or("An error");
        operation["responses"][status.as_str()] = json!({"description": description,
            "content": {"application/json": {"schema": schema}}});
    }
}
