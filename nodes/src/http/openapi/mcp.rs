//! The errors of the MCP server: JSON-RPC's, beside the problems of what comes before a message is read.

use axum::http::StatusCode;
use serde_json::{Value, json};

/// What the ids of these operations begin with.
pub(super) const PREFIX: &str = "mcp_";

/// Adds the statuses with which a message is refused that contradicts its headers, or that has a method
/// of which the server knows nothing.
pub(super) fn describe(operation: &mut Value) {
    for status in [StatusCode::BAD_REQUEST, StatusCode::NOT_FOUND] {
        let description = status.canonical_reason().unwrap_or("An error");
        let problem = json!({"$ref": "#/components/schemas/Problem"});
        operation["responses"][status.as_str()] = json!({"description": description, "content": {
            "application/json": {"schema": {"type": "object"}},
            "application/problem+json": {"schema": problem}}});
    }
}
