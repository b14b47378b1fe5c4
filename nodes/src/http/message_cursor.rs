//! `?cursor=chars`: how far a client has a message that streams, and what it lacks of it.

mod place;

use abide_actors::live::Delta;
use abide_actors::streaming::StreamingMessage;
use abide_conversation::MessageId;
use abide_conversation::message::Message;

pub(super) use place::{Inside, MessageMark, Place};

/// The message that is streamed now, as far as the client has it.
#[derive(Debug, Default)]
pub(super) enum MessageCursor {
    /// The client has nothing of a message: the next one begins with its first delta.
    #[default]
    Outside,
    /// The client has the first `chars` characters of the message that follows the event at which it
    /// resumes, whichever message that is.
    Next { chars: usize },
    /// The client has this much of this message.
    Within(Extent),
}

/// How much of a message a client has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    message: MessageId,
    /// The characters of its thinking, and those of its text.
    thinking: usize,
    text: usize,
    /// The number of its last delta; 0 if that is not known.
    delta_seq: u64,
}

/// A piece of a message that a client lacks.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) is_thinking: bool,
    pub(super) text: String,
    pub(super) delta_seq: u64,
    /// The client's place once it has the piece.
    pub(super) inside: Inside,
}

impl MessageCursor {
    /// The cursor of a client that resumes at a place.
    pub(super) fn at(place: &Place) -> Self {
        match &place.inside {
            None => Self::Outside,
            Some(Inside { chars, mark: None }) => Self::Next { chars: *chars },
            Some(Inside { chars, mark: Some(MessageMark { thinking, message }) }) => {
                Self::Within(Extent {
                    message: message.clone(),
                    thinking: *thinking,
                    text: chars.saturating_sub(*thinking),
                    delta_seq: 0,
                })
            }
        }
    }

    /// The cursor of a client that has the message as far as the snapshot shows it.
    pub(super) fn after(streaming: Option<&StreamingMessage>) -> Self {
        streaming.map_or(Self::Outside, |streaming| Self::Within(Extent::of(streaming)))
    }

    /// The place inside the message at which the client could resume now.
    pub(super) fn inside(&self) -> Option<Inside> {
        match self {
            Self::Outside => None,
            Self::Next { chars } => Some(Inside { chars: *chars, mark: None }),
            Self::Within(extent) => Some(extent.inside()),
        }
    }

    /// Takes a delta that the client is about to get, and returns its place after it. `None` if deltas
    /// before it were lost.
    pub(super) fn advance(&mut self, delta: &Delta, is_thinking: bool) -> Option<Inside> {
        let is_same = matches!(self, Self::Within(extent) if extent.message == delta.message);
        if !is_same && delta.delta_seq == 1 && !matches!(self, Self::Next { .. }) {
            *self = Self::Within(Extent::none_of(delta.message.clone()));
        }
        let Self::Within(extent) = self else { return None };
        if extent.message != delta.message || delta.delta_seq != extent.delta_seq + 1 {
            return None;
        }
        let chars = delta.text.chars().count();
        if is_thinking {
            extent.thinking += chars
        } else {
            extent.text += chars
        }
        extent.delta_seq = delta.delta_seq;
        Some(extent.inside())
    }

    /// The pieces that the client lacks of the message that is streamed now. It has them afterwards.
    pub(super) fn catch_up(&mut self, streaming: &StreamingMessage) -> Vec<Piece> {
        let Extent { thinking, text, delta_seq, .. } = Extent::of(streaming);
        let mut extent = self.extent_in(&streaming.id, thinking, text);
        let pieces = extent.complete(&streaming.thinking, &streaming.text, delta_seq);
        *self = Self::Within(Extent { delta_seq, ..extent });
        pieces
    }

    /// The pieces that the client lacks of a message that is journalled now. No piece of a message of
    /// which the client has nothing: the frame of its event has the whole.
    pub(super) fn complete(&mut self, message: &Message) -> Vec<Piece> {
        let before = std::mem::take(self);
        if matches!(before, Self::Outside) {
            return Vec::new();
        }
        let thinking = message.content.iter().filter(|block| block["type"] == "reasoning");
        let thinking: String = thinking.filter_map(|block| block["text"].as_str()).collect();
        let text = message.text();
        let (all_thinking, all_text) = (thinking.chars().count(), text.chars().count());
        let mut extent = before.extent_in(&message.id, all_thinking, all_text);
        let next_delta = extent.delta_seq.saturating_add(1);
        extent.complete(&thinking, &text, next_delta)
    }

    /// The message that was streamed is void, or another turn has begun.
    pub(super) fn leave(&mut self) {
        *self = Self::Outside;
    }

    /// How much the client has of a message that has `thinking` and `text` characters: nothing if it
    /// is inside of another one, which was begun anew as this one, or past its end.
    fn extent_in(&self, message: &MessageId, thinking: usize, text: usize) -> Extent {
        let nothing = || Extent::none_of(message.clone());
        match self {
            Self::Next { chars } if *chars <= thinking + text => {
                let thinking = thinking.min(*chars);
                Extent { thinking, text: chars - thinking, ..nothing() }
            }
            Self::Within(extent)
                if extent.message == *message
                    && extent.thinking <= thinking
                    && extent.text <= text =>
            {
                extent.clone()
            }
            Self::Outside | Self::Next { .. } | Self::Within(_) => nothing(),
        }
    }
}

impl Extent {
    fn of(streaming: &StreamingMessage) -> Self {
        Self {
            message: streaming.id.clone(),
            thinking: streaming.thinking.chars().count(),
            text: streaming.text.chars().count(),
            delta_seq: streaming.delta_seq,
        }
    }

    fn none_of(message: MessageId) -> Self {
        Self { message, thinking: 0, text: 0, delta_seq: 0 }
    }

    fn inside(&self) -> Inside {
        let mark = MessageMark { thinking: self.thinking, message: self.message.clone() };
        Inside { chars: self.thinking + self.text, mark: Some(mark) }
    }

    /// Adds the rest of a message that has this thinking and text, and returns it as pieces.
    fn complete(&mut self, thinking: &str, text: &str, delta_seq: u64) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for (is_thinking, whole) in [(true, thinking), (false, text)] {
            let had = if is_thinking { &mut self.thinking } else { &mut self.text };
            let text: String = whole.chars().skip(*had).collect();
            *had += text.chars().count();
            if !text.is_empty() {
                pieces.push(Piece { is_thinking, text, delta_seq, inside: self.inside() });
            }
        }
        pieces
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
