//! Decodes what a chat page sends: a user's message, or answers to calls.

use abide_actors::request::ResolveRequest;
use abide_conversation::command::ResolutionAnswer;
use abide_conversation::event::{Executor, SuspensionKind};
use abide_conversation::message::text_block;
use abide_conversation::state::PendingCall;
use abide_conversation::{Principal, TurnId};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::http::messages::{self, BusyPolicy, MAX_MESSAGE_ID_CHARS};
use crate::problem::Problem;
use crate::protocols::ai_sdk::page::{Page, PagePart};
use crate::protocols::answers::parsed;
use crate::protocols::feed::suspension_id;

/// The body of a request. Clients send more, and whatever their applications add.
#[derive(Debug, Deserialize)]
pub(in crate::http) struct ChatRequest {
    /// The conversation.
    pub(super) id: String,
    /// All messages that the page has. Only the last of them is read.
    messages: Vec<Value>,
    trigger: Option<String>,
    /// The message that is to be written anew; the last one if absent.
    #[serde(default, rename = "messageId")]
    message: Option<String>,
    #[serde(default)]
    abide: ChatOptions,
}

/// What an application adds for this API.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChatOptions {
    #[serde(default, deserialize_with = "messages::without_steer")]
    if_busy: Option<BusyPolicy>,
}

/// What a request asks for.
#[derive(Debug)]
pub(super) enum ChatAction {
    Send(UserMessage),
    /// Begins the turn of this message anew, which is one of the user's or the turn itself; the last
    /// turn without one.
    Regenerate {
        message: Option<String>,
    },
    /// Answers to calls of this turn, and what the page shows of it.
    Answer {
        turn: TurnId,
        page: Page,
    },
}

/// A user's message.
#[derive(Debug)]
pub(super) struct UserMessage {
    pub(super) message_id: String,
    pub(super) content: Vec<Value>,
    pub(super) if_busy: Option<BusyPolicy>,
}

impl ChatRequest {
    /// What the request asks for.
    pub(super) fn action(mut self) -> Result<ChatAction, Problem> {
        match self.trigger.as_deref() {
            None | Some("submit-message") => {}
            Some("regenerate-message") => {
                return Ok(ChatAction::Regenerate { message: self.message });
            }
            Some(_) => {
                let rule = "must be submit-message or regenerate-message";
                return Err(Problem::field("trigger", rule));
            }
        }
        let Some(last) = self.messages.pop() else {
            return Err(Problem::field("messages", "is empty"));
        };
        let at = format!("messages[{}]", self.messages.len());
        let parts = last["parts"].as_array();
        let parts = parts.ok_or_else(|| Problem::field(&format!("{at}.parts"), "is no list"))?;
        let id = last["id"].as_str().unwrap_or_default();
        if !(1..=MAX_MESSAGE_ID_CHARS).contains(&id.chars().count()) {
            let rule = format!("must be 1 to {MAX_MESSAGE_ID_CHARS} characters");
            return Err(Problem::field(&format!("{at}.id"), rule));
        }
        match last["role"].as_str() {
            Some("user") => Ok(ChatAction::Send(UserMessage {
                message_id: id.to_owned(),
                content: content(parts).map_err(|problem| problem.below(&at))?,
                if_busy: self.abide.if_busy,
            })),
            Some("assistant") => {
                let page = Page::of_parts(parts);
                Ok(ChatAction::Answer { turn: TurnId::new(id), page })
            }
            _ => Err(Problem::field(&format!("{at}.role"), "must be user or assistant")),
        }
    }
}

/// The content blocks of a user's message.
fn content(parts: &[Value]) -> Result<Vec<Value>, Problem> {
    let block = |(index, part): (usize, &Value)| {
        block(part).map_err(|(field, why)| Problem::field(&format!("parts[{index}]{field}"), why))
    };
    let blocks = parts.iter().enumerate().map(block).collect::<Result<Vec<_>, _>>()?;
    if blocks.is_empty() { Err(Problem::field("parts", "is empty")) } else { Ok(blocks) }
}

type PartError = (&'static str, &'static str);

fn block(part: &Value) -> Result<Value, PartError> {
    match part["type"].as_str() {
        Some("text") => match part["text"].as_str() {
            Some(text) => Ok(text_block(text)),
            None => Err((".text", "is missing")),
        },
        Some("file") => file_block(part),
        _ => Err((".type", "must be text or file")),
    }
}

fn file_block(part: &Value) -> Result<Value, PartError> {
    let media = part["mediaType"].as_str().filter(|media| media.contains('/'));
    let media = media.ok_or((".mediaType", "is no media type"))?;
    let url = part["url"].as_str().unwrap_or_default();
    let source = match url.strip_prefix("data:") {
        Some(data) => match data.split_once(";base64,") {
            Some((_, data)) => json!({"type": "base64", "mimeType": media, "data": data}),
            None => return Err((".url", "is a data URL that is not in base64")),
        },
        None if url.starts_with("https://") || url.starts_with("http://") => {
            json!({"type": "url", "url": url})
        }
        None => return Err((".url", "must be a data, https or http URL")),
    };
    let kind = match media.split_once('/') {
        Some((kind @ ("image" | "audio" | "video"), _)) => kind,
        _ => "document",
    };
    let mut block = json!({"type": kind, "source": source});
    if let Some(name) = part["filename"].as_str().filter(|_| kind == "document") {
        block["title"] = json!(name);
    }
    Ok(block)
}

/// The answers that the page has for calls that are open. Whatever else its message says is its history.
pub(super) fn answers(page: &Page, open: &[PendingCall], by: &Principal) -> Vec<ResolveRequest> {
    let request = |pending: &PendingCall| {
        let answer = answer(pending, page.part(&pending.call_id)?)?;
        Some(ResolveRequest {
            call: pending.call_id.clone(),
            suspension: Some(pending.suspension),
            by: by.clone(),
            answer,
            remember: None,
        })
    };
    open.iter().filter_map(request).collect()
}

fn answer(pending: &PendingCall, part: &PagePart) -> Option<ResolutionAnswer> {
    if pending.kind == SuspensionKind::Approval {
        let approval = part.approval.as_ref().filter(|_| part.state == "approval-responded")?;
        if approval.id != suspension_id(&pending.call_id, pending.suspension) {
            return None;
        }
        let (approved, reason) = (approval.approved?, approval.reason.clone());
        return Some(ResolutionAnswer::Approval { approved, reason, args: None });
    }
    let is_of_this = match part.suspension {
        Some(number) => number == u64::from(pending.suspension),
        // A running tool may ask again.
        None => pending.executor != Executor::Server,
    };
    match part.state.as_str() {
        _ if !is_of_this => None,
        "output-available" => Some(ResolutionAnswer::Result(parsed(&part.output))),
        "output-error" => {
            let text = part.error_text.clone().filter(|text| !text.trim().is_empty());
            Some(ResolutionAnswer::Error(text.unwrap_or_else(|| "failed".to_owned())))
        }
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
