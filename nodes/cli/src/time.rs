//! Times and durations: as people say them, or as they are stored.

use std::time::Duration;

use clap::ValueEnum;
use jiff::Timestamp;

/// How times are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TimeStyle {
    /// 3m ago, in 29m
    Human,
    /// 2026-01-01T00:00:00.000Z
    Iso,
}

impl TimeStyle {
    /// A time of an answer; what cannot be read as one stays as it is.
    pub(crate) fn show(self, text: &str) -> String {
        match self {
            Self::Iso => text.to_owned(),
            Self::Human => match text.parse::<Timestamp>() {
                Ok(at) => relative(at, Timestamp::now()),
                Err(_) => text.to_owned(),
            },
        }
    }
}

fn relative(at: Timestamp, now: Timestamp) -> String {
    let seconds = at.as_second() - now.as_second();
    let span = span(seconds.unsigned_abs());
    match seconds {
        0 => "now".to_owned(),
        1.. => format!("in {span}"),
        _ => format!("{span} ago"),
    }
}

/// The two largest units of a span.
pub(crate) fn span(seconds: u64) -> String {
    let minutes = seconds / 60;
    let hours = minutes / 60;
    let days = hours / 24;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..600 if !seconds.is_multiple_of(60) => format!("{minutes}m{}s", seconds % 60),
        60..3_600 => format!("{minutes}m"),
        3_600..86_400 if !minutes.is_multiple_of(60) => format!("{hours}h{}m", minutes % 60),
        3_600..86_400 => format!("{hours}h"),
        _ if !hours.is_multiple_of(24) => format!("{days}d{}h", hours % 24),
        _ => format!("{days}d"),
    }
}

/// A duration as the nodes write them: `300s`, `5m`, `250ms`, `2d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "must be a duration such as 300s, 5m or 250ms".to_owned();
    let span: jiff::Span = text.parse().map_err(|_| wrong())?;
    let days_are_24_hours = jiff::SpanRelativeTo::days_are_24_hours();
    let signed = span.to_duration(days_are_24_hours).map_err(|_| wrong())?;
    Duration::try_from(signed).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_at_most_two_units() {
        for (seconds, expected) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (61, "1m1s"),
            (601, "10m"),
            (3_600, "1h"),
            (3_661, "1h1m"),
            (90_000, "1d1h"),
            (864_000, "10d"),
        ] {
            assert_eq!(span(seconds), expected);
        }
    }

    #[test]
    fn a_time_is_told_from_now() {
        let now = Timestamp::constant(1_000, 0);
        assert_eq!(relative(now, now), "now");
        assert_eq!(relative(Timestamp::constant(1_090, 0), now), "in 1m30s");
        assert_eq!(relative(Timestamp::constant(940, 0), now), "1m ago");
        assert_eq!(TimeStyle::Human.show("soon"), "soon");
    }

    #[test]
    fn a_duration_is_read_as_the_nodes_read_it() {
        assert_eq!(duration("1m"), Ok(Duration::from_secs(60)));
        assert!(duration("-1s").is_err() && duration("a while").is_err());
    }
}
