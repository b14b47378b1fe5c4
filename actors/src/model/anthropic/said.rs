//! One message as the blocks of the wire.

use std::collections::HashSet;

use abide_conversation::message::blocks::texts;
use abide_conversation::message::{CallRef, Message, MessageStatus, ProviderMessage};
use serde_json::{Value, json};

use super::part::{part, text};
use crate::model::prompt::is_a_persons;
use crate::model::wire::ids::legal;
use crate::model::wire::written::{CUT, args, name};
use crate::model::{Provider, Request};

/// What stands for a person's message of which nothing can be told; an empty one is refused.
const NOTHING: &str = "[nothing]";

/// How long a call's id may be on this wire.
const ID: usize = 64;

/// The type of the item that names the container in which the provider ran code. It is not of the
/// message, but goes on with its turn.
pub(super) const CONTAINER: &str = "container";

/// An assistant's message.
pub(super) enum Said {
    /// As the provider wrote it.
    Verbatim(Vec<Value>),
    /// From what it said and called.
    Written(Vec<Value>),
}

/// Whether only the provider can read the block.
pub(super) fn is_thinking(block: &Value) -> bool {
    matches!(block["type"].as_str(), Some("thinking" | "redacted_thinking"))
}

/// Whether the block begins a run of one of the provider's own tools.
pub(super) fn is_run(block: &Value) -> bool {
    matches!(block["type"].as_str(), Some("server_tool_use" | "mcp_tool_use"))
}

/// The run that the block is the result of.
pub(super) fn run_of(block: &Value) -> Option<&str> {
    let kind = block["type"].as_str()?;
    kind.ends_with("_tool_result").then(|| block["tool_use_id"].as_str())?
}

pub(super) fn user(message: &Message) -> Vec<Value> {
    let blocks: Vec<Value> = message.content.iter().filter_map(part).collect();
    if blocks.is_empty() { vec![json!({"type": "text", "text": NOTHING})] } else { blocks }
}

pub(super) fn result(message: &Message) -> Value {
    let id = message.tool_call_id.as_ref().map(|id| id.as_str()).unwrap_or_default();
    let said: Vec<Value> = texts(&message.content).iter().filter_map(|it| text(it)).collect();
    json!({"type": "tool_result", "tool_use_id": legal(id, ID), "content": said})
}

/// The assistant's message that stands at this place.
pub(super) fn assistant(request: &Request, at: usize) -> Said {
    let message = &request.messages[at];
    let own = request.verbatim.get(&message.id).filter(|it| is_own(it));
    match own.and_then(|own| replayed(request, at, own)) {
        Some(blocks) if !blocks.is_empty() => Said::Verbatim(blocks),
        Some(_) | None => Said::Written(written(message)),
    }
}

/// The container that the open turn has used: none but its provider keeps the files of its code.
pub(super) fn container(request: &Request) -> Option<&str> {
    let turn = request.messages.iter().rev().take_while(|message| !is_a_persons(message));
    let own = turn.filter_map(|message| request.verbatim.get(&message.id)).filter(|it| is_own(it));
    let mut items = own.flat_map(|it| it.items.iter().rev());
    items.find(|item| item["type"] == CONTAINER)?["id"].as_str()
}

fn is_own(verbatim: &ProviderMessage) -> bool {
    verbatim.provider == Provider::Anthropic.name()
}

/// `None` if its calls are not those of the message.
///
/// Thinking of another model goes back too: a model that cannot read it is not shown it.
fn replayed(request: &Request, at: usize, verbatim: &ProviderMessage) -> Option<Vec<Value>> {
    let message = &request.messages[at];
    let mut calls = message.tool_calls.iter();
    let given_up = given_up(request, at, verbatim);
    let mut blocks = Vec::new();
    for item in &verbatim.items {
        let dropped = item["type"] == CONTAINER
            || (is_run(item) && given_up.contains(item["id"].as_str().unwrap_or_default()));
        if dropped {
            continue;
        }
        let mut item = item.clone();
        if item["type"] == "tool_use" {
            item["id"] = legal(calls.next()?.id.as_str(), ID).into();
        }
        blocks.push(item);
    }
    calls.next().is_none().then_some(blocks)
}

/// The runs whose results never came, since a person has spoken in between; the provider refuses
/// a run without its result in any message but those of an unfinished turn.
fn given_up<'a>(request: &Request, at: usize, verbatim: &'a ProviderMessage) -> HashSet<&'a str> {
    let runs = verbatim.items.iter().filter(|item| is_run(item));
    let mut open: HashSet<&str> = runs.filter_map(|run| run["id"].as_str()).collect();
    let later = request.messages[at + 1..].iter();
    let later = later.filter_map(|message| request.verbatim.get(&message.id));
    for item in [verbatim].into_iter().chain(later).flat_map(|it| &it.items) {
        if let Some(run) = run_of(item) {
            open.remove(run);
        }
        if open.is_empty() {
            return open;
        }
    }
    if request.messages[at + 1..].iter().any(is_a_persons) { open } else { HashSet::new() }
}

fn written(message: &Message) -> Vec<Value> {
    let mut blocks: Vec<Value> = texts(&message.content).iter().filter_map(|it| text(it)).collect();
    if matches!(message.status, Some(MessageStatus::Cancelled | MessageStatus::Error)) {
        blocks.extend(text(CUT));
    }
    blocks.extend(message.tool_calls.iter().map(call));
    blocks
}

fn call(call: &CallRef) -> Value {
    let id = legal(call.id.as_str(), ID);
    json!({"type": "tool_use", "id": id, "name": name(&call.name), "input": args(call)})
}
