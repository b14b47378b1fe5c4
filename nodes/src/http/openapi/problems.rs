//! Which problems each operation may answer with.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::schemas;
use crate::http::problem::Kind;

/// Every operation may meet these.
const ALWAYS: [Kind; 3] = [Kind::Overloaded, Kind::Unavailable, Kind::Internal];

/// Adds the schema of a problem, and to each operation the problems that it may answer with.
pub(super) fn describe(document: &mut Value) {
    schemas(document)["Problem"] = problem();
    let mut responses = json!({});
    let Value::Object(paths) = &mut document["paths"] else { return };
    for (_, item) in paths {
        let Value::Object(operations) = item else { continue };
        for (_, operation) in operations {
            let own = operation["operationId"].as_str().and_then(own).unwrap_or_default();
            for (status, kinds) in by_status(own, unreadable(operation)) {
                let name = name(status, &kinds);
                let at = format!("#/components/responses/{name}");
                operation["responses"][status.as_str()] = json!({"$ref": at});
                responses[name] = response(status, &kinds);
            }
        }
    }
    document["components"]["responses"] = responses;
}

/// The name of a component, such as `409-call-not-open`.
fn name(status: StatusCode, kinds: &[Kind]) -> String {
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
    format!("{}-{}", status.as_str(), names.join("-"))
}

/// The problems that an operation has of its own; `None` for an unknown one.
fn own(operation: &str) -> Option<&'static [Kind]> {
    use Kind::{
        AgentMissing, ApprovalRequired, CallNotOpen, ConversationExists, InvalidRequest, NotFound,
        PayloadTooLarge, TurnInFlight,
    };
    Some(match operation {
        "put_agent" | "put_blob" => &[InvalidRequest, PayloadTooLarge],
        "list_conversations" | "list_pending" => &[InvalidRequest],
        "get_agent"
        | "delete_agent"
        | "list_decisions"
        | "list_agent_decisions"
        | "revoke_decision"
        | "revoke_agent_decision"
        | "delete_conversation"
        | "cancel_turn"
        | "list_messages"
        | "read_journal"
        | "stream_events" => &[InvalidRequest, NotFound],
        "create_conversation" => {
            &[InvalidRequest, PayloadTooLarge, ConversationExists, AgentMissing]
        }
        "fork_conversation" => {
            &[InvalidRequest, PayloadTooLarge, NotFound, ConversationExists, AgentMissing]
        }
        "send_message" => &[InvalidRequest, PayloadTooLarge, NotFound, TurnInFlight, AgentMissing],
        "resolve_call" => &[InvalidRequest, PayloadTooLarge, NotFound, CallNotOpen],
        "dispatch_tool" => {
            &[InvalidRequest, PayloadTooLarge, NotFound, ApprovalRequired, AgentMissing]
        }
        "get_conversation" | "get_blob" => &[NotFound],
        "list_agents" | "get_openapi" => &[],
        _ => return None,
    })
}

/// Whether a request may be one that cannot even be read.
fn unreadable(operation: &Value) -> bool {
    let parameters = operation["parameters"].as_array();
    operation.get("requestBody").is_some()
        || parameters.is_some_and(|all| all.iter().any(|one| one["in"] == "path"))
}

fn by_status(own: &[Kind], unreadable: bool) -> Vec<(StatusCode, Vec<Kind>)> {
    let large = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
    let mut all = vec![(large, vec![Kind::InvalidRequest])];
    if unreadable {
        all.push((StatusCode::BAD_REQUEST, vec![Kind::InvalidRequest]));
    }
    for kind in own.iter().chain(&ALWAYS) {
        match all.iter_mut().find(|(status, _)| *status == kind.status()) {
            Some((_, kinds)) => kinds.push(*kind),
            None => all.push((kind.status(), vec![*kind])),
        }
    }
    all.sort_by_key(|(status, _)| *status);
    all
}

fn response(status: StatusCode, kinds: &[Kind]) -> Value {
    let types: Vec<String> = kinds.iter().map(|kind| kind.uri()).collect();
    let names: Vec<String> = kinds.iter().map(|kind| format!("`{}`", kind.name())).collect();
    let mut examples = json!({});
    for kind in kinds {
        examples[kind.name()] = json!({"value": {
            "type": kind.uri(), "title": kind.title(), "status": status.as_u16(),
            "detail": "What exactly, naming the field if it is one.",
            "instance": "urn:uuid:5d0b9e7c-6c0b-4d0e-8c39-0f6a2f3c9c11",
        }});
    }
    let schema = json!({"allOf": [
        {"$ref": "#/components/schemas/Problem"},
        {"type": "object", "properties": {
            "type": {"type": "string", "enum": types},
            "status": {"type": "integer", "enum": [status.as_u16()]},
        }},
    ]});
    let mut response = json!({
        "description": format!("{}: {}.", why(status), names.join(", ")),
        "content": {"application/problem+json": {"schema": schema, "examples": examples}},
    });
    let again = [Kind::Overloaded.status(), Kind::Unavailable.status()];
    if again.contains(&status) {
        response["headers"] = json!({"Retry-After": {
            "description": "Seconds to wait before trying again.",
            "schema": {"type": "integer", "minimum": 0},
        }});
    }
    response
}

fn why(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST => "The request cannot be read",
        StatusCode::NOT_FOUND => "There is no such thing",
        StatusCode::CONFLICT => "The state does not allow it",
        StatusCode::PAYLOAD_TOO_LARGE => "The body is larger than 1 MiB, or a blob than 20 MiB",
        StatusCode::UNPROCESSABLE_ENTITY => "A field is wrong; `detail` names it",
        StatusCode::TOO_MANY_REQUESTS => "Too much waits here already",
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => "The headers are larger than 32 KiB",
        StatusCode::SERVICE_UNAVAILABLE => "The store is away, the node drains, or the holder died",
        _ => "A bug; the log has more under the same `instance`",
    }
}

fn problem() -> Value {
    json!({
        "type": "object",
        "description": "An error (RFC 9457). Switch on `type`.",
        "required": ["type", "title", "status", "detail", "instance"],
        "properties": {
            "type": {"type": "string", "format": "uri-reference",
                "enum": Kind::ALL.map(Kind::uri)},
            "title": {"type": "string"},
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "detail": {"type": "string", "description": "For people; names the field, if any."},
            "instance": {"type": "string", "format": "uri",
                "description": "Of this occurrence; the log has it too."},
            "errors": {"type": "array",
                "description": "All mistakes of a definition.",
                "items": {"type": "object", "required": ["tool", "field", "message"],
                    "properties": {
                        "tool": {"type": ["string", "null"]},
                        "field": {"type": "string"},
                        "message": {"type": "string"},
                    }}},
        },
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_says_which_problems_it_has() {
        let document = json!(crate::http::routes().into_openapi());
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let id = operation["operationId"].as_str().unwrap();
                assert!(own(id).is_some(), "{method} {path} ({id})");
            }
        }
    }
}
