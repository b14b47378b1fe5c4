//! Writes the body of a `streamGenerateContent` request.

use abide_conversation::message::blocks::texts;
use abide_conversation::message::{CallRef, Message, MessageRole};
use serde_json::{Map, Value, json};

use super::part::{render_part, text_part};
use super::{PROVIDER, tool};
use crate::model::ModelRequest;
use crate::model::http::message_body::{args_object, assistant_text};
use crate::model::http::options::merge;

/// The longest name of a function.
const MAX_NAME_CHARS: usize = 128;

/// Replaces a required signature that is missing: the provider's own value for a call that its
/// model did not make, or whose signature is lost.
const SIGNATURE_PLACEHOLDER: &str = "skip_thought_signature_validator";

/// Renders the body of a request. There are no cache marks: the provider recognizes a known prefix
/// by itself.
pub(super) fn render(request: &ModelRequest) -> Value {
    let settings = &request.settings;
    let strict = is_generation_3(&settings.name);
    let tools = tool::definitions(&request.tools);
    let mut system = request.system.clone();
    let mut config = Map::new();
    if let Some(temperature) = settings.temperature {
        config.insert("temperature".to_owned(), json!(temperature));
    }
    if let Some(limit) = settings.max_tokens {
        config.insert("maxOutputTokens".to_owned(), json!(limit));
    }
    match &request.schema {
        Some(schema) if strict || tools.is_empty() => {
            config.insert("responseMimeType".to_owned(), "application/json".into());
            config.insert("responseJsonSchema".to_owned(), schema.clone());
        }
        // Older models refuse a schema together with tools.
        Some(schema) => {
            let instruction = "Answer with nothing but JSON that satisfies this schema:";
            system = format!("{system}\n\n{instruction} {schema}").trim_start().to_owned();
        }
        None => {}
    }
    let mut body = Map::new();
    if !system.is_empty() {
        body.insert("systemInstruction".to_owned(), json!({"parts": [text_part(&system)]}));
    }
    if tool::mixes_kinds(&tools) {
        // Required if a request declares both kinds of tools.
        let mode = json!({"includeServerSideToolInvocations": true});
        body.insert("toolConfig".to_owned(), mode);
    }
    if !tools.is_empty() {
        body.insert("tools".to_owned(), tools.into());
    }
    body.insert("contents".to_owned(), contents(request, strict).into());
    if !config.is_empty() {
        body.insert("generationConfig".to_owned(), config.into());
    }
    merge(&mut body, &settings.options);
    Value::Object(body)
}

/// Whether the model belongs to the third generation or a later one: those refuse a call without a
/// signature, and accept a schema together with tools.
fn is_generation_3(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or_default();
    !["gemini-1", "gemini-2", "gemma-", "learnlm-"].iter().any(|older| name.starts_with(older))
}

/// The messages as contents, without those that have no parts, which the API refuses. The results
/// of one message's calls become one content.
fn contents(request: &ModelRequest, strict: bool) -> Vec<Value> {
    let mut contents: Vec<(&str, Vec<Value>)> = Vec::new();
    let mut calls: &[CallRef] = &[];
    let mut is_result = false;
    for message in &request.messages {
        let after_result = std::mem::replace(&mut is_result, message.role == MessageRole::Tool);
        let content = match message.role {
            MessageRole::User => ("user", message.content.iter().filter_map(render_part).collect()),
            MessageRole::Assistant => {
                calls = &message.tool_calls;
                ("model", assistant_parts(request, message, strict))
            }
            MessageRole::Tool => ("user", vec![function_response(message, calls)]),
        };
        match contents.last_mut().filter(|_| after_result && is_result) {
            Some((_, parts)) => parts.extend(content.1),
            None => contents.push(content),
        }
    }
    let nonempty = contents.into_iter().filter(|(_, parts)| !parts.is_empty());
    nonempty.map(|(role, parts)| json!({"role": role, "parts": parts})).collect()
}

fn assistant_parts(request: &ModelRequest, message: &Message, strict: bool) -> Vec<Value> {
    let verbatim = request.verbatim.get(&message.id).filter(|it| it.provider == PROVIDER);
    let replayed = verbatim.and_then(|it| {
        let parts = replay(&it.items, &message.tool_calls)?;
        Some((parts, is_generation_3(&it.model)))
    });
    let (mut parts, signed) = replayed.unwrap_or_else(|| (render_parts(message), false));
    let mut calls = parts.iter_mut().filter(|part| part.get("functionCall").is_some());
    // Only the first of parallel calls is signed.
    if let Some(Value::Object(first)) = calls.next().filter(|_| strict && !signed) {
        first.entry("thoughtSignature").or_insert(SIGNATURE_PLACEHOLDER.into());
    }
    parts
}

/// The parts as they arrived, with the call ids that the results name; `None` if the message does
/// not have the same calls.
fn replay(items: &[Value], calls: &[CallRef]) -> Option<Vec<Value>> {
    let mut calls = calls.iter();
    let mut parts = items.to_vec();
    for call in parts.iter_mut().filter_map(|part| part.get_mut("functionCall")) {
        let (call, named) = (call.as_object_mut()?, calls.next()?);
        call.insert("id".to_owned(), named.id.as_str().into());
        call.insert("name".to_owned(), sanitize_name(&named.name).into());
    }
    calls.next().is_none().then_some(parts)
}

fn render_parts(message: &Message) -> Vec<Value> {
    let text = assistant_text(message);
    let text = (!text.is_empty()).then(|| text_part(&text));
    let call = |call: &CallRef| {
        let (name, args) = (sanitize_name(&call.name), args_object(call));
        json!({"functionCall": {"id": call.id, "name": name, "args": args}})
    };
    text.into_iter().chain(message.tool_calls.iter().map(call)).collect()
}

/// The result as text: as an object of the API, every number in it would be rounded.
fn function_response(message: &Message, calls: &[CallRef]) -> Value {
    let id = message.tool_call_id.as_ref();
    let call = calls.iter().find(|call| Some(&call.id) == id);
    let name = sanitize_name(call.map(|call| call.name.as_str()).unwrap_or_default());
    let output = texts(&message.content).join("\n");
    json!({"functionResponse": {"id": id, "name": name, "response": {"output": output}}})
}

/// The name in the characters that the API accepts. A model that once invented an illegal name must
/// not make every later request of its conversation fail.
fn sanitize_name(name: &str) -> String {
    let legal = |c: char| match c {
        '-' | '.' | ':' => c,
        c if c.is_ascii_alphanumeric() => c,
        _ => '_',
    };
    let starts_legally = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let first = if starts_legally { "" } else { "_" };
    first.chars().chain(name.chars().map(legal)).take(MAX_NAME_CHARS).collect()
}
