//! The text and the thinking of the message that a model is writing, as far as items have it.

use abide_actors::live::Delta;
use abide_actors::streaming::StreamingMessage;
use abide_conversation::MessageId;
use abide_conversation::message::Message;

use super::item::{Item, Piece};

/// The message that the model is writing.
#[derive(Debug)]
pub(super) struct MessageText {
    pub(super) message: MessageId,
    thinking: JoinedText,
    text: JoinedText,
    /// The number of the last piece that items have.
    delta_seq: u64,
    /// Whether a piece was lost: what follows waits until the whole is known.
    is_cut: bool,
}

/// Pieces, joined.
#[derive(Debug, Default)]
struct JoinedText {
    text: String,
    chars: usize,
}

/// Which of the two a piece belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channel {
    Thinking,
    Text,
}

impl MessageText {
    /// A message that items have nothing of.
    pub(super) fn new(message: MessageId) -> Self {
        let thinking = JoinedText::default();
        Self { message, thinking, text: JoinedText::default(), delta_seq: 0, is_cut: false }
    }

    /// Whether items have nothing of it.
    pub(super) fn is_empty(&self) -> bool {
        self.thinking.chars + self.text.chars == 0
    }

    /// Takes a live piece. After a piece that was lost, or one that came before, there is no item.
    pub(super) fn add(&mut self, channel: Channel, delta: &Delta) -> Option<Item> {
        if self.is_cut || delta.delta_seq <= self.delta_seq {
            return None;
        }
        if delta.delta_seq > self.delta_seq.saturating_add(1) {
            self.is_cut = true;
            return None;
        }
        self.delta_seq = delta.delta_seq;
        self.push(channel, &delta.text)
    }

    /// Takes the message as it is now, which closes the gap that a lost piece left. `None` if it does
    /// not continue what items have.
    pub(super) fn continue_as(&mut self, now: &StreamingMessage) -> Option<Vec<Item>> {
        if now.delta_seq <= self.delta_seq {
            return Some(Vec::new());
        }
        let items = self.complete(&now.thinking, &now.text)?;
        self.delta_seq = now.delta_seq;
        self.is_cut = false;
        Some(items)
    }

    /// Takes the whole message from the journal. `None` if it does not continue what items have.
    pub(super) fn end_as(&mut self, message: &Message) -> Option<Vec<Item>> {
        self.complete(&thinking(message), &message.text())
    }

    fn complete(&mut self, thinking: &str, text: &str) -> Option<Vec<Item>> {
        let thinking = thinking.strip_prefix(self.thinking.text.as_str())?;
        let text = text.strip_prefix(self.text.text.as_str())?;
        let pieces = [(Channel::Thinking, thinking), (Channel::Text, text)];
        Some(pieces.into_iter().filter_map(|(channel, piece)| self.push(channel, piece)).collect())
    }

    fn push(&mut self, channel: Channel, piece: &str) -> Option<Item> {
        if piece.is_empty() {
            return None;
        }
        let so_far = match channel {
            Channel::Thinking => &mut self.thinking,
            Channel::Text => &mut self.text,
        };
        let place = so_far.chars;
        so_far.text.push_str(piece);
        so_far.chars += piece.chars().count();
        let piece = Piece { message: self.message.clone(), place, text: piece.to_owned() };
        Some(match channel {
            Channel::Thinking => Item::Thinking(piece),
            Channel::Text => Item::Text(piece),
        })
    }
}

/// The thinking of a message, joined.
fn thinking(message: &Message) -> String {
    let blocks = message.content.iter().filter(|block| block["type"] == "reasoning");
    blocks.filter_map(|block| block["text"].as_str()).collect()
}
