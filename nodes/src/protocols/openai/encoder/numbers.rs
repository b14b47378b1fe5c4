//! The numbers of a response's events.
//!
//! A number is that of the last journalled event that told something, times 2²⁰, and a place: 0 to 1023
//! count the events that follow it, and from 1024 on a place is a number of characters of the message
//! that is written next. The events between the thinking and the text of a message are numbered as if
//! they were characters.
//!
//! A message that is begun anew has characters of its own, so its places are others: those of the next
//! round. The first round has three quarters of all places, and each later one half of those that are left; a
//! number says by itself in which round it is. Whoever goes on after it is told the message in that round.

use abide_conversation::Seq;

/// The numbers of the events between two journalled ones.
const PLACES: u64 = 1 << 20;
/// How many of them are those of later rounds.
const LATER_PLACES: u64 = PLACES / 4;
/// The first place inside of a message.
const FIRST_CHAR: u64 = 1_024;
/// The places between the thinking and the text of a message.
pub(super) const BETWEEN_PARTS: u64 = 8;
/// In a later round, the first place of the new message. Before it, what ends the void one is told.
const FIRST_OF_NEW: u64 = 16;
/// The last round, in which a message may have some 15,000 characters: nodes die less often than this
/// while one message is written.
const LAST_ROUND: u32 = 5;

/// Counts the events of a response.
#[derive(Debug)]
pub(super) struct Numbers {
    seq: Seq,
    /// How often the message after this event was begun anew.
    round: u32,
    /// The next place outside of a message, in the round.
    next: u64,
    /// The place inside of the message, in the round.
    inside: Option<u64>,
    /// The number of the last event.
    last: u64,
}

impl Numbers {
    /// The numbers after this event.
    pub(super) fn new(seq: Seq) -> Self {
        Self { seq, round: 0, next: 0, inside: None, last: 0 }
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

    /// Begins the next round: the message that is written is void, and is begun anew.
    pub(super) fn begin_anew(&mut self) {
        self.round = (self.round + 1).min(LAST_ROUND);
        (self.next, self.inside) = (0, None);
    }

    /// Begins a message, in the round of a client that has this number of it.
    pub(super) fn begin_message(&mut self, after: u64) {
        if after / PLACES == self.seq.get() {
            self.round = self.round.max(round_of(after % PLACES));
        }
        if self.round > 0 {
            self.next = FIRST_OF_NEW;
        }
    }

    fn number(&mut self, place: u64) -> u64 {
        let end = if self.round < LAST_ROUND { first_place(self.round + 1) } else { PLACES };
        let place = (first_place(self.round) + place).min(end - 1);
        let number = self.seq.get().saturating_mul(PLACES) + place;
        self.last = number.max(self.last.saturating_add(1));
        self.last
    }
}

/// The first place of a round.
fn first_place(round: u32) -> u64 {
    match round.checked_sub(1) {
        None => 0,
        Some(later) => PLACES - (LATER_PLACES >> later),
    }
}

/// The round of a place.
fn round_of(place: u64) -> u32 {
    let rounds = (1..=LAST_ROUND).take_while(|round| first_place(*round) <= place);
    rounds.last().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_has_no_number_of_a_later_round() {
        let mut numbers = Numbers::new(Seq::new(3));
        for chars in [1, 600_000, 100_000] {
            let number = numbers.advance(chars);
            assert_eq!((number / PLACES, round_of(number % PLACES)), (3, 0));
        }
        for round in 1..=LAST_ROUND {
            numbers.begin_anew();
            assert_eq!(round_of(numbers.advance(5_000) % PLACES), round);
        }
    }
}
