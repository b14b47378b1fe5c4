//! Writes the body of a request to the Messages API.

use abide_conversation::message::MessageRole;
use serde_json::{Map, Value, json};

use super::message::{AssistantBlocks, assistant_blocks, container, tool_result, user_blocks};
use super::{schema, tool};
use crate::model::ModelRequest;
use crate::model::http::options::merge;

/// The default limit of an answer, in tokens: the API requires a limit, and every model supports
/// this one. The budget for thinking is added.
const DEFAULT_MAX_TOKENS: u64 = 8192;

/// Appended where the provider would otherwise continue an unfinished message, which many models
/// refuse.
const CONTINUE_PROMPT: &str = "[go on]";

/// Renders the body of a request.
pub(super) fn render(request: &ModelRequest) -> Value {
    let settings = &request.settings;
    let options = &settings.options;
    let budget = options.get("thinking").and_then(|it| it.get("budget_tokens")?.as_u64());
    let default_limit = DEFAULT_MAX_TOKENS.saturating_add(budget.unwrap_or(0));
    let mut body = Map::new();
    body.insert("model".to_owned(), settings.name.as_str().into());
    body.insert(
        "max_tokens".to_owned(),
        settings.max_tokens.map_or(default_limit, u64::from).into(),
    );
    let mut tools: Vec<Value> = request.tools.iter().filter_map(tool::definition).collect();
    let mut system = Vec::new();
    if !request.system.trim().is_empty() {
        system.push(json!({"type": "text", "text": request.system}));
    }
    // A cache mark covers everything before it, and tools come before the system prompt.
    let is_deferred = |tool: &Value| tool["defer_loading"] == true;
    match (system.last_mut(), tools.iter_mut().rfind(|tool| !is_deferred(tool))) {
        (Some(last), _) | (None, Some(last)) => mark_cache(last),
        (None, None) => {}
    }
    for (name, list) in [("tools", tools), ("system", system)] {
        if !list.is_empty() {
            body.insert(name.to_owned(), list.into());
        }
    }
    body.insert("messages".to_owned(), messages(request).into());
    body.insert("stream".to_owned(), true.into());
    if let Some(temperature) = settings.temperature {
        body.insert("temperature".to_owned(), json!(temperature));
    }
    if let Some(answer_schema) = &request.schema {
        let format = json!({"type": "json_schema", "schema": schema::strict(answer_schema)});
        body.insert("output_config".to_owned(), json!({"format": format}));
    }
    if let Some(id) = container(request) {
        body.insert("container".to_owned(), json!({"id": id}));
    }
    merge(&mut body, options);
    // These are sent in a header.
    body.remove("betas");
    Value::Object(body)
}

/// The results of one message's calls become one message; otherwise the model unlearns to make
/// parallel calls.
fn messages(request: &ModelRequest) -> Vec<Value> {
    let mut messages: Vec<(&str, Vec<Value>)> = Vec::new();
    let mut after_result = false;
    for (at, message) in request.messages.iter().enumerate() {
        let (role, blocks) = match message.role {
            MessageRole::User => ("user", user_blocks(message)),
            MessageRole::Assistant => {
                let blocks = match assistant_blocks(request, at) {
                    AssistantBlocks::Verbatim(blocks) | AssistantBlocks::Rendered(blocks) => blocks,
                };
                ("assistant", blocks)
            }
            MessageRole::Tool => ("user", vec![tool_result(message)]),
        };
        match messages.last_mut().filter(|_| after_result && message.role == MessageRole::Tool) {
            Some((_, results)) => results.extend(blocks),
            None if blocks.is_empty() => {}
            None => messages.push((role, blocks)),
        }
        after_result = message.role == MessageRole::Tool;
        if at + 1 == request.stable_messages
            && let Some((_, blocks)) = messages.last_mut()
            && let Some(last) = blocks.iter_mut().rfind(|block| is_markable(block))
        {
            mark_cache(last);
        }
    }
    let is_unfinished = request.messages.len().checked_sub(1).is_some_and(|last| {
        request.messages[last].role == MessageRole::Assistant
            && matches!(assistant_blocks(request, last), AssistantBlocks::Rendered(_))
    });
    if is_unfinished {
        messages.push(("user", vec![json!({"type": "text", "text": CONTINUE_PROMPT})]));
    }
    let message = |(role, content): (&str, Vec<Value>)| json!({"role": role, "content": content});
    messages.into_iter().map(message).collect()
}

fn mark_cache(block: &mut Value) {
    if let Some(block) = block.as_object_mut() {
        block.insert("cache_control".to_owned(), json!({"type": "ephemeral"}));
    }
}

/// Whether the block accepts a cache mark: thinking does not, and unknown blocks may not.
fn is_markable(block: &Value) -> bool {
    let kind = block["type"].as_str().unwrap_or_default();
    matches!(kind, "text" | "image" | "document" | "tool_use" | "tool_result" | "server_tool_use")
        || kind.ends_with("_tool_result")
}
