//! Writes one message as content blocks.

use std::collections::HashSet;

use abide_conversation::message::blocks::texts;
use abide_conversation::message::{CallRef, Message, MessageStatus, ProviderMessage};
use serde_json::{Value, json};

use super::part::{render_block, text_block};
use crate::model::http::ids::sanitize_id;
use crate::model::http::message_body::{INTERRUPTED, args_object, sanitize_name};
use crate::model::prompt::is_from_person;
use crate::model::{ModelRequest, Provider};

/// The text of a user's message in which no block can be sent; an empty message is refused.
const EMPTY_MESSAGE: &str = "[nothing]";

/// The longest id of a call.
const MAX_ID_CHARS: usize = 64;

/// The type of the item that names the container in which the provider ran code. It is no part of
/// the message, but is sent again for the rest of the turn.
pub(super) const CONTAINER_ITEM: &str = "container";

/// The content blocks of an assistant's message.
pub(super) enum AssistantBlocks {
    /// As the provider wrote them.
    Verbatim(Vec<Value>),
    /// Rendered from the message's text and calls.
    Rendered(Vec<Value>),
}

/// Whether the block is thinking, which only the provider can read.
pub(super) fn is_thinking(block: &Value) -> bool {
    matches!(block["type"].as_str(), Some("thinking" | "redacted_thinking"))
}

/// Whether the block starts a run of one of the provider's own tools.
pub(super) fn is_provider_run(block: &Value) -> bool {
    matches!(block["type"].as_str(), Some("server_tool_use" | "mcp_tool_use"))
}

/// The id of the run, if the block is the result of one.
pub(super) fn result_run_id(block: &Value) -> Option<&str> {
    let kind = block["type"].as_str()?;
    kind.ends_with("_tool_result").then(|| block["tool_use_id"].as_str())?
}

pub(super) fn user_blocks(message: &Message) -> Vec<Value> {
    let blocks: Vec<Value> = message.content.iter().filter_map(render_block).collect();
    if blocks.is_empty() { vec![json!({"type": "text", "text": EMPTY_MESSAGE})] } else { blocks }
}

pub(super) fn tool_result(message: &Message) -> Value {
    let id = message.tool_call_id.as_ref().map(|id| id.as_str()).unwrap_or_default();
    let content: Vec<Value> =
        texts(&message.content).iter().filter_map(|it| text_block(it)).collect();
    json!({"type": "tool_result", "tool_use_id": sanitize_id(id, MAX_ID_CHARS), "content": content})
}

/// The blocks of the assistant's message at this index of the request.
pub(super) fn assistant_blocks(request: &ModelRequest, at: usize) -> AssistantBlocks {
    let message = &request.messages[at];
    let own = request.verbatim.get(&message.id).filter(|it| is_own(it));
    match own.and_then(|own| replay(request, at, own)) {
        Some(blocks) if !blocks.is_empty() => AssistantBlocks::Verbatim(blocks),
        Some(_) | None => AssistantBlocks::Rendered(render(message)),
    }
}

/// The container that the open turn has used: only that one has the files which the code wrote.
pub(super) fn container(request: &ModelRequest) -> Option<&str> {
    let turn = request.messages.iter().rev().take_while(|message| !is_from_person(message));
    let own = turn.filter_map(|message| request.verbatim.get(&message.id)).filter(|it| is_own(it));
    let mut items = own.flat_map(|it| it.items.iter().rev());
    items.find(|item| item["type"] == CONTAINER_ITEM)?["id"].as_str()
}

fn is_own(verbatim: &ProviderMessage) -> bool {
    verbatim.provider == Provider::Anthropic.name()
}

/// The blocks as the provider wrote them; `None` if their calls are not those of the message.
///
/// Thinking of another model is sent, too: a model that cannot read it never gets to see it.
fn replay(request: &ModelRequest, at: usize, verbatim: &ProviderMessage) -> Option<Vec<Value>> {
    let message = &request.messages[at];
    let mut calls = message.tool_calls.iter();
    let abandoned = abandoned_runs(request, at, verbatim);
    let mut blocks = Vec::new();
    for item in &verbatim.items {
        let is_dropped = item["type"] == CONTAINER_ITEM
            || (is_provider_run(item)
                && abandoned.contains(item["id"].as_str().unwrap_or_default()));
        if is_dropped {
            continue;
        }
        let mut item = item.clone();
        if item["type"] == "tool_use" {
            item["id"] = sanitize_id(calls.next()?.id.as_str(), MAX_ID_CHARS).into();
        }
        blocks.push(item);
    }
    calls.next().is_none().then_some(blocks)
}

/// The runs whose results never arrived because the user wrote a message in between. The provider
/// refuses a run without its result everywhere but in an unfinished turn.
fn abandoned_runs<'a>(
    request: &ModelRequest,
    at: usize,
    verbatim: &'a ProviderMessage,
) -> HashSet<&'a str> {
    let runs = verbatim.items.iter().filter(|item| is_provider_run(item));
    let mut open: HashSet<&str> = runs.filter_map(|run| run["id"].as_str()).collect();
    let later = request.messages[at + 1..].iter();
    let later = later.filter_map(|message| request.verbatim.get(&message.id));
    for item in [verbatim].into_iter().chain(later).flat_map(|it| &it.items) {
        if let Some(run) = result_run_id(item) {
            open.remove(run);
        }
        if open.is_empty() {
            return open;
        }
    }
    if request.messages[at + 1..].iter().any(is_from_person) { open } else { HashSet::new() }
}

fn render(message: &Message) -> Vec<Value> {
    let mut blocks: Vec<Value> =
        texts(&message.content).iter().filter_map(|it| text_block(it)).collect();
    if matches!(message.status, Some(MessageStatus::Cancelled | MessageStatus::Error)) {
        blocks.extend(text_block(INTERRUPTED));
    }
    blocks.extend(message.tool_calls.iter().map(tool_use));
    blocks
}

fn tool_use(call: &CallRef) -> Value {
    let id = sanitize_id(call.id.as_str(), MAX_ID_CHARS);
    let name = sanitize_name(&call.name);
    json!({"type": "tool_use", "id": id, "name": name, "input": args_object(call)})
}
