//! Writes the body of a request for chat completions.

use abide_conversation::message::blocks::texts;
use abide_conversation::message::{Message, MessageRole};
use serde_json::{Value, json};

use super::part::render_part;
use super::tool;
use crate::model::ModelRequest;
use crate::model::http::ids::sanitize_id as legal_id;
use crate::model::http::message_body::{args_object, assistant_text, sanitize_name};
use crate::model::http::options::merge;

/// The longest id of a call.
const MAX_ID_CHARS: usize = 40;

/// The longest cache key, which is the conversation's id unless that is longer.
const MAX_CACHE_KEY_CHARS: usize = 64;

/// Renders the body of a request. `own` says that the server is OpenAI's. Its newer models accept
/// only the new name of the token limit, while other servers often know only the old one; and only
/// its cache is certain to have keys.
pub(super) fn render(request: &ModelRequest, own: bool) -> Value {
    let settings = &request.settings;
    let system =
        (!request.system.is_empty()).then(|| json!({"role": "system", "content": request.system}));
    let messages: Vec<Value> =
        system.into_iter().chain(request.messages.iter().map(message)).collect();
    let mut body = json!({
        "model": settings.name,
        "messages": messages,
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    let tools: Vec<Value> =
        request.tools.iter().filter_map(|spec| tool::definition(spec, "openai")).collect();
    if !tools.is_empty() {
        body["tools"] = tools.into();
    }
    if let Some(temperature) = settings.temperature {
        body["temperature"] = json!(temperature);
    }
    if let Some(limit) = settings.max_tokens {
        body[if own { "max_completion_tokens" } else { "max_tokens" }] = json!(limit);
    }
    if own {
        body["prompt_cache_key"] = legal_id(&request.cache_key, MAX_CACHE_KEY_CHARS).into();
    }
    if let Some(schema) = &request.schema {
        let shape = json!({"name": "answer", "schema": schema});
        body["response_format"] = json!({"type": "json_schema", "json_schema": shape});
    }
    if let Some(body) = body.as_object_mut() {
        merge(body, &settings.options);
    }
    body
}

fn message(message: &Message) -> Value {
    match message.role {
        MessageRole::User => json!({"role": "user", "content": user_content(&message.content)}),
        MessageRole::Assistant => assistant(message),
        MessageRole::Tool => {
            let id = message.tool_call_id.as_ref().map(|id| id.as_str()).unwrap_or_default();
            let text = texts(&message.content).join("\n");
            json!({"role": "tool", "tool_call_id": legal_id(id, MAX_ID_CHARS), "content": text})
        }
    }
}

fn assistant(message: &Message) -> Value {
    let text = assistant_text(message);
    let calls: Vec<Value> = message.tool_calls.iter().map(call).collect();
    match (text.is_empty(), calls.is_empty()) {
        (_, true) => json!({"role": "assistant", "content": text}),
        (true, false) => json!({"role": "assistant", "content": null, "tool_calls": calls}),
        (false, false) => json!({"role": "assistant", "content": text, "tool_calls": calls}),
    }
}

fn call(call: &abide_conversation::message::CallRef) -> Value {
    let function =
        json!({"name": sanitize_name(&call.name), "arguments": args_object(call).to_string()});
    json!({"id": legal_id(call.id.as_str(), MAX_ID_CHARS), "type": "function", "function": function})
}

/// Plain text if every part is text, since not every server accepts parts.
fn user_content(blocks: &[Value]) -> Value {
    let parts: Vec<Value> = blocks.iter().filter_map(render_part).collect();
    if parts.iter().all(|part| part["type"] == "text") {
        let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
        return texts.join("\n").into();
    }
    Value::Array(parts)
}
