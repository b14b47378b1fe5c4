//! Every wait has an end.

use std::time::Duration;

/// How long anything may take: far more than it needs on a machine that builds beside the tests.
pub const DEADLINE: Duration = Duration::from_secs(30);
/// The pause between two looks at something that cannot be subscribed to.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Waits for a future, and fails with `what` at the deadline.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(DEADLINE, future).await;
    waited.unwrap_or_else(|_| panic!("waited {DEADLINE:?} in vain for {what}"))
}

/// Looks until there is something, and fails with `what` at the deadline.
pub async fn poll<T>(what: &str, at: impl AsyncFnMut() -> Option<T>) -> T {
    let found = try_poll(at).await;
    found.unwrap_or_else(|| panic!("waited {DEADLINE:?} in vain for {what}"))
}

/// Looks until there is something; `None` at the deadline.
pub async fn try_poll<T>(mut at: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    let looking = async {
        loop {
            if let Some(found) = at().await {
                return found;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(DEADLINE, looking).await.ok()
}
