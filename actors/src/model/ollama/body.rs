//! Writes the body of a chat request.

use std::borrow::Cow;
use std::collections::HashMap;

use abide_conversation::message::blocks::{BlockKind, Media, Source, as_text, texts};
use abide_conversation::message::{CallRef, Message, MessageRole};
use serde_json::{Map, Value, json};

use super::PROVIDER;
use crate::model::http::media::image_type;
use crate::model::http::message_body::{args_object, assistant_text, sanitize_name};
use crate::model::http::options::merge;
use crate::model::openai::tool;
use crate::model::{ModelRequest, ModelSettings};

/// The instruction in front of the answer's schema.
const SCHEMA_PROMPT: &str =
    "When you have what you need, answer with nothing but JSON that satisfies this JSON Schema: ";

/// The names of the calls so far, by their ids: a result names its call by both.
type CallNames<'a> = HashMap<&'a str, &'a str>;

/// Renders the body of a request.
///
/// A prompt longer than the server's window is to be refused: by default the server silently drops
/// its beginning. The definition's `window`, if it has one, becomes the server's window.
pub(super) fn render(request: &ModelRequest) -> Value {
    let settings = &request.settings;
    let tools = request.tools.iter().filter_map(|spec| tool::definition(spec, PROVIDER));
    let tools: Vec<Value> = tools.collect();
    let system = system_prompt(request, !tools.is_empty());
    let mut names = CallNames::new();
    let mut messages = Vec::new();
    if !system.is_empty() {
        messages.push(json!({"role": "system", "content": system}));
    }
    for source in &request.messages {
        let called = source.tool_calls.iter();
        names.extend(called.map(|call| (call.id.as_str(), call.name.as_str())));
        messages.push(message(request, source, &names));
    }
    let mut body = json!({
        "model": settings.name,
        "messages": messages,
        "stream": true,
        "truncate": false,
        "shift": false,
    });
    let options = options(settings);
    if !options.is_empty() {
        body["options"] = options.into();
    }
    match (&request.schema, tools.is_empty()) {
        (Some(schema), true) => body["format"] = schema.clone(),
        (None, true) => {}
        (_, false) => body["tools"] = tools.into(),
    }
    if let Some(body) = body.as_object_mut() {
        merge(body, &settings.options);
    }
    body
}

/// With a `format` the model can write nothing but the answer, so it could never call a tool. If
/// there are tools, the schema is therefore added to the system prompt.
fn system_prompt(request: &ModelRequest, has_tools: bool) -> String {
    let schema = request.schema.as_ref().filter(|_| has_tools);
    let instruction = schema.map(|schema| format!("{SCHEMA_PROMPT}{schema}"));
    let system = [Some(request.system.as_str()), instruction.as_deref()];
    let parts = system.into_iter().flatten().filter(|text| !text.is_empty());
    parts.collect::<Vec<&str>>().join("\n\n")
}

fn options(settings: &ModelSettings) -> Map<String, Value> {
    let options = [
        ("temperature", settings.temperature.map(Value::from)),
        ("num_predict", settings.max_tokens.map(Value::from)),
        ("num_ctx", settings.window.map(Value::from)),
    ];
    options.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

fn message(request: &ModelRequest, message: &Message, names: &CallNames<'_>) -> Value {
    match message.role {
        MessageRole::User => user_message(&message.content),
        MessageRole::Assistant => assistant_message(request, message),
        MessageRole::Tool => {
            let id = message.tool_call_id.as_ref().map(|id| id.as_str()).unwrap_or_default();
            let called = sanitize_name(names.get(id).copied().unwrap_or_default());
            let text = texts(&message.content).join("\n");
            json!({"role": "tool", "tool_call_id": id, "tool_name": called, "content": text})
        }
    }
}

fn assistant_message(request: &ModelRequest, message: &Message) -> Value {
    let mut rendered = json!({"role": "assistant", "content": assistant_text(message)});
    if let Some(thinking) = thinking(request, message) {
        rendered["thinking"] = thinking.clone();
    }
    let call = |call: &CallRef| {
        let function = json!({"name": sanitize_name(&call.name), "arguments": args_object(call)});
        json!({"id": call.id, "function": function})
    };
    let calls: Vec<Value> = message.tool_calls.iter().map(call).collect();
    if !calls.is_empty() {
        rendered["tool_calls"] = calls.into();
    }
    rendered
}

/// The thinking of the same model before its calls.
fn thinking<'a>(request: &'a ModelRequest, message: &Message) -> Option<&'a Value> {
    let verbatim = request.verbatim.get(&message.id)?;
    let own = verbatim.provider == PROVIDER && verbatim.model == request.settings.name;
    verbatim.items.iter().filter(|_| own).find_map(|item| item.get("thinking"))
}

/// A user's message: its images, and everything else as text.
fn user_message(blocks: &[Value]) -> Value {
    let mut images = Vec::new();
    let mut texts: Vec<Cow<'_, str>> = Vec::new();
    for block in blocks {
        match image(block) {
            Some(image) => images.push(image),
            None => texts.extend(as_text(block)),
        }
    }
    if images.is_empty() {
        json!({"role": "user", "content": texts.join("\n")})
    } else {
        json!({"role": "user", "content": texts.join("\n"), "images": images})
    }
}

/// The bytes of an image that the server can decode; the server fetches none.
fn image(block: &Value) -> Option<&str> {
    match Media::of(block).ok()? {
        Media {
            kind: BlockKind::Image | BlockKind::GeneratedImage,
            source: Source::Base64 { media_type, data },
            ..
        } => {
            // The only one of the types that the server cannot decode.
            let known = image_type(media_type).filter(|known| *known != "image/gif");
            known.is_some().then_some(data)
        }
        _ => None,
    }
}
