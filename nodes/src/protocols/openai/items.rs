//! The items of a response's output and input.

use abide_conversation::CallId;
use abide_conversation::event::{Executor, SuspensionKind};
use abide_conversation::message::blocks::BlockKind;
use abide_conversation::message::{ErrorType, Outcome};
use serde_json::{Value, json};

use crate::protocols::feed::SuspendedCall;

/// The label of the server whose tools are those of agents.
pub const SERVER_LABEL: &str = "abide";
/// What the ids of approval requests begin with.
const APPROVAL_PREFIX: &str = "mcpr_";

/// The id of the request for an approval.
pub fn approval_id(call: &CallId, suspension: u32) -> String {
    format!("{APPROVAL_PREFIX}{call}.{suspension}")
}

/// The call and the number of the suspension in the id of a request. A call's id may have dots.
pub fn parse_approval_id(id: &str) -> Option<(CallId, u32)> {
    let (call, number) = id.strip_prefix(APPROVAL_PREFIX)?.rsplit_once('.')?;
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    let number = number.parse().ok().filter(|number| is_number && *number > 0)?;
    (!call.is_empty()).then(|| (CallId::new(call), number))
}

/// The id by which clients answer a question, or a call of theirs. A tool that runs may ask several
/// times: each of its questions has an id of its own.
pub fn answer_id(call: &CallId, suspension: u32, executor: Executor) -> String {
    match executor {
        Executor::Server | Executor::Provider => format!("{call}.{suspension}"),
        Executor::Client | Executor::Human => call.to_string(),
    }
}

/// A message of the model. Its text may still grow.
pub fn message(id: &str, status: &str, phase: Option<&str>, text: Option<&str>) -> Value {
    let content: Vec<Value> = text.map(output_text).into_iter().collect();
    let mut item = json!({"id": id, "type": "message", "role": "assistant", "status": status,
        "content": content});
    if let Some(phase) = phase {
        item["phase"] = json!(phase);
    }
    item
}

/// The text of a message.
pub fn output_text(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

/// The id of the thinking before a message.
pub fn reasoning_id(message: &str) -> String {
    format!("rs_{message}")
}

/// The thinking before a message.
pub fn reasoning(message: &str, status: &str, summary: Option<&str>) -> Value {
    let summary: Vec<Value> = summary.map(summary_text).into_iter().collect();
    json!({"id": reasoning_id(message), "type": "reasoning", "status": status, "summary": summary})
}

/// A part of the summary of thinking: Abide shows all of it.
pub fn summary_text(text: &str) -> Value {
    json!({"type": "summary_text", "text": text})
}

/// What a client is asked for: an approval, or the result of a call.
pub fn question(call: &SuspendedCall) -> Value {
    let arguments = call.args.to_string();
    match call.kind {
        SuspensionKind::Approval => json!({
            "id": approval_id(&call.call, call.suspension), "type": "mcp_approval_request",
            "server_label": SERVER_LABEL, "name": call.tool, "arguments": arguments}),
        SuspensionKind::Elicitation | SuspensionKind::ClientExec | SuspensionKind::InDoubt => {
            let id = answer_id(&call.call, call.suspension, call.executor);
            json!({"id": format!("fc_{id}"), "type": "function_call", "call_id": id,
                "name": call.tool, "arguments": arguments, "status": "completed"})
        }
    }
}

/// A call that the server has executed. Without an outcome, it is about to be told.
pub fn server_call(call: &CallId, tool: &str, args: &Value, outcome: Option<&Outcome>) -> Value {
    let status = match outcome {
        None => "in_progress",
        Some(Outcome::Ok(_)) => "completed",
        Some(Outcome::Err(..)) => "failed",
    };
    let (output, error) = match outcome {
        None => (Value::Null, Value::Null),
        Some(Outcome::Ok(result)) => (json!(text_of(result)), Value::Null),
        Some(Outcome::Err(error, kind)) => (Value::Null, execution_error(error, *kind)),
    };
    json!({"id": format!("mcp_{call}"), "type": "mcp_call", "server_label": SERVER_LABEL,
        "name": tool, "arguments": args.to_string(), "status": status, "output": output,
        "error": error, "approval_request_id": null})
}

fn execution_error(error: &str, kind: ErrorType) -> Value {
    json!({"type": "mcp_tool_execution_error",
        "content": [{"type": "text", "text": error, "error_type": kind}]})
}

/// A value as text: text itself, any other value as JSON.
pub fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A result that a client gave a call: parts, if it has media, and else text.
pub fn function_output(result: &Value) -> Value {
    let blocks = result.as_array().filter(|blocks| {
        let kinds = || blocks.iter().map(BlockKind::of);
        kinds().all(|kind| kind.is_some()) && kinds().flatten().any(BlockKind::is_media)
    });
    match blocks {
        Some(blocks) => blocks.iter().map(input_part).collect(),
        None => json!(text_of(result)),
    }
}

/// The message of a user.
pub fn user_message(id: &str, content: &[Value]) -> Value {
    let parts: Vec<Value> = content.iter().map(input_part).collect();
    json!({"id": id, "type": "message", "role": "user", "status": "completed", "content": parts})
}

/// The part of a block. What is neither text nor an image or file that a client can fetch is text.
fn input_part(block: &Value) -> Value {
    let source = &block["source"];
    let media = source["mimeType"].as_str().unwrap_or("application/octet-stream");
    let url = match source["type"].as_str() {
        Some("url") => source["url"].as_str().map(str::to_owned),
        Some("blob") => source["blobId"].as_str().map(|id| format!("/v1/blobs/{id}")),
        Some("base64") => source["data"].as_str().map(|data| format!("data:{media};base64,{data}")),
        _ => None,
    };
    match (BlockKind::of(block), url) {
        (Some(BlockKind::Text), _) => json!({"type": "input_text", "text": block["text"]}),
        (Some(BlockKind::Image), Some(url)) => {
            json!({"type": "input_image", "image_url": url, "detail": "auto", "file_id": null})
        }
        (_, Some(url)) => json!({"type": "input_file", "file_url": url}),
        (_, None) => json!({"type": "input_text", "text": block.to_string()}),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_an_approval_names_the_call_and_its_suspension() {
        for (call, number) in [("a", 1), ("call.1", 2), ("a.2", 10)] {
            let id = approval_id(&CallId::new(call), number);
            assert_eq!(parse_approval_id(&id), Some((CallId::new(call), number)));
        }
        for wrong in ["", "a.1", "mcpr_", "mcpr_a", "mcpr_.1", "mcpr_a.0", "mcpr_a.+1", "mcpr_a.x"]
        {
            assert_eq!(parse_approval_id(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_result_with_media_has_parts_and_any_other_is_text() {
        let image =
            json!({"type": "image", "source": {"type": "url", "url": "https://a.example/b"}});
        let parts = function_output(&json!([{"type": "text", "text": "here"}, image]));
        assert_eq!(parts[0], json!({"type": "input_text", "text": "here"}));
        assert_eq!(parts[1]["image_url"], "https://a.example/b");
        assert_eq!(function_output(&json!("here")), "here");
        for result in [json!([]), json!([1]), json!([{"type": "text", "text": "x"}])] {
            assert_eq!(function_output(&result), result.to_string());
        }
    }

    #[test]
    fn each_question_of_a_tool_that_runs_has_an_id_of_its_own() {
        let call = CallId::new("a");
        let [first, second] = [1, 2].map(|number| answer_id(&call, number, Executor::Server));
        assert_ne!(first, second);
        assert_eq!(answer_id(&call, 2, Executor::Client), "a");
    }
}
