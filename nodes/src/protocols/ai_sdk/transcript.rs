//! The messages of a conversation as a chat page holds them.

use std::collections::BTreeMap;

use abide_conversation::event::{Event, EventData, Executor, SuspensionKind, Todo, UserMsg};
use abide_conversation::message::{ErrorType, Message, Outcome};
use abide_conversation::{CallId, ConversationId, Seq, TurnId};
use serde_json::{Value, json};

use crate::protocols::feed::{
    Answerable, CallStart, Feed, Item, ResolvedCall, SteeringMessage, SuspendedCall,
};

/// The messages of these turns, oldest first.
pub fn messages(
    conversation: &ConversationId,
    events: &[Event],
    answerable: &Answerable,
) -> Vec<Value> {
    let mut questions: BTreeMap<&TurnId, &UserMsg> = BTreeMap::new();
    let mut messages = Vec::new();
    for event in events {
        match (&event.data, &event.turn_id) {
            (EventData::UserMsg(user), Some(turn)) => {
                questions.insert(turn, user);
            }
            (EventData::TurnStarted(_), Some(turn)) => {
                // The message of a turn that is queued comes when the turn starts.
                let Some(user) = questions.get(turn) else { continue };
                messages.push(question(user));
                messages.extend(steering(turn, events));
                messages.extend(reply(conversation, turn, event.seq, events, answerable));
            }
            _ => {}
        }
    }
    messages
}

fn question(user: &UserMsg) -> Value {
    let id = user.message_id.clone().unwrap_or_else(|| user.message.id.to_string());
    user_message(&id, &user.message.content)
}

/// The messages that were added to a turn. They stand before its one reply, which stays the last
/// message of a page that resumes the turn.
fn steering(turn: &TurnId, events: &[Event]) -> impl Iterator<Item = Value> {
    let of_turn = events.iter().filter(move |event| event.turn_id.as_ref() == Some(turn));
    of_turn.filter_map(|event| match &event.data {
        EventData::Steered(steered) => {
            let SteeringMessage { id, content } = steered.into();
            Some(user_message(&id, &content))
        }
        _ => None,
    })
}

/// A user's message, as a page holds it.
pub fn user_message(id: &str, content: &[Value]) -> Value {
    let parts: Vec<Value> = content.iter().map(part_of_block).collect();
    json!({"id": id, "role": "user", "parts": parts})
}

/// The part of a block. What is neither text nor a file that a page can fetch is data.
fn part_of_block(block: &Value) -> Value {
    if block["type"] == "text" {
        return json!({"type": "text", "text": block["text"]});
    }
    let source = &block["source"];
    let media = source["mimeType"].as_str().unwrap_or("application/octet-stream");
    let url = match source["type"].as_str() {
        Some("url") => source["url"].as_str().map(str::to_owned),
        Some("blob") => source["blobId"].as_str().map(|id| format!("/v1/blobs/{id}")),
        Some("base64") => source["data"].as_str().map(|data| format!("data:{media};base64,{data}")),
        _ => None,
    };
    match url {
        Some(url) => json!({"type": "file", "mediaType": media, "url": url}),
        None => json!({"type": "data-abide-block", "data": block}),
    }
}

/// The page's message of a turn that began with the event of this seq; `None` while it has no parts.
fn reply(
    conversation: &ConversationId,
    turn: &TurnId,
    began: Seq,
    events: &[Event],
    answerable: &Answerable,
) -> Option<Value> {
    let mut feed = Feed::new(turn.clone(), began);
    let mut message = MessageParts::default();
    for event in events {
        for item in feed.event(event, answerable) {
            message.take(&item);
        }
    }
    (!message.parts.is_empty()).then(|| {
        json!({"id": turn, "role": "assistant", "parts": message.parts,
            "metadata": {"conversation_id": conversation}})
    })
}

/// The parts of a message of the assistant.
#[derive(Debug, Default)]
struct MessageParts {
    parts: Vec<Value>,
    /// The part of each call.
    calls: BTreeMap<CallId, usize>,
}

impl MessageParts {
    fn take(&mut self, item: &Item) {
        match item {
            Item::Message(message) => self.message(&message.assistant.message),
            Item::CallStarted(start) => self.started(start),
            Item::Suspended(call) => self.suspended(call),
            Item::Resolved(resolved) => self.resolved(resolved),
            Item::Result { call, outcome } => self.ended(call, outcome),
            Item::Ui { call, ui } => self.parts.push(json!({
                "type": "data-abide-ui", "id": call,
                "data": {"call_id": call, "kind": ui.kind, "payload": ui.payload}})),
            Item::Todos(todos) => self.todos(todos),
            // It is a message of its own.
            Item::Steered(_)
            | Item::Started { .. }
            | Item::Thinking(_)
            | Item::Text(_)
            | Item::Progress { .. }
            | Item::Refused { .. }
            | Item::Restarted { .. }
            | Item::CaughtUp
            | Item::Rest(_)
            | Item::End(_) => {}
        }
    }

    fn message(&mut self, message: &Message) {
        self.parts.push(json!({"type": "step-start"}));
        for block in &message.content {
            if let Some(kind @ ("text" | "reasoning")) = block["type"].as_str() {
                self.parts.push(json!({"type": kind, "text": block["text"], "state": "done"}));
            }
        }
        for call in &message.tool_calls {
            self.calls.insert(call.id.clone(), self.parts.len());
            self.parts.push(json!({"type": format!("tool-{}", call.name),
                "toolCallId": call.id, "state": "input-streaming", "input": call.args}));
        }
    }

    fn started(&mut self, start: &CallStart) {
        let Some(part) = self.part(&start.call) else { return };
        part["input"] = Value::clone(&start.args);
        match start.executor {
            // A part that was approved stays so until its result.
            Executor::Server if !part["approval"].is_null() => {}
            Executor::Server => part["state"] = json!("input-available"),
            Executor::Provider => {
                part["state"] = json!("input-available");
                part["providerExecuted"] = json!(true);
            }
            Executor::Client | Executor::Human => {}
        }
    }

    fn suspended(&mut self, call: &SuspendedCall) {
        let Some(part) = self.part(&call.call) else { return };
        match call.kind {
            SuspensionKind::Approval if call.may_answer => {
                part["state"] = json!("approval-requested");
                part["input"] = Value::clone(&call.args);
                part["approval"] = json!({"id": call.id(), "descriptor": {
                    "message": call.message, "expires_at": call.expires_at,
                    "intent": call.intent}});
            }
            SuspensionKind::Approval if call.executor == Executor::Server => {
                part["state"] = json!("input-available");
            }
            SuspensionKind::Approval => {}
            SuspensionKind::Elicitation | SuspensionKind::ClientExec | SuspensionKind::InDoubt
                if call.may_answer =>
            {
                let mut abide = json!({"kind": call.kind, "expires_at": call.expires_at,
                    "suspension": call.suspension});
                if let Some(schema) = &call.answer_schema {
                    abide["schema"] = json!(schema);
                }
                part["state"] = json!("input-available");
                part["title"] = json!(call.message);
                part["toolMetadata"] = json!({"abide": abide});
                remove(part, "approval");
            }
            SuspensionKind::Elicitation | SuspensionKind::ClientExec | SuspensionKind::InDoubt => {}
        }
    }

    fn resolved(&mut self, resolved: &ResolvedCall) {
        if resolved.kind != SuspensionKind::Approval {
            return;
        }
        let Some(part) = self.part(&resolved.call) else { return };
        part["state"] = json!("approval-responded");
        let mut approval =
            json!({"id": resolved.id(), "approved": resolved.approved == Some(true)});
        if let Some(reason) = &resolved.reason {
            approval["reason"] = json!(reason);
        }
        part["approval"] = approval;
    }

    fn ended(&mut self, call: &CallId, outcome: &Outcome) {
        let Some(part) = self.part(call) else { return };
        let approved = part["approval"]["approved"].as_bool();
        if approved.is_none() {
            // It expired, or was cancelled: nobody answered.
            remove(part, "approval");
        }
        match outcome {
            Outcome::Ok(output) => {
                part["state"] = json!("output-available");
                part["output"] = output.clone();
            }
            Outcome::Err(_, ErrorType::Denied) if approved == Some(false) => {
                part["state"] = json!("output-denied");
            }
            Outcome::Err(error, _) => {
                part["state"] = json!("output-error");
                part["errorText"] = json!(error);
            }
        }
    }

    fn todos(&mut self, todos: &[Todo]) {
        self.parts.retain(|part| part["type"] != "data-abide-todos");
        let places = self.parts.iter().enumerate();
        let places = places.filter_map(|(at, part)| Some((part["toolCallId"].as_str()?, at)));
        self.calls = places.map(|(call, at)| (CallId::new(call), at)).collect();
        self.parts.push(json!({"type": "data-abide-todos", "id": "todos", "data": todos}));
    }

    fn part(&mut self, call: &CallId) -> Option<&mut Value> {
        self.calls.get(call).and_then(|at| self.parts.get_mut(*at))
    }
}

fn remove(part: &mut Value, member: &str) {
    if let Value::Object(part) = part {
        part.remove(member);
    }
}
