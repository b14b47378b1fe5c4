//! The problems that each operation may answer with.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::{a2a, mcp, openai, schemas};
use crate::problem::Kind;

/// The problems that every operation may answer with.
const COMMON: [Kind; 7] = [
    Kind::InvalidRequest,
    Kind::Unauthorized,
    Kind::Forbidden,
    Kind::Overloaded,
    Kind::QuotaExceeded,
    Kind::Unavailable,
    Kind::Internal,
];

/// Adds the schema of a problem, and to each operation the problems that it may answer with.
pub(super) fn describe(document: &mut Value) {
    schemas(document)["Problem"] = problem();
    schemas(document)["OpenAiError"] = openai::error();
    schemas(document)["A2aError"] = a2a::error();
    let mut responses = json!({});
    let Value::Object(paths) = &mut document["paths"] else { return };
    for (_, item) in paths {
        let Value::Object(operations) = item else { continue };
        for (_, operation) in operations {
            let id = operation["operationId"].as_str().unwrap_or_default();
            let kinds = specific(id).unwrap_or_default();
            let is_mcp = id.starts_with(mcp::PREFIX);
            if id.starts_with(openai::PREFIX) {
                openai::describe(operation, kinds.iter().chain(&COMMON));
                continue;
            }
            if id == a2a::OPERATION {
                a2a::describe(operation, kinds.iter().chain(&COMMON));
                continue;
            }
            for (status, kinds) in by_status(kinds, may_be_unreadable(operation)) {
                let name = name(status, &kinds);
                let at = format!("#/components/responses/{name}");
                operation["responses"][status.as_str()] = json!({"$ref": at});
                responses[name] = response(status, &kinds);
            }
            if is_mcp {
                mcp::describe(operation);
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

/// The problems of an operation in addition to the common ones; `None` for an unknown operation.
fn specific(operation: &str) -> Option<&'static [Kind]> {
    use Kind::{
        AgentMissing, AlreadyDelivered, ApprovalForbidden, ApprovalRequired, CallNotOpen,
        ConversationExists, LeaseLost, NotFound, PayloadTooLarge, TurnInFlight,
    };
    Some(match operation {
        "put_agent" | "put_blob" => &[PayloadTooLarge],
        "roll_back_agent" | "put_rollout" => &[PayloadTooLarge, NotFound],
        "get_agent"
        | "list_revisions"
        | "get_revision"
        | "compare_revisions"
        | "get_rollout"
        | "end_rollout"
        | "delete_agent"
        | "list_decisions"
        | "list_agent_decisions"
        | "revoke_decision"
        | "revoke_agent_decision"
        | "delete_conversation"
        | "cancel_turn"
        | "list_messages"
        | "read_journal"
        | "stream_events" => &[NotFound],
        "create_conversation" => &[PayloadTooLarge, ConversationExists, AgentMissing],
        "export_conversation" => &[NotFound],
        "import_conversation" => &[PayloadTooLarge, ConversationExists],
        "update_conversation" => &[PayloadTooLarge, NotFound],
        "fork_conversation" => &[PayloadTooLarge, NotFound, ConversationExists, AgentMissing],
        "send_message" => &[PayloadTooLarge, NotFound, TurnInFlight, AgentMissing],
        "chat" | "run_agent" | "run_copilotkit_agent" => {
            &[PayloadTooLarge, ApprovalForbidden, NotFound, TurnInFlight, AgentMissing]
        }
        "connect_copilotkit_agent" => &[PayloadTooLarge, NotFound],
        "resume_chat"
        | "list_chat_messages"
        | "stop_chat"
        | "get_agent_capabilities"
        | "stop_copilotkit_agent" => &[NotFound],
        "openai_create_response" | "openai_create_chat_completion" => {
            &[PayloadTooLarge, ApprovalForbidden, NotFound, TurnInFlight, CallNotOpen]
        }
        "openai_create_conversation" => &[PayloadTooLarge, NotFound, ConversationExists],
        "openai_get_response"
        | "openai_cancel_response"
        | "openai_list_input_items"
        | "openai_get_conversation"
        | "openai_delete_conversation"
        | "openai_list_items" => &[NotFound],
        "openai_list_models" => &[],
        "a2a_call" => &[PayloadTooLarge, ApprovalForbidden, AgentMissing],
        "get_agent_card" => &[NotFound],
        "put_webhook" => &[PayloadTooLarge],
        "rotate_webhook" => &[PayloadTooLarge, NotFound],
        "get_webhook" | "delete_webhook" | "test_webhook" | "list_deliveries" | "redeliver" => {
            &[NotFound]
        }
        "mcp_call_tool" | "mcp_call_agent" => &[PayloadTooLarge, NotFound],
        "resolve_call" => &[PayloadTooLarge, ApprovalForbidden, NotFound, CallNotOpen],
        "extend_call" => &[PayloadTooLarge, ApprovalForbidden, NotFound, CallNotOpen],
        "list_scheduled" | "list_queue" => &[NotFound],
        "withdraw_turn" => &[NotFound, TurnInFlight],
        "rewind_conversation" => &[PayloadTooLarge, NotFound, TurnInFlight],
        "regenerate_turn" => &[PayloadTooLarge, NotFound, TurnInFlight, AgentMissing],
        "put_schedule" => &[PayloadTooLarge, AgentMissing],
        "get_schedule" | "delete_schedule" | "pause_schedule" | "resume_schedule" => &[NotFound],
        "trigger_schedule" => &[NotFound, TurnInFlight, AgentMissing],
        "list_schedules" | "stream_pending" => &[],
        "resolve_many" => &[PayloadTooLarge, NotFound],
        "withdraw_scheduled" => &[NotFound, AlreadyDelivered],
        "resolve_calls" => &[PayloadTooLarge, NotFound],
        "dispatch_tool" => {
            &[PayloadTooLarge, ApprovalForbidden, NotFound, ApprovalRequired, AgentMissing]
        }
        "lease_calls" => &[PayloadTooLarge, NotFound],
        "extend_lease" | "report_progress" | "complete_call" => &[PayloadTooLarge, LeaseLost],
        "call_back" => &[PayloadTooLarge, NotFound, CallNotOpen],
        "get_state" | "delete_state" => &[NotFound],
        "put_state" => &[PayloadTooLarge, NotFound],
        "create_key" | "start_erasure" => &[PayloadTooLarge],
        "mint_token" => &[PayloadTooLarge, NotFound, CallNotOpen],
        "get_conversation" | "get_blob" | "list_blobs" | "revoke_key" | "get_erasure" => {
            &[NotFound]
        }
        "list_agents"
        | "get_openapi"
        | "get_me"
        | "get_usage"
        | "list_keys"
        | "list_webhooks"
        | "list_erasures"
        | "list_conversations"
        | "list_pending"
        | "get_copilotkit_info" => &[],
        _ => return None,
    })
}

/// Whether a request may have a path or a body that cannot be parsed: 400.
fn may_be_unreadable(operation: &Value) -> bool {
    let parameters = operation["parameters"].as_array();
    operation.get("requestBody").is_some()
        || parameters.is_some_and(|all| all.iter().any(|one| one["in"] == "path"))
}

fn by_status(specific: &[Kind], may_be_unreadable: bool) -> Vec<(StatusCode, Vec<Kind>)> {
    let too_large = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
    let mut all = vec![(too_large, vec![Kind::InvalidRequest])];
    if may_be_unreadable {
        all.push((StatusCode::BAD_REQUEST, vec![Kind::InvalidRequest]));
    }
    for kind in specific.iter().chain(&COMMON) {
        match all.iter_mut().find(|(status, _)| *status == kind.status()) {
            Some((_, kinds)) => kinds.push(*kind),
            None => all.push((kind.status(), vec![*kind])),
        }
    }
    all.sort_by_key(|(status, _)| *status);
    all
}

fn response(status: StatusCode, kinds: &[Kind]) -> Value {
    let names: Vec<String> = kinds.iter().map(|kind| format!("`{}`", kind.name())).collect();
    let mut examples = json!({});
    for kind in kinds {
        examples[kind.name()] = json!({"value": {
            "type": kind.uri(), "title": kind.title(), "status": status.as_u16(),
            "detail": "The exact error, beginning with the name of the field, if there is one.",
            "instance": "urn:uuid:5d0b9e7c-6c0b-4d0e-8c39-0f6a2f3c9c11",
        }});
    }
    let schema = json!({"$ref": "#/components/schemas/Problem"});
    let mut response = json!({
        "description": format!("{}: {}.", description(status), names.join(", ")),
        "content": {"application/problem+json": {"schema": schema, "examples": examples}},
    });
    let passing = [Kind::Overloaded.status(), Kind::Unavailable.status()];
    if passing.contains(&status) {
        response["headers"] = json!({"Retry-After": {
            "description": "Seconds to wait before trying again.",
            "schema": {"type": "integer", "minimum": 0},
        }});
    }
    response
}

fn description(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST => "The request cannot be read",
        StatusCode::FORBIDDEN => "The `Host` is no address and no name of the node",
        StatusCode::NOT_FOUND => "Something that the request names does not exist",
        StatusCode::CONFLICT => "The current state does not allow the request",
        StatusCode::PAYLOAD_TOO_LARGE => "The body is larger than 1 MiB, or a blob than 20 MiB",
        StatusCode::UNPROCESSABLE_ENTITY => "A field is wrong; `detail` names it",
        StatusCode::TOO_MANY_REQUESTS => "A limit on concurrent or queued work is reached",
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => "The headers are larger than 32 KiB",
        StatusCode::SERVICE_UNAVAILABLE => {
            "The store is unavailable, the node drains, or the conversation's holder died"
        }
        _ => "A bug; the node's log has the details under the same `instance`",
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
            "detail": {"type": "string", "description": "For people; begins with the name of the field, if there is one."},
            "instance": {"type": "string", "format": "uri",
                "description": "Identifies this occurrence; the node's log has it, too."},
            "errors": {"type": "array",
                "description": "All errors of an agent definition.",
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
    fn every_operation_lists_its_problems() {
        let document = json!(crate::http::routes().into_parts().1);
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let id = operation["operationId"].as_str().unwrap();
                assert!(specific(id).is_some(), "{method} {path} ({id})");
            }
        }
    }
}
