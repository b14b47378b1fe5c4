//! Tests of cursors: what several streams have told of a message joins to it.

use abide_conversation::message::MessageRole;
use abide_conversation::{Seq, Step, TurnId};
use proptest::prelude::*;

use super::*;

/// A message as a model streams it: its pieces, each with whether it is thinking.
type Script = Vec<(bool, String)>;

fn delta(id: &str, text: &str, delta_seq: u64) -> Delta {
    let (turn, step) = (TurnId::new("t"), Step::ZERO);
    Delta { turn, step, message: MessageId::new(id), text: text.to_owned(), delta_seq }
}

fn joined(script: &[(bool, String)]) -> (String, String) {
    let of = |kind: bool| {
        let own = script.iter().filter(|(is_thinking, _)| *is_thinking == kind);
        own.map(|(_, text)| text.as_str()).collect::<String>()
    };
    (of(true), of(false))
}

/// The message after these pieces.
fn streaming(id: &str, script: &[(bool, String)]) -> StreamingMessage {
    let (thinking, text) = joined(script);
    let delta_seq = script.len() as u64;
    let (turn, step) = (TurnId::new("t"), Step::ZERO);
    StreamingMessage { id: MessageId::new(id), text, thinking, delta_seq, turn, step }
}

fn message(id: &str, script: &[(bool, String)]) -> Message {
    let content = streaming(id, script).content();
    Message::new(MessageId::new(id), MessageRole::Assistant, content)
}

fn script(pieces: &[(bool, &str)]) -> Script {
    pieces.iter().map(|(is_thinking, text)| (*is_thinking, (*text).to_owned())).collect()
}

/// What a client has received: the pieces of each message, and the id of the last frame.
#[derive(Clone, Default)]
struct Client {
    message: Option<MessageId>,
    pieces: Script,
    place: Option<Inside>,
}

impl Client {
    /// A delta of another message voids what the client has.
    fn receive(&mut self, message: &MessageId, piece: Piece) {
        if self.message.as_ref() != Some(message) {
            *self = Self { message: Some(message.clone()), ..Self::default() };
        }
        self.place = Some(piece.inside);
        self.pieces.push((piece.is_thinking, piece.text));
    }

    /// Reads `script` from the piece `from` up to the piece `to` as live deltas.
    fn follow(
        &mut self,
        cursor: &mut MessageCursor,
        id: &str,
        script: &Script,
        from: usize,
        to: usize,
    ) {
        for (at, (is_thinking, text)) in script.iter().enumerate().take(to).skip(from) {
            let delta = delta(id, text, at as u64 + 1);
            let inside = cursor.advance(&delta, *is_thinking).expect("no delta is lost");
            let (is_thinking, text) = (*is_thinking, text.clone());
            let delta_seq = delta.delta_seq;
            self.receive(&delta.message, Piece { is_thinking, text, delta_seq, inside });
        }
    }

    /// The cursor of a new stream from the place of the last frame, which travels as text.
    fn reconnect(&self) -> MessageCursor {
        let place = Place { seq: Seq::new(4), inside: self.place.clone() };
        MessageCursor::at(&place.to_string().parse().unwrap())
    }

    fn catch_up(&mut self, cursor: &mut MessageCursor, streaming: &StreamingMessage) {
        for piece in cursor.catch_up(streaming) {
            self.receive(&streaming.id, piece);
        }
    }

    fn complete(&mut self, cursor: &mut MessageCursor, message: &Message) {
        for piece in cursor.complete(message) {
            self.receive(&message.id, piece);
        }
    }
}

fn scripts() -> impl Strategy<Value = Script> {
    prop::collection::vec((any::<bool>(), "[aü😀 ]{0,4}"), 1..8)
}

/// A place in a script of this length.
fn cut(at: prop::sample::Index, script: &Script) -> usize {
    at.index(script.len() + 1)
}

proptest! {
    /// The first stream is cut after any piece; the second begins while the message streams on, and
    /// loses pieces and is cut too; the last one begins when the message is whole.
    #[test]
    fn wherever_streams_are_cut_what_they_told_joins_to_the_message(
        script in scripts(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 4),
    ) {
        let mut at: Vec<usize> = cuts.into_iter().map(|at| cut(at, &script)).collect();
        at.sort_unstable();
        let mut client = Client::default();
        let mut cursor = MessageCursor::after(None);
        client.follow(&mut cursor, "m", &script, 0, at[0]);
        let mut cursor = client.reconnect();
        client.catch_up(&mut cursor, &streaming("m", &script[..at[1]]));
        client.follow(&mut cursor, "m", &script, at[1], at[2]);
        // The stream is too slow, and loses pieces.
        client.catch_up(&mut cursor, &streaming("m", &script[..at[3]]));
        if client.pieces.is_empty() {
            return Ok(());
        }
        let mut lost = client.clone();
        lost.complete(&mut cursor, &message("m", &script));
        prop_assert_eq!(joined(&lost.pieces), joined(&script));
        let mut cursor = client.reconnect();
        client.complete(&mut cursor, &message("m", &script));
        prop_assert_eq!(joined(&client.pieces), joined(&script));
        prop_assert!(matches!(cursor, MessageCursor::Outside));
    }

    /// The client is inside a message whose node dies, and which is begun anew with other words.
    #[test]
    fn a_message_that_was_begun_anew_is_told_from_its_start(
        first in scripts(),
        second in scripts(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 2),
    ) {
        let mut client = Client::default();
        let mut live = MessageCursor::after(None);
        client.follow(&mut live, "m", &first, 0, cut(cuts[0], &first));
        if client.message.is_none() {
            return Ok(());
        }
        let at = cut(cuts[1], &second);
        for mut cursor in [client.reconnect(), live] {
            let mut client = client.clone();
            client.catch_up(&mut cursor, &streaming("n", &second[..at]));
            client.follow(&mut cursor, "n", &second, at, second.len());
            client.complete(&mut cursor, &message("n", &second));
            let is_told = client.message == Some(MessageId::new("n"));
            let expected = if is_told { joined(&second) } else { Default::default() };
            let of_second = if is_told { client.pieces } else { Vec::new() };
            prop_assert_eq!(joined(&of_second), expected);
            prop_assert!(is_told || joined(&second) == Default::default());
        }
        let mut cursor = client.reconnect();
        client.complete(&mut cursor, &message("n", &second));
        if client.message == Some(MessageId::new("n")) {
            prop_assert_eq!(joined(&client.pieces), joined(&second));
        }
    }

    /// A client that names no message gets the rest of the next one, if thinking comes before text.
    #[test]
    fn a_place_without_a_message_is_one_of_the_next(
        thinking in "[aü😀]{0,5}",
        text in "[aü😀]{0,5}",
        at in any::<prop::sample::Index>(),
    ) {
        let whole = format!("{thinking}{text}");
        let chars = at.index(whole.chars().count() + 1);
        let rest: String = whole.chars().skip(chars).collect();
        let script = script(&[(true, &thinking), (false, &text)]);
        let place = Place { seq: Seq::new(4), inside: Some(Inside { chars, mark: None }) };
        let text_of = |pieces: Vec<Piece>| pieces.into_iter().map(|it| it.text).collect::<String>();
        prop_assert_eq!(&text_of(MessageCursor::at(&place).catch_up(&streaming("m", &script))), &rest);
        prop_assert_eq!(&text_of(MessageCursor::at(&place).complete(&message("m", &script))), &rest);
    }
}

fn listing(pieces: &[Piece]) -> Vec<(bool, &str, usize)> {
    pieces.iter().map(|it| (it.is_thinking, it.text.as_str(), it.inside.chars)).collect()
}

#[test]
fn a_place_past_the_end_tells_the_message_from_its_start() {
    let script = script(&[(true, "hüm"), (false, "Grüße")]);
    let whole = vec![(true, "hüm", 3), (false, "Grüße", 8)];
    for place in ["4.9", "4.1000", "4.9.3.m", "4.8.4.m"] {
        let at = || MessageCursor::at(&place.parse().unwrap());
        assert_eq!(listing(&at().catch_up(&streaming("m", &script))), whole, "{place}");
        assert_eq!(listing(&at().complete(&message("m", &script))), whole, "{place}");
    }
    let nothing = MessageCursor::at(&"4".parse().unwrap()).complete(&message("m", &script));
    assert_eq!(listing(&nothing), []);
}

#[test]
fn lost_deltas_are_noticed() {
    let script = script(&[(true, "h"), (true, "üm"), (false, "G"), (false, "rü")]);
    let mut cursor = MessageCursor::after(Some(&streaming("m", &script[..1])));
    assert!(cursor.advance(&delta("m", "üm", 2), true).is_some());
    assert_eq!(cursor.advance(&delta("m", "rü", 4), false), None, "a delta was lost");
    assert_eq!(listing(&cursor.catch_up(&streaming("m", &script))), [(false, "Grü", 6)]);
    assert_eq!(cursor.advance(&delta("m", "ße", 5), false).unwrap().chars, 8);
    assert_eq!(cursor.advance(&delta("o", "eu", 2), false), None, "its beginning was lost");
    assert_eq!(cursor.advance(&delta("n", "Neu", 1), false).unwrap().chars, 3);
    cursor.leave();
    assert_eq!(cursor.complete(&message("n", &script)), []);
    let mut resumed = MessageCursor::at(&"4.1".parse().unwrap());
    assert_eq!(resumed.advance(&delta("n", "Neu", 1), false), None, "it may be the resumed one");
}
