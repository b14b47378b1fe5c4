//! When a failed attempt of a tool is followed by another one.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::attempt_failure::{Failure, FailureKind};

/// The longest `Retry-After` that is heeded: the wait costs nothing, but somebody waits for the call.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(3_600);

/// How often a call is attempted, after which failures, and how long to wait in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolRetry {
    /// Includes the first attempt.
    pub max_attempts: u32,
    /// The delay after the first failure; it doubles after each further one.
    pub base: Duration,
    /// The longest delay, unless the tool asks for a longer one.
    pub max: Duration,
    pub on: BTreeSet<RetryOn>,
}

/// A kind of failure that another attempt may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RetryOn {
    Network,
    TooManyRequests,
    ServerError,
    Timeout,
}

impl ToolRetry {
    /// The delay before the next attempt, after `failed` attempts before this one; `None`: there is
    /// none. It lies between half of the backoff and all of it, by `chance`.
    ///
    /// A tool that must not run twice is attempted again only if it surely has not run: nothing could
    /// be sent, or it refused to take the request.
    pub(crate) fn delay(
        &self,
        failure: &Failure,
        failed: u32,
        runs_once: bool,
        chance: f64,
    ) -> Option<Duration> {
        let (on, may_have_run) = match failure.kind {
            FailureKind::NoConnection => (RetryOn::Network, false),
            FailureKind::ConnectionBroke => (RetryOn::Network, true),
            FailureKind::TooManyRequests => (RetryOn::TooManyRequests, false),
            FailureKind::ServerError => (RetryOn::ServerError, true),
            FailureKind::Timeout => (RetryOn::Timeout, true),
        };
        let is_last = failed.saturating_add(1) >= self.max_attempts;
        if is_last || !self.on.contains(&on) || (runs_once && may_have_run) {
            return None;
        }
        let backoff = self.base.saturating_mul(1 << failed.min(31)).min(self.max);
        let share = 0.5 + chance.clamp(0.0, 1.0) / 2.0;
        let jittered = Duration::try_from_secs_f64(backoff.as_secs_f64() * share);
        let requested = failure.retry_after.unwrap_or_default().min(MAX_RETRY_AFTER);
        Some(jittered.unwrap_or(backoff).max(requested))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retry() -> ToolRetry {
        ToolRetry {
            max_attempts: 4,
            base: Duration::from_secs(1),
            max: Duration::from_secs(3),
            on: [
                RetryOn::Network,
                RetryOn::TooManyRequests,
                RetryOn::ServerError,
                RetryOn::Timeout,
            ]
            .into(),
        }
    }

    fn failure(kind: FailureKind) -> Failure {
        Failure { kind, retry_after: None }
    }

    #[test]
    fn the_delay_doubles_up_to_the_longest_and_the_last_attempt_has_none() {
        let busy = failure(FailureKind::ServerError);
        let delay = |failed, chance| retry().delay(&busy, failed, false, chance);
        assert_eq!(delay(0, 1.0), Some(Duration::from_secs(1)));
        assert_eq!(delay(0, 0.0), Some(Duration::from_millis(500)));
        assert_eq!(delay(1, 1.0), Some(Duration::from_secs(2)));
        assert_eq!(delay(2, 1.0), Some(Duration::from_secs(3)));
        assert_eq!(delay(3, 1.0), None);
    }

    #[test]
    fn a_tool_that_asks_for_a_longer_delay_gets_it_up_to_an_hour() {
        let asks = |seconds| {
            let retry_after = Some(Duration::from_secs(seconds));
            let failure = Failure { kind: FailureKind::TooManyRequests, retry_after };
            retry().delay(&failure, 0, false, 1.0).map(|delay| delay.as_secs())
        };
        assert_eq!([asks(0), asks(60), asks(90_000)], [Some(1), Some(60), Some(3_600)]);
    }

    #[test]
    fn a_failure_that_is_not_listed_is_not_followed_by_an_attempt() {
        let only = ToolRetry { on: [RetryOn::Timeout].into(), ..retry() };
        for kind in [FailureKind::NoConnection, FailureKind::TooManyRequests] {
            assert_eq!(only.delay(&failure(kind), 0, false, 1.0), None, "{kind:?}");
        }
        assert!(only.delay(&failure(FailureKind::Timeout), 0, false, 1.0).is_some());
    }

    #[test]
    fn a_tool_that_must_not_run_twice_is_attempted_again_only_if_it_surely_has_not_run() {
        for (kind, again) in [
            (FailureKind::NoConnection, true),
            (FailureKind::TooManyRequests, true),
            (FailureKind::ConnectionBroke, false),
            (FailureKind::ServerError, false),
            (FailureKind::Timeout, false),
        ] {
            assert_eq!(retry().delay(&failure(kind), 0, true, 1.0).is_some(), again, "{kind:?}");
        }
    }
}
