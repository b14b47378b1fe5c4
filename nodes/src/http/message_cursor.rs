//! `?cursor=chars`: where a client is inside a message that streams, and what it lacks of it.

use std::fmt;
use std::str::FromStr;

use abide_actors::live::Delta;
use abide_actors::streaming::StreamingMessage;
use abide_conversation::message::Message;
use abide_conversation::{MessageId, Seq};

/// A place in a conversation: after an event, and after that many characters of the message that is
/// streamed next. Its thinking counts before its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) seq: Seq,
    pub(super) chars: Option<usize>,
}

impl FromStr for Place {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let digits = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            if is_number { Ok(text) } else { Err(()) }
        };
        let (seq, chars) = match text.split_once('.') {
            Some((seq, chars)) => (seq, Some(chars)),
            None => (text, None),
        };
        let seq = Seq::new(digits(seq)?.parse().map_err(drop)?);
        let chars = chars.map(|chars| digits(chars)?.parse().map_err(drop)).transpose()?;
        Ok(Self { seq, chars })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.chars {
            Some(chars) => write!(f, "{}.{chars}", self.seq),
            None => write!(f, "{}", self.seq),
        }
    }
}

/// The message that is streamed now, as far as the client has it.
#[derive(Debug, Default)]
pub(super) struct MessageCursor {
    message: Known,
    /// The characters that the client has.
    chars: usize,
    /// The number of the last delta that it has.
    delta_seq: u64,
}

/// Which message it is.
#[derive(Debug, Default, PartialEq, Eq)]
enum Known {
    /// None: the next one begins with its first delta.
    #[default]
    Nothing,
    /// The one that follows the event at which the client resumes, whichever that is.
    Next,
    Message(MessageId),
}

/// A piece of a message that the client lacks.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) is_thinking: bool,
    pub(super) text: String,
    /// The characters of the message up to the end of the piece.
    pub(super) chars: usize,
    pub(super) delta_seq: u64,
}

impl MessageCursor {
    /// That of a client that resumes at a place.
    pub(super) fn at(place: Place) -> Self {
        let message = if place.chars.is_some() { Known::Next } else { Known::Nothing };
        Self { message, chars: place.chars.unwrap_or_default(), delta_seq: 0 }
    }

    /// That of a client that has the message as far as the snapshot tells it.
    pub(super) fn after(streaming: Option<&StreamingMessage>) -> Self {
        let Some(streaming) = streaming else { return Self::default() };
        Self {
            message: Known::Message(streaming.id.clone()),
            chars: streaming.thinking.chars().count() + streaming.text.chars().count(),
            delta_seq: streaming.delta_seq,
        }
    }

    /// Takes a delta that the client is about to get, and returns the characters of the message up to
    /// its end. `None` if deltas before it were lost.
    pub(super) fn advance(&mut self, delta: &Delta) -> Option<usize> {
        if self.message != Known::Message(delta.message.clone()) {
            if self.message == Known::Next || delta.delta_seq != 1 {
                return None;
            }
            *self = Self { message: Known::Message(delta.message.clone()), ..Self::default() };
        }
        if delta.delta_seq != self.delta_seq + 1 {
            return None;
        }
        self.chars += delta.text.chars().count();
        self.delta_seq = delta.delta_seq;
        Some(self.chars)
    }

    /// The pieces that the client lacks of the message that is streamed now. It has them afterwards.
    pub(super) fn catch_up(&mut self, streaming: Option<&StreamingMessage>) -> Vec<Piece> {
        let Some(streaming) = streaming else {
            self.forget_unless_next();
            return Vec::new();
        };
        let is_known = match &self.message {
            Known::Nothing => false,
            Known::Next => true,
            Known::Message(id) => *id == streaming.id,
        };
        let now = Self::after(Some(streaming));
        // A place past the end is one of a message that was begun anew.
        let had = if is_known && self.chars <= now.chars { self.chars } else { 0 };
        let pieces = pieces(&streaming.thinking, &streaming.text, had, now.delta_seq);
        *self = now;
        pieces
    }

    /// The pieces that the client lacks of a message that is journalled now. Nothing of a message that
    /// it was not getting: it gets the whole at once.
    pub(super) fn complete(&mut self, message: &Message) -> Vec<Piece> {
        let before = std::mem::take(self);
        let is_known = match before.message {
            Known::Nothing => false,
            Known::Next => true,
            Known::Message(id) => id == message.id,
        };
        if !is_known {
            return Vec::new();
        }
        let thinking = message.content.iter().filter(|block| block["type"] == "reasoning");
        let thinking: String = thinking.filter_map(|block| block["text"].as_str()).collect();
        pieces(&thinking, &message.text(), before.chars, before.delta_seq.saturating_add(1))
    }

    /// The message that was streamed is void, or another turn has begun.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    fn forget_unless_next(&mut self) {
        if self.message != Known::Next {
            self.forget();
        }
    }
}

/// What follows the first `had` characters; nothing if there are fewer.
fn pieces(thinking: &str, text: &str, had: usize, delta_seq: u64) -> Vec<Piece> {
    let before_text = thinking.chars().count();
    let all = before_text + text.chars().count();
    let rest = |text: &str, skipped: usize| text.chars().skip(skipped).collect::<String>();
    let thinking =
        Piece { is_thinking: true, text: rest(thinking, had), chars: before_text, delta_seq };
    let text = Piece {
        is_thinking: false,
        text: rest(text, had.saturating_sub(before_text)),
        chars: all,
        delta_seq,
    };
    [thinking, text].into_iter().filter(|piece| !piece.text.is_empty()).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use abide_conversation::message::MessageRole;
    use abide_conversation::{Step, TurnId};
    use serde_json::json;

    use super::*;

    fn streaming(id: &str, thinking: &str, text: &str, delta_seq: u64) -> StreamingMessage {
        let (thinking, text) = (thinking.to_owned(), text.to_owned());
        let (turn, step) = (TurnId::new("t"), Step::ZERO);
        StreamingMessage { id: MessageId::new(id), text, thinking, delta_seq, turn, step }
    }

    fn delta(id: &str, text: &str, delta_seq: u64) -> Delta {
        let (turn, step) = (TurnId::new("t"), Step::ZERO);
        Delta { turn, step, message: MessageId::new(id), text: text.to_owned(), delta_seq }
    }

    fn message(id: &str) -> Message {
        let content = vec![
            json!({"type": "reasoning", "text": "hüm"}),
            json!({"type": "text", "text": "Grüße"}),
        ];
        Message::new(MessageId::new(id), MessageRole::Assistant, content)
    }

    /// The pieces as `thinking|text` and the places behind them.
    fn shown(pieces: &[Piece]) -> (String, Vec<usize>) {
        let text = |is_thinking: bool| {
            let of = pieces.iter().filter(|piece| piece.is_thinking == is_thinking);
            of.map(|piece| piece.text.as_str()).collect::<String>()
        };
        let places = pieces.iter().map(|piece| piece.chars).collect();
        (format!("{}|{}", text(true), text(false)), places)
    }

    fn at(chars: Option<usize>) -> MessageCursor {
        MessageCursor::at(Place { seq: Seq::new(4), chars })
    }

    #[test]
    fn a_place_is_a_seq_with_or_without_characters() {
        for text in ["7", "7.0", "7.12"] {
            assert_eq!(text.parse::<Place>().unwrap().to_string(), text);
        }
        for wrong in ["", ".", "7.", ".7", "7.x", "7.-1", "+7", "7.+1", "7.1.2", "7,1", "-7"] {
            assert_eq!(wrong.parse::<Place>(), Err(()), "{wrong}");
        }
        assert!(format!("1.{}", "9".repeat(30)).parse::<Place>().is_err());
    }

    #[test]
    fn wherever_a_client_resumes_it_gets_the_rest_and_nothing_twice() {
        let whole = "hümGrüße";
        for had in 0..=8 {
            let rest: String = whole.chars().skip(had).collect();
            let (thinking, text) =
                if had < 3 { rest.split_at(rest.find('G').unwrap()) } else { ("", rest.as_str()) };
            let expected = format!("{thinking}|{text}");
            let pieces = at(Some(had)).complete(&message("m"));
            assert_eq!(shown(&pieces).0, expected, "{had} of a journalled message");
            let mut cursor = at(Some(had));
            let pieces = cursor.catch_up(Some(&streaming("m", "hüm", "Grüße", 9)));
            assert_eq!(shown(&pieces).0, expected, "{had} of a streaming message");
            assert_eq!(cursor.advance(&delta("m", "!", 10)), Some(9));
        }
        let pieces = at(Some(1)).complete(&message("m"));
        assert_eq!(shown(&pieces).1, [3, 8]);
    }

    #[test]
    fn a_place_that_no_message_has_begins_the_streaming_one_anew_and_adds_nothing_to_a_whole_one() {
        let pieces = at(Some(100)).catch_up(Some(&streaming("m", "", "new", 2)));
        assert_eq!(shown(&pieces), ("|new".to_owned(), vec![3]));
        assert_eq!(at(Some(100)).complete(&message("m")), []);
        assert_eq!(at(None).complete(&message("m")), []);
        let mut inside_another = MessageCursor::after(Some(&streaming("a", "", "abc", 3)));
        assert_eq!(inside_another.complete(&message("m")), []);
    }

    #[test]
    fn lost_deltas_are_noticed_and_made_up_for() {
        let mut cursor = MessageCursor::after(Some(&streaming("m", "h", "", 1)));
        assert_eq!(cursor.advance(&delta("m", "üm", 2)), Some(3));
        assert_eq!(cursor.advance(&delta("m", "rü", 4)), None, "a delta was lost");
        let pieces = cursor.catch_up(Some(&streaming("m", "hüm", "Grü", 4)));
        assert_eq!(shown(&pieces), ("|Grü".to_owned(), vec![6]));
        assert_eq!(cursor.advance(&delta("m", "ße", 5)), Some(8));
        assert_eq!(cursor.complete(&message("m")), []);
        assert_eq!(cursor.advance(&delta("n", "Neu", 1)), Some(3), "the next message");
        assert_eq!(cursor.advance(&delta("o", "eu", 2)), None, "its beginning was lost");
        cursor.forget();
        assert_eq!(cursor.complete(&message("n")), []);
    }
}
