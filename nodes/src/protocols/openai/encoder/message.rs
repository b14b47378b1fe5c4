//! The events of the message that the model is writing: its thinking, then its text.

use abide_conversation::MessageId;
use serde_json::{Value, json};

use super::ResponseEncoder;
use super::event::{ResponseEvent, TextDelta};
use super::numbers::BETWEEN_PARTS;
use crate::protocols::feed::Piece;
use crate::protocols::openai::items;

/// The message that the model is writing, as far as it was told.
#[derive(Debug)]
pub(super) struct OpenMessage {
    pub(super) id: MessageId,
    thinking: Option<OpenItem>,
    /// Whether the thinking is told as done.
    is_thought: bool,
    text: Option<OpenItem>,
}

/// An item that grows.
#[derive(Debug)]
struct OpenItem {
    index: usize,
    text: String,
}

impl OpenMessage {
    fn new(id: MessageId) -> Self {
        Self { id, thinking: None, is_thought: false, text: None }
    }

    /// The items that still grow, as they are now, with their index.
    pub(super) fn growing(&self) -> impl Iterator<Item = (usize, Value)> {
        let id = self.id.as_str();
        let thinking = self.thinking.as_ref().filter(|_| !self.is_thought);
        let thinking = thinking.map(|OpenItem { index, text }| {
            (*index, items::reasoning(id, "in_progress", Some(text)))
        });
        let text = self.text.as_ref().map(|OpenItem { index, text }| {
            (*index, items::message(id, "in_progress", None, Some(text)))
        });
        thinking.into_iter().chain(text)
    }
}

impl ResponseEncoder {
    fn open_message(&mut self, id: &MessageId) {
        if self.message.as_ref().is_some_and(|open| open.id != *id) {
            self.close_message(None);
        }
        if self.message.is_none() {
            self.numbers.begin_message(self.after);
            self.message = Some(OpenMessage::new(id.clone()));
        }
    }

    /// Thinking that follows text is no part of the stream: it is in the response as it is read later.
    pub(super) fn thinking(&mut self, piece: &Piece) {
        self.open_message(&piece.message);
        let Some(open) = self.message.as_ref().filter(|open| open.text.is_none()) else { return };
        let id = items::reasoning_id(open.id.as_str());
        let index = match &open.thinking {
            Some(thinking) => thinking.index,
            None => {
                let index =
                    self.add_item(items::reasoning(piece.message.as_str(), "in_progress", None));
                self.push(json!({"type": "response.reasoning_summary_part.added", "item_id": id,
                    "output_index": index, "summary_index": 0, "part": items::summary_text("")}));
                index
            }
        };
        let open = self.message.as_mut().map(|open| &mut open.thinking);
        let Some(thinking) = open else { return };
        let thinking = thinking.get_or_insert_with(|| OpenItem { index, text: String::new() });
        thinking.text.push_str(&piece.text);
        self.delta(TextDelta {
            kind: "response.reasoning_summary_text.delta",
            item_id: id,
            output_index: index,
            summary_index: Some(0),
            content_index: None,
            logprobs: None,
            delta: piece.text.clone(),
            sequence_number: 0,
        });
    }

    pub(super) fn text(&mut self, piece: &Piece) {
        self.open_message(&piece.message);
        let id = piece.message.as_str();
        let opened = self.message.as_ref().and_then(|open| open.text.as_ref());
        let index = match opened {
            Some(text) => text.index,
            None => {
                let place = self.numbers.inside();
                let has_thought = self.close_thinking();
                let index = self.add_item(items::message(id, "in_progress", None, None));
                self.push(json!({"type": "response.content_part.added", "item_id": id,
                    "output_index": index, "content_index": 0, "part": items::output_text("")}));
                if has_thought {
                    self.numbers.set_inside(place + BETWEEN_PARTS);
                }
                index
            }
        };
        let open = self.message.as_mut().map(|open| &mut open.text);
        let Some(text) = open else { return };
        let text = text.get_or_insert_with(|| OpenItem { index, text: String::new() });
        text.text.push_str(&piece.text);
        self.delta(TextDelta {
            kind: "response.output_text.delta",
            item_id: id.to_owned(),
            output_index: index,
            summary_index: None,
            content_index: Some(0),
            logprobs: Some([]),
            delta: piece.text.clone(),
            sequence_number: 0,
        });
    }

    /// Adds a piece with its number, or as much of it as the client does not have.
    fn delta(&mut self, mut event: TextDelta) {
        let chars = event.delta.chars().count();
        let before = self.numbers.inside();
        let number = self.numbers.advance(u64::try_from(chars).unwrap_or(u64::MAX));
        if number <= self.after {
            return;
        }
        let begins = number.saturating_sub(self.numbers.inside().saturating_sub(before));
        let known = usize::try_from(self.after.saturating_sub(begins)).unwrap_or(usize::MAX);
        if known > 0 {
            event.delta = event.delta.chars().skip(known).collect();
        }
        event.sequence_number = number;
        self.events.push(ResponseEvent::Delta(event));
    }

    /// Ends the message as journalled, in this phase; without a phase, it is given up.
    pub(super) fn close_message(&mut self, phase: Option<&str>) {
        self.close_thinking();
        let Some(open) = self.message.take() else { return };
        let thinking = open.thinking.map(|thinking| thinking.index);
        let Some(OpenItem { index, text }) = open.text else {
            return self.give_up(thinking, phase);
        };
        let id = open.id.as_str();
        self.push(json!({"type": "response.output_text.done", "item_id": id,
            "output_index": index, "content_index": 0, "text": text, "logprobs": []}));
        self.push(json!({"type": "response.content_part.done", "item_id": id,
            "output_index": index, "content_index": 0, "part": items::output_text(&text)}));
        let status = if phase.is_some() { "completed" } else { "incomplete" };
        self.end_item(index, items::message(id, status, phase, Some(&text)));
        self.give_up(thinking.into_iter().chain([index]), phase);
    }

    /// Takes items back, unless the message is journalled.
    fn give_up(&mut self, items: impl IntoIterator<Item = usize>, phase: Option<&str>) {
        for index in items {
            if let Some(output) = self.output.get_mut(index) {
                output.is_void = phase.is_none();
            }
        }
    }

    /// Ends the thinking; returns whether there was any.
    fn close_thinking(&mut self) -> bool {
        let Some(open) = self.message.as_mut().filter(|open| !open.is_thought) else {
            return false;
        };
        let Some(OpenItem { index, text }) = &open.thinking else { return false };
        let (index, text) = (*index, text.clone());
        let message = open.id.clone();
        open.is_thought = true;
        let id = items::reasoning_id(message.as_str());
        self.push(json!({"type": "response.reasoning_summary_text.done", "item_id": id,
            "output_index": index, "summary_index": 0, "text": text}));
        self.push(json!({"type": "response.reasoning_summary_part.done", "item_id": id,
            "output_index": index, "summary_index": 0, "part": items::summary_text(&text)}));
        self.end_item(index, items::reasoning(message.as_str(), "completed", Some(&text)));
        true
    }
}
