//! Encodes the items of a turn as the chunks of a UI message stream: a pure fold.

mod calls;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use abide_conversation::event::{TurnEnded, TurnOutcome};
use abide_conversation::{ConversationId, MessageId, TurnId};
use serde_json::{Value, json};

use super::page::Page;
use super::transcript::user_message;
use crate::protocols::feed::{Item, MessageItem, Piece, SuspendedCall};
use calls::CallParts;

/// The version of the client's types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// Any client: no type of chunk that version 6 does not know.
    #[default]
    V6,
    V7,
}

/// The chunks of one response, which tells a turn from its beginning, or what the page does not show
/// yet.
#[derive(Debug)]
pub struct Encoder {
    version: Version,
    turn: TurnId,
    conversation: ConversationId,
    /// The step that was begun and not finished.
    step: Option<StepParts>,
    calls: CallParts,
    chunks: Vec<Value>,
    is_over: bool,
}

/// A step of the page's message.
#[derive(Debug, Default)]
struct StepParts {
    /// The model's message; `None` after it was given up.
    message: Option<MessageId>,
    open: Option<OpenPart>,
}

/// The part that pieces are added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenPart {
    Text,
    Reasoning,
}

impl OpenPart {
    fn id(self, message: &MessageId) -> String {
        match self {
            Self::Text => message.to_string(),
            Self::Reasoning => format!("{message}:r"),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Reasoning => "reasoning",
        }
    }
}

impl Encoder {
    /// The encoder of a response about this turn, for a page that shows this of it.
    pub fn new(version: Version, conversation: ConversationId, turn: TurnId, page: Page) -> Self {
        Self {
            version,
            turn,
            conversation,
            step: None,
            calls: CallParts::new(version, page),
            chunks: Vec::new(),
            is_over: false,
        }
    }

    /// Takes the items of the step that the page shows. They have no chunks.
    pub fn prime(&mut self, items: &[Item]) {
        for item in items {
            if let Item::Message(message) = item {
                self.calls.begin(&message.assistant.message.tool_calls);
            }
        }
    }

    /// The first chunk.
    pub fn begin(&self) -> Value {
        json!({"type": "start", "messageId": self.turn,
            "messageMetadata": {"conversation_id": self.conversation}})
    }

    /// Whether the response is complete.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// The chunks of an item.
    pub fn item(&mut self, item: &Item) -> Vec<Value> {
        if !self.is_over {
            self.encode(item);
        }
        std::mem::take(&mut self.chunks)
    }

    /// The chunks that end a response which rests on calls that the caller may not answer, or which
    /// cannot go on.
    pub fn finish(&mut self, error: Option<&str>) -> Vec<Value> {
        if !self.is_over {
            self.close_step();
            self.chunks.push(match error {
                Some(error) => json!({"type": "error", "errorText": error}),
                None => json!({"type": "finish", "finishReason": "tool-calls"}),
            });
            self.is_over = true;
        }
        std::mem::take(&mut self.chunks)
    }

    fn encode(&mut self, item: &Item) {
        match item {
            Item::Started { .. } => {}
            Item::Thinking(piece) => self.piece(OpenPart::Reasoning, piece),
            Item::Text(piece) => self.piece(OpenPart::Text, piece),
            Item::Message(message) => self.message(message),
            Item::CallStarted(start) => self.calls.started(start, &mut self.chunks),
            Item::Suspended(call) => self.calls.suspended(call),
            Item::Resolved(resolved) => self.calls.resolved(resolved, &mut self.chunks),
            Item::Progress { call, payload } => self.chunks.push(json!({
                "type": "data-abide-progress", "transient": true,
                "data": {"call_id": call, "payload": payload}})),
            Item::Ui { call, ui } => self.chunks.push(json!({
                "type": "data-abide-ui", "id": call,
                "data": {"call_id": call, "kind": ui.kind, "payload": ui.payload}})),
            // A stream has no message of a user's: a page may add it to its own.
            Item::Steered(message) => self.chunks.push(json!({
                "type": "data-abide-steered", "transient": true,
                "data": user_message(&message.id, &message.content)})),
            Item::Todos(todos) => {
                self.chunks.push(json!({"type": "data-abide-todos", "id": "todos", "data": todos}))
            }
            Item::Result { call, outcome } => self.calls.ended(call, outcome, &mut self.chunks),
            Item::Refused { message, .. } | Item::Restarted { message } => self.void(message),
            Item::CaughtUp => self.calls.flush(&mut self.chunks),
            Item::Rest(pending) => self.rest(pending),
            Item::End(ended) => self.end(ended),
        }
    }

    fn piece(&mut self, part: OpenPart, piece: &Piece) {
        self.begin_step(&piece.message);
        let Some(step) = &mut self.step else { return };
        let id = part.id(&piece.message);
        if step.open != Some(part) {
            self.close_part();
            self.chunks.push(json!({"type": format!("{}-start", part.name()), "id": id}));
            self.step.get_or_insert_default().open = Some(part);
        }
        let kind = format!("{}-delta", part.name());
        self.chunks.push(json!({"type": kind, "id": id, "delta": piece.text}));
    }

    fn message(&mut self, message: &MessageItem) {
        let message = &message.assistant.message;
        self.begin_step(&message.id);
        self.close_part();
        self.calls.begin(&message.tool_calls);
        for call in &message.tool_calls {
            self.chunks.push(json!({
                "type": "tool-input-start", "toolCallId": call.id, "toolName": call.name}));
            self.chunks.push(json!({
                "type": "tool-input-delta", "toolCallId": call.id,
                "inputTextDelta": call.args.to_string()}));
        }
    }

    /// Begins the step of a message, unless it is begun.
    fn begin_step(&mut self, message: &MessageId) {
        match &mut self.step {
            Some(step) if step.message.as_ref() == Some(message) => {}
            // What the step had was taken back.
            Some(step @ StepParts { message: None, .. }) => step.message = Some(message.clone()),
            Some(_) | None => {
                self.close_step();
                self.chunks.push(json!({"type": "start-step"}));
                self.step = Some(StepParts { message: Some(message.clone()), open: None });
            }
        }
    }

    fn close_part(&mut self) {
        let Some(StepParts { message: Some(message), open }) = &mut self.step else { return };
        if let Some(part) = open.take() {
            let kind = format!("{}-end", part.name());
            self.chunks.push(json!({"type": kind, "id": part.id(message)}));
        }
    }

    fn close_step(&mut self) {
        self.close_part();
        if self.step.take().is_some() {
            self.chunks.push(json!({"type": "finish-step"}));
        }
    }

    /// Takes back what was told of a message. Version 6 has no chunk for that: the message stays in the
    /// page until it is loaded again.
    fn void(&mut self, message: &MessageId) {
        let is_begun = |step: &StepParts| step.message.as_ref() == Some(message);
        if !self.step.as_ref().is_some_and(is_begun) {
            return;
        }
        match self.version {
            Version::V6 => self.close_step(),
            Version::V7 => {
                self.chunks.push(json!({"type": "reset-step"}));
                self.step = Some(StepParts::default());
            }
        }
    }

    /// Ends the response, if the caller may answer one of the calls: clients send answers only after the
    /// end of a response.
    fn rest(&mut self, pending: &[SuspendedCall]) {
        if pending.iter().any(|call| call.may_answer) {
            self.close_step();
            self.chunks.push(json!({"type": "finish", "finishReason": "tool-calls"}));
            self.is_over = true;
        }
    }

    fn end(&mut self, ended: &TurnEnded) {
        self.close_step();
        if self.calls.is_last() {
            // A client whose last step has nothing but finished calls would send them for ever, and it
            // sees the step with the next change of the message only.
            self.chunks.push(json!({"type": "start-step"}));
            self.chunks.push(json!({"type": "message-metadata",
                "messageMetadata": {"outcome": ended.outcome}}));
            self.chunks.push(json!({"type": "finish-step"}));
        }
        let reason = ended.reason.as_deref();
        let stopped = |how: &str| match reason {
            Some(reason) => format!("{how}: {reason}"),
            None => how.to_owned(),
        };
        self.chunks.push(match ended.outcome {
            TurnOutcome::Completed => json!({"type": "finish", "finishReason": "stop"}),
            TurnOutcome::Cancelled => {
                json!({"type": "abort", "reason": reason.unwrap_or("cancelled")})
            }
            TurnOutcome::Halted => json!({"type": "error", "errorText": stopped("halted")}),
            TurnOutcome::Failed => json!({"type": "error", "errorText": stopped("failed")}),
        });
        self.is_over = true;
    }
}
