//! Counts requests as a vessel that leaks: a minute's worth may come at once, and what has leaked may
//! come again.

use tokio::time::Instant;

const SECONDS_OF_MINUTE: f64 = 60.0;

/// The requests of one tenant to this node. Its clock is the caller's.
#[derive(Debug, Default)]
pub(super) struct RequestMeter {
    /// How much is in the vessel, as of `at`.
    level: f64,
    at: Option<Instant>,
}

impl RequestMeter {
    /// Counts a request, or returns after how many seconds the next one is admitted. The limit may be
    /// another one each time.
    pub(super) fn admit(&mut self, per_minute: u64, now: Instant) -> Result<(), u64> {
        let limit = per_minute as f64;
        let elapsed = self.at.map_or(0.0, |at| now.duration_since(at).as_secs_f64());
        let leaked = elapsed * limit / SECONDS_OF_MINUTE;
        // A vessel that was lowered holds no more than it has room for.
        self.level = (self.level - leaked).clamp(0.0, limit);
        self.at = Some(now);
        let missing = self.level + 1.0 - limit;
        if missing <= 1e-9 {
            self.level += 1.0;
            return Ok(());
        }
        let seconds = missing * SECONDS_OF_MINUTE / limit;
        // `as` saturates, and a limit of zero is looked at again in a minute.
        Err((seconds.min(SECONDS_OF_MINUTE).ceil() as u64).max(1))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// How many of these requests are admitted at this moment.
    fn admitted(meter: &mut RequestMeter, per_minute: u64, now: Instant, requests: u32) -> usize {
        (0..requests).filter(|_| meter.admit(per_minute, now).is_ok()).count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_minutes_worth_comes_at_once_and_then_as_fast_as_it_leaks() {
        let (mut meter, start) = (RequestMeter::default(), Instant::now());
        assert_eq!(admitted(&mut meter, 6, start, 9), 6);
        assert_eq!(meter.admit(6, start), Err(10));
        assert_eq!(meter.admit(6, start + Duration::from_secs(4)), Err(6));
        assert_eq!(admitted(&mut meter, 6, start + Duration::from_secs(10), 9), 1);
        assert_eq!(admitted(&mut meter, 6, start + Duration::from_secs(40), 9), 3);
        assert_eq!(admitted(&mut meter, 6, start + Duration::from_secs(900), 9), 6);
    }

    #[tokio::test(start_paused = true)]
    async fn another_limit_is_in_force_at_once() {
        let (mut meter, now) = (RequestMeter::default(), Instant::now());
        assert_eq!(admitted(&mut meter, 2, now, 9), 2);
        assert_eq!(admitted(&mut meter, 5, now, 9), 3);
        assert_eq!(admitted(&mut meter, 3, now, 9), 0);
        // What exceeds the lower limit is forgotten, so that nobody waits for more than a minute.
        assert_eq!(meter.admit(1, now), Err(60));
        assert_eq!(admitted(&mut meter, 1, now + Duration::from_secs(60), 9), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_of_zero_admits_nothing_ever() {
        let (mut meter, now) = (RequestMeter::default(), Instant::now());
        for minutes in [0, 1, 1_000_000] {
            assert_eq!(meter.admit(0, now + Duration::from_secs(60 * minutes)), Err(60));
        }
        assert!(meter.admit(u64::MAX, now).is_ok());
    }
}
