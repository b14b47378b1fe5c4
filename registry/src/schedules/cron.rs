//! Cron expressions: five fields or a nickname, read in a time zone.
//!
//! A library would read the fields, and none has exactly the rules of `reference/schedules.md` for clocks
//! that are changed: a time that does not exist runs at the next that does, one that exists twice once.

use abide_conversation::Timestamp;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, TimeZone};

/// How far ahead the next time is looked for: 29 February is eight years away at most.
const MAX_DAYS: usize = 8 * 366 + 1;

/// The values of a field that a time must have one of, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field(u64);

impl Field {
    fn has(self, value: i8) -> bool {
        u32::try_from(value).is_ok_and(|value| self.0 >> value & 1 == 1)
    }
}

/// A cron expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron {
    minutes: Field,
    hours: Field,
    days: Field,
    months: Field,
    /// Sunday is 0.
    weekdays: Field,
    /// Whether both kinds of day are limited: then either of them suffices.
    either_day: bool,
}

/// A field of an expression: its name, its values, and the words for them.
struct Column {
    name: &'static str,
    least: u32,
    most: u32,
    words: &'static [&'static str],
}

const COLUMNS: [Column; 5] = [
    Column { name: "minute", least: 0, most: 59, words: &[] },
    Column { name: "hour", least: 0, most: 23, words: &[] },
    Column { name: "day of the month", least: 1, most: 31, words: &[] },
    Column {
        name: "month",
        least: 1,
        most: 12,
        words: &[
            "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
        ],
    },
    // Both 0 and 7 are Sunday.
    Column {
        name: "day of the week",
        least: 0,
        most: 7,
        words: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
    },
];

impl Cron {
    /// Parses five fields or a nickname; the error names the field that is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let fields: Vec<&str> = nickname(text)?.unwrap_or(text).split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields.as_slice() else {
            return Err("must have five fields, or be a nickname such as @daily".to_owned());
        };
        let [minutes, hours, days, months, weekdays] = COLUMNS;
        let weekdays = weekdays.read(weekday)?;
        Ok(Self {
            minutes: minutes.read(minute)?,
            hours: hours.read(hour)?,
            days: days.read(day)?,
            months: months.read(month)?,
            weekdays: Field(weekdays.0 & 0x7f | weekdays.0 >> 7),
            either_day: !day.starts_with('*') && !weekday.starts_with('*'),
        })
    }

    /// The first time after this one; `None` if there is none.
    pub fn next_after(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let local = zone.to_datetime(*after);
        let mut date = local.date();
        // On the first day only times after the minute that has begun count.
        let mut from = Some(local.time());
        for _ in 0..MAX_DAYS {
            if self.has_day(date) {
                let begin = from.unwrap_or(Time::midnight());
                for time in self.times(begin) {
                    let at = instant(date.to_datetime(time), zone)?;
                    if at > after {
                        return Some(at);
                    }
                }
            }
            from = None;
            date = date.tomorrow().ok()?;
        }
        None
    }

    fn has_day(&self, date: Date) -> bool {
        let day = self.days.has(date.day());
        let weekday = self.weekdays.has(date.weekday().to_sunday_zero_offset());
        let is_day = if self.either_day { day || weekday } else { day && weekday };
        is_day && self.months.has(date.month())
    }

    /// The times of a day from this minute on, in order.
    fn times(&self, from: Time) -> impl Iterator<Item = Time> {
        let Self { minutes, hours, .. } = *self;
        (from.hour()..24).filter(move |hour| hours.has(*hour)).flat_map(move |hour| {
            let first = if hour == from.hour() { from.minute() } else { 0 };
            let minutes = (first..60).filter(move |minute| minutes.has(*minute));
            minutes.filter_map(move |minute| Time::new(hour, minute, 0, 0).ok())
        })
    }
}

/// The moment of a local time: the first of two, and the end of a gap that the time lies in.
fn instant(local: DateTime, zone: &TimeZone) -> Option<Timestamp> {
    let ambiguous = zone.to_ambiguous_timestamp(local);
    let moment = match ambiguous.offset() {
        AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(local),
        AmbiguousOffset::Fold { before, .. } => before.to_timestamp(local),
        AmbiguousOffset::Gap { after, .. } => {
            // By the clock after the change, the time lies before it: the change is what comes next.
            let before = after.to_timestamp(local).ok()?;
            return zone.following(before).next().map(|change| change.timestamp().into());
        }
    };
    moment.ok().map(Timestamp::from)
}

/// The fields that a nickname stands for; `None` if it is none.
fn nickname(text: &str) -> Result<Option<&'static str>, String> {
    Ok(Some(match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        other if other.starts_with('@') => {
            let known = "@yearly, @annually, @monthly, @weekly, @daily, @midnight or @hourly";
            return Err(format!("must be {known}, or five fields"));
        }
        _ => return Ok(None),
    }))
}

impl Column {
    fn read(&self, text: &str) -> Result<Field, String> {
        let mut field = 0;
        for item in text.split(',') {
            let (range, step) = match item.split_once('/') {
                Some((range, step)) => (range, Some(self.step(step)?)),
                None => (item, None),
            };
            let (first, last) = match range.split_once('-') {
                _ if range == "*" => (self.least, self.most),
                Some((first, last)) => (self.value(first)?, self.value(last)?),
                // `5/15` goes on to the end.
                None if step.is_some() => (self.value(range)?, self.most),
                None => (self.value(range)?, self.value(range)?),
            };
            if first > last {
                return Err(self.wrong(item, "ends before it begins"));
            }
            let values = (first..=last).step_by(step.unwrap_or(1));
            field |= values.fold(0_u64, |bits, value| bits | 1 << value);
        }
        Ok(Field(field))
    }

    fn step(&self, text: &str) -> Result<usize, String> {
        let step = text.parse().ok().filter(|step| (1..=59).contains(step));
        step.ok_or_else(|| self.wrong(text, "is no step from 1 to 59"))
    }

    fn value(&self, text: &str) -> Result<u32, String> {
        let word = self.words.iter().position(|word| word.eq_ignore_ascii_case(text));
        if let Some(place) = word {
            return Ok(self.least + u32::try_from(place).unwrap_or_default());
        }
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let value =
            text.parse().ok().filter(|value| is_number && (self.least..=self.most).contains(value));
        let range = format!("is no value from {} to {}", self.least, self.most);
        value.ok_or_else(|| self.wrong(text, &range))
    }

    fn wrong(&self, text: &str, why: &str) -> String {
        let text: String = text.chars().take(32).collect();
        format!("the {} {text:?} {why}", self.name)
    }
}

/// The first time after this one of an interval that is counted from a beginning.
pub fn next_of_interval(begin: Timestamp, every_ms: u64, after: Timestamp) -> Option<Timestamp> {
    if after < begin {
        return Some(begin);
    }
    let every = i128::from(every_ms.max(1)) * 1_000_000;
    let passed = after.as_nanosecond() - begin.as_nanosecond();
    let next = begin.as_nanosecond() + (passed / every + 1) * every;
    Timestamp::from_nanosecond(next).ok()
}

#[cfg(test)]
mod tests;
