//! Writes the body of a request to the Responses API.

use abide_conversation::message::blocks::texts;
use abide_conversation::message::{Message, MessageRole};
use serde_json::{Value, json};

use super::part::render_part;
use super::{ENCRYPTED_REASONING, PROVIDER, item, tool};
use crate::model::ModelRequest;
use crate::model::http::ids;
use crate::model::http::message_body::{args_object, assistant_text, sanitize_name};
use crate::model::http::options::merge;

/// The longest id of a call, and the longest cache key.
pub(super) const MAX_ID_CHARS: usize = 64;

/// Renders the body of a request. `own` says that the server is OpenAI's, whose cache has keys.
///
/// The provider stores nothing: the journal has the conversation, and the encrypted reasoning,
/// which only the provider can read, is requested so that it can be sent back. A model that does
/// not think refuses this and is called again without it; the definition's `options: {include: []}`
/// saves the first attempt.
pub(super) fn render(request: &ModelRequest, own: bool) -> Value {
    let settings = &request.settings;
    let input: Vec<Value> =
        request.messages.iter().flat_map(|it| message_items(request, it)).collect();
    let mut body = json!({
        "model": settings.name,
        "input": input,
        "stream": true,
        "store": false,
        "include": [ENCRYPTED_REASONING],
    });
    if !request.system.is_empty() {
        body["instructions"] = request.system.as_str().into();
    }
    let tools: Vec<Value> = request.tools.iter().filter_map(tool::definition).collect();
    if !tools.is_empty() {
        body["tools"] = tools.into();
    }
    if let Some(temperature) = settings.temperature {
        body["temperature"] = json!(temperature);
    }
    if let Some(limit) = settings.max_tokens {
        body["max_output_tokens"] = json!(limit);
    }
    if let Some(schema) = &request.schema {
        let format = json!({"type": "json_schema", "name": "answer", "schema": schema});
        body["text"] = json!({"format": format});
    }
    if own {
        body["prompt_cache_key"] = ids::sanitize_id(&request.cache_key, MAX_ID_CHARS).into();
    }
    if let Some(body) = body.as_object_mut() {
        merge(body, &settings.options);
    }
    body
}

fn message_items(request: &ModelRequest, message: &Message) -> Vec<Value> {
    match message.role {
        MessageRole::User => {
            vec![json!({"role": "user", "content": user_content(&message.content)})]
        }
        MessageRole::Assistant => {
            let verbatim = request.verbatim.get(&message.id);
            let verbatim = verbatim.filter(|verbatim| verbatim.provider == PROVIDER);
            let replayed = verbatim
                .and_then(|verbatim| item::replay(verbatim, message, &request.settings.name));
            replayed.unwrap_or_else(|| assistant_items(message))
        }
        MessageRole::Tool => {
            let id = message.tool_call_id.as_ref().map(|id| id.as_str()).unwrap_or_default();
            let output = texts(&message.content).join("\n");
            let id = ids::sanitize_id(id, MAX_ID_CHARS);
            vec![json!({"type": "function_call_output", "call_id": id, "output": output})]
        }
    }
}

fn assistant_items(message: &Message) -> Vec<Value> {
    let text = assistant_text(message);
    let text = (!text.is_empty()).then(|| json!({"role": "assistant", "content": text}));
    let calls = message.tool_calls.iter().map(|call| {
        let id = ids::sanitize_id(call.id.as_str(), MAX_ID_CHARS);
        let (name, args) = (sanitize_name(&call.name), args_object(call).to_string());
        json!({"type": "function_call", "call_id": id, "name": name, "arguments": args})
    });
    text.into_iter().chain(calls).collect()
}

/// Plain text if every part is text.
fn user_content(blocks: &[Value]) -> Value {
    let parts: Vec<Value> = blocks.iter().filter_map(render_part).collect();
    if parts.iter().all(|part| part["type"] == "input_text") {
        let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
        return texts.join("\n").into();
    }
    Value::Array(parts)
}
