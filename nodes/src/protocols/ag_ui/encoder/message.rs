//! The events of the message that a model is writing.

use abide_conversation::{MessageId, Step};
use serde_json::{Value, json};

use crate::protocols::ag_ui::history::thinking_id;
use crate::protocols::feed::Piece;

/// The message that a model is writing, and the steps of the turn.
#[derive(Debug, Default)]
pub(super) struct MessageEvents {
    /// The number of steps that are done.
    steps_done: u32,
    open: Option<OpenMessage>,
}

#[derive(Debug)]
struct OpenMessage {
    id: MessageId,
    /// The name of the step.
    step: String,
    /// The id of the thinking that is open.
    thinking: Option<String>,
    /// How often the model began to think.
    thoughts: u32,
    has_text: bool,
}

impl MessageEvents {
    /// Whether a message is open.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Notes that a step was told elsewhere.
    pub(super) fn skip(&mut self, step: Step) {
        self.steps_done = step.get();
    }

    /// Notes that a message was refused, which ends a step.
    pub(super) fn refuse(&mut self) {
        self.steps_done = self.steps_done.saturating_add(1);
    }

    /// Adds a piece of thinking.
    pub(super) fn think(&mut self, piece: &Piece, events: &mut Vec<Value>) {
        let message = self.begin(&piece.message, events);
        let id = message.thinking.get_or_insert_with(|| {
            message.thoughts += 1;
            let id = thinking_id(&piece.message);
            let id = if message.thoughts == 1 { id } else { format!("{id}_{}", message.thoughts) };
            events.push(json!({"type": "REASONING_START", "messageId": id}));
            events.push(json!({"type": "REASONING_MESSAGE_START", "messageId": id,
                "role": "reasoning"}));
            id
        });
        events.push(json!({"type": "REASONING_MESSAGE_CONTENT", "messageId": id,
            "delta": piece.text}));
    }

    /// Adds a piece of text.
    pub(super) fn write(&mut self, piece: &Piece, events: &mut Vec<Value>) {
        let message = self.begin(&piece.message, events);
        message.end_thinking(events);
        if !message.has_text {
            message.has_text = true;
            events.push(json!({"type": "TEXT_MESSAGE_START", "messageId": piece.message,
                "role": "assistant"}));
        }
        events.push(json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": piece.message,
            "delta": piece.text}));
    }

    /// Ends the message of this step, which may have had no pieces.
    pub(super) fn end(&mut self, id: &MessageId, step: Step, events: &mut Vec<Value>) {
        self.begin(id, events);
        self.give_up(events);
        self.steps_done = step.get();
    }

    /// Ends a message that was refused.
    pub(super) fn refuse_told(&mut self, events: &mut Vec<Value>) {
        self.give_up(events);
        self.refuse();
    }

    /// Ends the message that is open, complete or not.
    pub(super) fn give_up(&mut self, events: &mut Vec<Value>) {
        let Some(mut message) = self.open.take() else { return };
        message.end_thinking(events);
        if message.has_text {
            events.push(json!({"type": "TEXT_MESSAGE_END", "messageId": message.id}));
        }
        events.push(json!({"type": "STEP_FINISHED", "stepName": message.step}));
    }

    /// The message with this id, which is begun if it is not open.
    fn begin(&mut self, id: &MessageId, events: &mut Vec<Value>) -> &mut OpenMessage {
        if self.open.as_ref().is_some_and(|open| open.id != *id) {
            self.give_up(events);
        }
        self.open.get_or_insert_with(|| {
            let step = format!("step_{}", self.steps_done.saturating_add(1));
            events.push(json!({"type": "STEP_STARTED", "stepName": step}));
            OpenMessage { id: id.clone(), step, thinking: None, thoughts: 0, has_text: false }
        })
    }
}

impl OpenMessage {
    fn end_thinking(&mut self, events: &mut Vec<Value>) {
        if let Some(id) = self.thinking.take() {
            events.push(json!({"type": "REASONING_MESSAGE_END", "messageId": id}));
            events.push(json!({"type": "REASONING_END", "messageId": id}));
        }
    }
}
