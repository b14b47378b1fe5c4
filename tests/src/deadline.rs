//! Waiting with a deadline: every wait of the harness ends.

use std::time::Duration;

/// How long anything may take: far more than needed, since the machine may build at the same time.
pub const DEADLINE: Duration = Duration::from_secs(30);
/// The pause between two polls of something that cannot be subscribed to.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Waits for a future, and fails with `what` at the deadline.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let output = tokio::time::timeout(DEADLINE, future).await;
    output.unwrap_or_else(|_| panic!("timed out after {DEADLINE:?} waiting for {what}"))
}

/// Polls until there is a value, and fails with `what` at the deadline.
pub async fn poll<T>(what: &str, probe: impl AsyncFnMut() -> Option<T>) -> T {
    let found = try_poll(probe).await;
    found.unwrap_or_else(|| panic!("timed out after {DEADLINE:?} waiting for {what}"))
}

/// Polls until there is a value, for what may take longer than the usual deadline.
pub async fn poll_within<T>(
    deadline: Duration,
    what: &str,
    probe: impl AsyncFnMut() -> Option<T>,
) -> T {
    let found = try_poll_within(deadline, probe).await;
    found.unwrap_or_else(|| panic!("timed out after {deadline:?} waiting for {what}"))
}

/// Polls until there is a value; `None` at the deadline.
pub async fn try_poll<T>(probe: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    try_poll_within(DEADLINE, probe).await
}

async fn try_poll_within<T>(
    deadline: Duration,
    mut probe: impl AsyncFnMut() -> Option<T>,
) -> Option<T> {
    let polling = async {
        loop {
            if let Some(found) = probe().await {
                return found;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(deadline, polling).await.ok()
}
