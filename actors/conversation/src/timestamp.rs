//! A moment, in UTC.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use jiff::fmt::temporal::DateTimePrinter;
use jiff::{SignedDuration, TimestampArithmetic};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A moment, in UTC. Its text is RFC 3339 with always three digits of a second, so that the order of
/// texts is the order of times.
///
/// Clocks give whole milliseconds. A finer time is written with all of its digits, so that nothing is
/// lost, and sorts right except within its millisecond.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(jiff::Timestamp);

const NANOS_PER_MILLI: i32 = 1_000_000;
/// The longest text is that of a moment before the year 0 with nanoseconds.
const MAX_TEXT_BYTES: usize = 33;
static MILLISECONDS: DateTimePrinter = DateTimePrinter::new().precision(Some(3));
static ALL_DIGITS: DateTimePrinter = DateTimePrinter::new();

impl Timestamp {
    /// The earliest moment.
    pub const MIN: Self = Self(jiff::Timestamp::MIN);
    /// The latest moment.
    pub const MAX: Self = Self(jiff::Timestamp::MAX);
    /// The beginning of 1970.
    pub const UNIX_EPOCH: Self = Self(jiff::Timestamp::UNIX_EPOCH);

    /// The moment N seconds after the beginning of 1970.
    pub fn from_second(second: i64) -> Result<Self, jiff::Error> {
        jiff::Timestamp::from_second(second).map(Self)
    }

    /// The moment N milliseconds after the beginning of 1970.
    pub fn from_millisecond(millisecond: i64) -> Result<Self, jiff::Error> {
        jiff::Timestamp::from_millisecond(millisecond).map(Self)
    }

    /// The moment N microseconds after the beginning of 1970.
    pub fn from_microsecond(microsecond: i64) -> Result<Self, jiff::Error> {
        jiff::Timestamp::from_microsecond(microsecond).map(Self)
    }

    /// The moment N nanoseconds after the beginning of 1970.
    pub fn from_nanosecond(nanosecond: i128) -> Result<Self, jiff::Error> {
        jiff::Timestamp::from_nanosecond(nanosecond).map(Self)
    }

    /// The moment that is later by this; an error past [`MAX`](Self::MAX).
    pub fn checked_add(self, span: impl Into<TimestampArithmetic>) -> Result<Self, jiff::Error> {
        self.0.checked_add(span).map(Self)
    }

    /// The moment that is earlier by this; an error before [`MIN`](Self::MIN).
    pub fn checked_sub(self, span: impl Into<TimestampArithmetic>) -> Result<Self, jiff::Error> {
        self.0.checked_sub(span).map(Self)
    }

    /// The text, without the detour over a formatter: each event and each frame has times.
    fn text(&self) -> Text {
        let is_whole = self.0.subsec_nanosecond() % NANOS_PER_MILLI == 0;
        let printer = if is_whole { &MILLISECONDS } else { &ALL_DIGITS };
        let mut text = Text { bytes: [0; MAX_TEXT_BYTES], len: 0 };
        // The text of every moment fits.
        let _ = printer.print_timestamp(&self.0, &mut text);
        text
    }

    /// The time from another moment to this one; negative if the other is later.
    pub fn duration_since(self, earlier: Self) -> SignedDuration {
        self.0.duration_since(earlier.0)
    }
}

/// The text of a moment, on the stack.
struct Text {
    bytes: [u8; MAX_TEXT_BYTES],
    len: usize,
}

impl Text {
    fn as_str(&self) -> &str {
        let text = self.bytes.get(..self.len).unwrap_or_default();
        std::str::from_utf8(text).unwrap_or_default()
    }
}

impl jiff::fmt::Write for Text {
    fn write_str(&mut self, more: &str) -> Result<(), jiff::Error> {
        let room = self.bytes.get_mut(self.len..self.len + more.len());
        let no_room =
            || jiff::Error::from_args(format_args!("a time with more than {MAX_TEXT_BYTES} bytes"));
        room.ok_or_else(no_room)?.copy_from_slice(more.as_bytes());
        self.len += more.len();
        Ok(())
    }
}

impl Deref for Timestamp {
    type Target = jiff::Timestamp;

    fn deref(&self) -> &jiff::Timestamp {
        &self.0
    }
}

impl From<jiff::Timestamp> for Timestamp {
    fn from(moment: jiff::Timestamp) -> Self {
        Self(moment)
    }
}

impl From<Timestamp> for jiff::Timestamp {
    fn from(moment: Timestamp) -> Self {
        moment.0
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text().as_str())
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Timestamp {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, jiff::Error> {
        text.parse().map(Self)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.text().as_str())
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        jiff::Timestamp::deserialize(from).map(Self)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_time_has_always_three_digits_of_a_second() {
        for (millisecond, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_700_000_000_310, "2023-11-14T22:13:20.310Z"),
            (1_700_000_000_312, "2023-11-14T22:13:20.312Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
        ] {
            let time = Timestamp::from_millisecond(millisecond).unwrap();
            assert_eq!(serde_json::to_string(&time).unwrap(), format!("\"{text}\""));
            assert_eq!(text.parse::<Timestamp>().unwrap(), time);
        }
    }

    #[test]
    fn what_older_builds_wrote_is_the_same_time() {
        for (old, new) in [
            ("2026-11-22T10:00:01Z", "2026-11-22T10:00:01.000Z"),
            ("2026-11-22T10:00:01.5Z", "2026-11-22T10:00:01.500Z"),
            ("9999-12-30T22:00:00.999999999Z", "9999-12-30T22:00:00.999999999Z"),
        ] {
            let time: Timestamp = serde_json::from_str(&format!("\"{old}\"")).unwrap();
            assert_eq!(time.to_string(), new);
        }
        let nanosecond = SignedDuration::from_nanos(1);
        let longest = Timestamp::MIN.checked_add(nanosecond).unwrap();
        for time in [longest, Timestamp::MIN, Timestamp::MAX] {
            assert_eq!(time.to_string().parse::<Timestamp>().unwrap(), time);
        }
    }

    #[test]
    fn a_time_is_the_same_in_every_unit_and_as_a_moment_of_the_library() {
        let time = Timestamp::from_millisecond(1_700_000_000_000).unwrap();
        assert_eq!(Timestamp::from_second(1_700_000_000).unwrap(), time);
        assert_eq!(Timestamp::from_microsecond(1_700_000_000_000_000).unwrap(), time);
        assert_eq!(Timestamp::from_nanosecond(1_700_000_000_000_000_000).unwrap(), time);
        assert_eq!(Timestamp::from(jiff::Timestamp::from(time)), time);
        assert_eq!(time.as_second(), 1_700_000_000);
        assert_eq!(format!("{time:?}"), "2023-11-14T22:13:20.000Z");
    }

    #[test]
    fn a_time_is_as_much_later_as_was_added() {
        let time = Timestamp::from_second(1_700_000_000).unwrap();
        let span = SignedDuration::from_millis(1_500);
        let (later, earlier) = (time.checked_add(span).unwrap(), time.checked_sub(span).unwrap());
        assert_eq!((later.duration_since(time), earlier.duration_since(time)), (span, -span));
        assert!(
            Timestamp::MAX.checked_add(span).is_err() && Timestamp::MIN.checked_sub(span).is_err()
        );
    }

    proptest! {
        #[test]
        fn the_order_of_texts_is_the_order_of_times(
            one in 0_i64..4_000_000_000_000,
            more in 1_i64..100_000,
        ) {
            let at = |millisecond| Timestamp::from_millisecond(millisecond).unwrap();
            prop_assert!(at(one).to_string() < at(one + more).to_string());
        }
    }
}
