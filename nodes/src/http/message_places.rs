//! The frames of a stream with `?cursor=chars`, whose ids are places inside messages.

use abide_actors::live::Delta;
use abide_actors::streaming::StreamingMessage;
use abide_conversation::event::{Event, EventData};
use abide_conversation::ids::MessageId;

use super::events::Feed;
use super::frames::Payload;
use super::message_cursor::{Piece, Place};

/// The end of a frame.
const FRAME_END: &[u8] = b"\n\n";

impl Feed {
    /// Encodes a delta with its place. Returns false if deltas before it were lost.
    pub(super) fn encode_delta(&mut self, delta: &Delta, is_thinking: bool) -> bool {
        let inside = self.cursor.as_mut().and_then(|cursor| cursor.advance(delta, is_thinking));
        let Some(inside) = inside else { return self.recover() };
        let (text, delta_seq) = (delta.text.clone(), delta.delta_seq);
        self.encode_pieces(&delta.message, vec![Piece { is_thinking, text, delta_seq, inside }]);
        true
    }

    fn encode_pieces(&mut self, message_id: &MessageId, pieces: Vec<Piece>) {
        for Piece { is_thinking, text, delta_seq, inside } in pieces {
            let message_id = message_id.clone();
            let payload = if is_thinking {
                Payload::ThinkingDelta { message_id, text, delta_seq }
            } else {
                Payload::TextDelta { message_id, text, delta_seq }
            };
            let place = Place { seq: self.sent, inside: Some(inside) };
            self.encoded.extend_from_slice(&payload.encode(Some(place)));
        }
    }

    /// Encodes what the client lacks of the message that streams now.
    pub(super) fn catch_up_in_message(&mut self, streaming: &StreamingMessage) {
        let Some(cursor) = &mut self.cursor else { return };
        let pieces = cursor.catch_up(streaming);
        self.snapshot_delta = Some((streaming.id.clone(), streaming.delta_seq));
        self.encode_pieces(&streaming.id, pieces);
    }

    /// Encodes what the client lacks of a message, before the frame of its event.
    pub(super) fn complete_message(&mut self, event: &Event) {
        let Some(cursor) = &mut self.cursor else { return };
        match &event.data {
            EventData::AssistantMsg(assistant) => {
                let pieces = cursor.complete(&assistant.message);
                self.encode_pieces(&assistant.message.id, pieces);
            }
            EventData::MessageRefused(_) | EventData::TurnStarted(_) | EventData::TurnEnded(_) => {
                cursor.leave();
            }
            _ => {}
        }
    }

    /// Adds the place inside the message to the id of the last frame, which is that of an event: a
    /// client that resumes at the event has that much of the message.
    pub(super) fn extend_id(&mut self) {
        let inside = self.cursor.as_ref().and_then(|cursor| cursor.inside());
        let (Some(inside), true) = (inside, self.encoded.ends_with(FRAME_END)) else { return };
        self.encoded.truncate(self.encoded.len() - FRAME_END.len());
        self.encoded.extend_from_slice(format!(".{inside}").as_bytes());
        self.encoded.extend_from_slice(FRAME_END);
    }
}
