//! The numbers of a response's events.
//!
//! A number is that of the last journalled event that told something, times 2²⁰, and a place: 0 to 1023
//! count the events that follow it, and from 1024 on a place is a number of characters of the message
//! that is written next. The events between the thinking and the text of a message are numbered as if
//! they were characters.

use abide_conversation::Seq;

/// The numbers of the events between two journalled ones.
const PLACES: u64 = 1 << 20;
/// The first place inside of a message.
const FIRST_CHAR: u64 = 1_024;
/// The places between the thinking and the text of a message.
pub(super) const BETWEEN_PARTS: u64 = 8;

/// Counts the events of a response.
#[derive(Debug)]
pub(super) struct Numbers {
    seq: Seq,
    /// The next place outside of a message.
    next: u64,
    /// The place inside of the message.
    inside: Option<u64>,
    /// The number of the last event.
    last: u64,
}

impl Numbers {
    /// The numbers after this event.
    pub(super) fn new(seq: Seq) -> Self {
        Self { seq, next: 0, inside: None, last: 0 }
    }

    /// Goes on after this event, which is journalled.
    pub(super) fn move_to(&mut self, seq: Seq) {
        if seq > self.seq {
            *self = Self { last: self.last, ..Self::new(seq) };
        }
    }

    /// The number of an event that has no characters.
    pub(super) fn next(&mut self) -> u64 {
        let place = match &mut self.inside {
            Some(inside) => {
                *inside += 1;
                *inside
            }
            None => {
                self.next += 1;
                (self.next - 1).min(FIRST_CHAR - 1)
            }
        };
        self.number(place)
    }

    /// The number of an event with this many characters of the message, after that of the one before.
    pub(super) fn advance(&mut self, chars: u64) -> u64 {
        let inside = self.inside.unwrap_or(FIRST_CHAR).saturating_add(chars);
        self.inside = Some(inside);
        self.number(inside)
    }

    /// The number of the last event.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// The place inside of the message.
    pub(super) fn inside(&self) -> u64 {
        self.inside.unwrap_or(FIRST_CHAR)
    }

    /// Goes to a place inside of the message.
    pub(super) fn set_inside(&mut self, place: u64) {
        self.inside = Some(place);
    }

    /// Leaves the message, which is begun anew.
    pub(super) fn leave(&mut self) {
        self.inside = None;
    }

    fn number(&mut self, place: u64) -> u64 {
        let number = self.seq.get().saturating_mul(PLACES) + place.min(PLACES - 1);
        // A message that is begun anew is numbered anew. What is told of it goes on from there.
        self.last = number.max(self.last.saturating_add(1));
        self.last
    }
}
