//! The items of an assistant's message: the calls they contain, and the form in which they are sent
//! back.

use abide_conversation::message::{Message, ProviderMessage};
use serde_json::{Map, Value};

use super::body::MAX_ID_CHARS;
use super::tool::HostedTool;
use crate::model::http::ids;
use crate::model::{ModelToolCall, big_numbers};

/// The fields of a run that are not its arguments.
const NON_ARGUMENT_FIELDS: [&str; 9] =
    ["id", "type", "status", "call_id", "result", "results", "output", "outputs", "error"];

/// A request to approve a tool's run, which nobody here can answer.
const APPROVAL_REQUEST: &str = "mcp_approval_request";

/// The items that may be sent back. Left out are reasoning that is not encrypted, since the
/// provider has stored none, trailing reasoning, and calls that nobody has run.
pub(super) fn sendable(items: &[Value]) -> Vec<Value> {
    let is_sendable = |item: &&Value| match kind(item) {
        "reasoning" => item["encrypted_content"].is_string(),
        APPROVAL_REQUEST => false,
        _ => !lacks_output(item, items),
    };
    let mut sendable: Vec<Value> = items.iter().filter(is_sendable).cloned().collect();
    while sendable.last().is_some_and(|item| kind(item) == "reasoning") {
        sendable.pop();
    }
    sendable
}

/// Whether the item holds nothing but text or a call.
pub(super) fn is_plain(item: &Value) -> bool {
    let is_empty = |field: &Value| match field {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => false,
    };
    let is_plain_text = |part: &Value| match part["type"].as_str() {
        Some("output_text") => is_empty(&part["annotations"]),
        kind => kind == Some("refusal"),
    };
    match kind(item) {
        "message" => {
            let parts = item["content"].as_array();
            is_empty(&item["phase"]) && parts.is_none_or(|parts| parts.iter().all(is_plain_text))
        }
        "function_call" => is_empty(&item["namespace"]) && is_empty(&item["caller"]),
        _ => false,
    }
}

/// The call that the item represents, or the run of one of the provider's tools; `None` for any
/// other item. `cut` says that the message was cut short.
pub(super) fn call(
    item: &Value,
    items: &[Value],
    hosted: &[HostedTool],
    cut: bool,
) -> Option<ModelToolCall> {
    let text = |field: &str| item[field].as_str().unwrap_or_default().to_owned();
    let kind = match kind(item) {
        "function_call" => {
            let (id, name) = (text("call_id"), text("name"));
            return Some(ModelToolCall::from_text(id, name, text("arguments"), cut));
        }
        APPROVAL_REQUEST => "mcp",
        _ if lacks_output(item, items) => return None,
        kind => kind.strip_suffix("_call")?,
    };
    Some(ModelToolCall {
        id: text("id"),
        name: HostedTool::name(hosted, kind, item),
        args: Ok(run_args(item)),
        provider_result: Some(run_output(item, items).unwrap_or(item).clone()),
    })
}

/// The items as they arrived, with the call ids by which `message` knows the calls; `None` if the
/// message does not have the same calls.
///
/// Reasoning is encrypted for the model that wrote it: another model gets the remaining items,
/// without the ids by which the provider would look for the reasoning.
pub(super) fn replay(
    verbatim: &ProviderMessage,
    message: &Message,
    model: &str,
) -> Option<Vec<Value>> {
    let mut calls = message.tool_calls.iter();
    let mut replayed = Vec::new();
    for item in &verbatim.items {
        let mut item = item.clone();
        let kind = kind(&item).to_owned();
        let fields = item.as_object_mut()?;
        if kind == "function_call" {
            let id = ids::sanitize_id(calls.next()?.id.as_str(), MAX_ID_CHARS);
            fields.insert("call_id".to_owned(), id.into());
            repair_arguments(fields);
        }
        if verbatim.model != model {
            match kind.as_str() {
                "reasoning" | "compaction" => continue,
                "message" | "function_call" => drop(fields.remove("id")),
                _ => {}
            }
        }
        replayed.push(item);
    }
    calls.next().is_none().then_some(replayed)
}

/// Arguments that were cut short must not make every later request fail.
fn repair_arguments(call: &mut Map<String, Value>) {
    let args = call.get("arguments").and_then(Value::as_str).unwrap_or_default();
    if serde_json::from_str::<Map<String, Value>>(args).is_err() {
        call.insert("arguments".to_owned(), "{}".into());
    }
}

fn kind(item: &Value) -> &str {
    item["type"].as_str().unwrap_or_default()
}

/// The output of a run whose output is an item of its own.
fn run_output<'a>(run: &Value, items: &'a [Value]) -> Option<&'a Value> {
    let id = run["call_id"].as_str()?;
    items.iter().find(|item| item["call_id"] == id && kind(item).ends_with("_output"))
}

/// Whether the item is a call that neither a function nor the provider runs and that has no output:
/// only its runner could write that item.
fn lacks_output(item: &Value, items: &[Value]) -> bool {
    let called = item["call_id"].is_string() && kind(item) != "function_call";
    called && !kind(item).ends_with("_output") && run_output(item, items).is_none()
}

/// The arguments of a run, as far as its item has them.
fn run_args(item: &Value) -> Value {
    let mut args = item.as_object().cloned().unwrap_or_default();
    args.retain(|field, _| !NON_ARGUMENT_FIELDS.contains(&field.as_str()));
    if let Some(Value::String(text)) = args.get("arguments") {
        let read = big_numbers::parse_exact(text.clone()).unwrap_or_else(Value::String);
        args.insert("arguments".to_owned(), read);
    }
    match args.remove("action") {
        Some(Value::Object(action)) => Value::Object(action),
        Some(other) => {
            args.insert("action".to_owned(), other);
            Value::Object(args)
        }
        None => Value::Object(args),
    }
}
