//! Durations as definitions write them: `300s`, `5m`, `250ms`, `1h 30m`, `90d`. A day has 24 hours.

use std::time::Duration;

use jiff::{Span, SpanRelativeTo};

/// The longest duration in a definition: 365 days.
const MAX_DURATION: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Reads a positive duration of at most 365 days.
pub fn parse(text: &str) -> Result<Duration, String> {
    match parse_or_zero(text)? {
        Duration::ZERO => Err("must be longer than nothing".to_owned()),
        duration => Ok(duration),
    }
}

/// Reads a duration of at most 365 days, which may be zero.
pub(super) fn parse_or_zero(text: &str) -> Result<Duration, String> {
    let duration = parse_any(text)?;
    if duration > MAX_DURATION {
        return Err("must be at most 365 days".to_owned());
    }
    Ok(duration)
}

/// Reads a duration of any length.
pub(super) fn parse_any(text: &str) -> Result<Duration, String> {
    let form = || "must be a duration such as \"300s\", \"5m\" or \"250ms\"".to_owned();
    let span: Span = text.parse().map_err(|_| form())?;
    let days_are_24_hours = SpanRelativeTo::days_are_24_hours();
    let signed = span.to_duration(days_are_24_hours).map_err(|_| form())?;
    let duration = Duration::try_from(signed).map_err(|_| form())?;
    if duration.subsec_nanos() % 1_000_000 != 0 {
        return Err("must be whole milliseconds".to_owned());
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_written() {
        for (text, ms) in [("300s", 300_000), ("5m", 300_000), ("250ms", 250), ("1h30m", 5_400_000)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        assert_eq!(parse("8760h"), Ok(MAX_DURATION));
        assert_eq!(parse("365d"), Ok(MAX_DURATION));
        assert_eq!(parse("1d 2h"), parse("26h"));
        assert_eq!(parse_or_zero("0s"), Ok(Duration::ZERO));
    }

    #[test]
    fn anything_else_is_refused() {
        for bad in [
            "",
            "5",
            "s",
            "0s",
            "-5s",
            "5s ago",
            "8761h",
            "366d",
            "1mo",
            "1ns",
            "1.5",
            "5 parsecs",
            "1y",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(parse(&"9".repeat(100_000)).is_err());
    }
}
