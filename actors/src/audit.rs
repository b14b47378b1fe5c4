//! The port to the audit log, which keeps what was sent to a model and what it answered, for a
//! limited time.

mod entry;

use std::sync::Arc;
use std::time::Duration;

use abide_conversation::{ConversationId, Scoped, Timestamp};
use async_trait::async_trait;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::journal::StoreError;

pub use entry::{AuditEntry, Excerpt, Omitted, Received};

/// How many entries of one conversation are kept; the oldest are dropped.
pub const MAX_ENTRIES: usize = 1_000;
/// The longest time that an entry is kept.
pub const MAX_TTL: Duration = Duration::from_secs(30 * 86_400);

/// How many entries may be on their way into the store; each may have megabytes. Further ones are
/// lost, because the audit must not delay a step.
const MAX_PENDING_WRITES: usize = 64;
/// A store that takes longer counts as unavailable.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Stores entries until they expire: at most [`MAX_ENTRIES`] per conversation, and none of a
/// deleted one.
#[async_trait]
pub trait AuditLog: Send + Sync + 'static {
    /// Stores an entry; does nothing if the conversation does not exist.
    async fn put_entry(
        &self,
        id: &Scoped<ConversationId>,
        entry: &AuditEntry,
        expires_at: Timestamp,
    ) -> Result<(), StoreError>;

    /// At most `limit` entries that have not expired at `now`, newest first; with `before`, only
    /// those whose [key](AuditEntry::key) is smaller.
    async fn entries(
        &self,
        id: &Scoped<ConversationId>,
        before: Option<&str>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<AuditEntry>, StoreError>;
}

/// Writes entries in the background.
pub struct Recorder {
    log: Arc<dyn AuditLog>,
    /// The tasks that a drain waits for.
    tasks: TaskTracker,
    permits: Arc<Semaphore>,
}

impl Recorder {
    /// Writes into a log; the tasks are tracked by `tasks`.
    pub fn new(log: Arc<dyn AuditLog>, work: TaskTracker) -> Self {
        Self { log, tasks: work, permits: Arc::new(Semaphore::new(MAX_PENDING_WRITES)) }
    }

    /// Makes an entry on a blocking thread and stores it for `ttl`. Never waits and never fails: an
    /// entry that cannot be stored is logged and counted.
    pub fn record(
        &self,
        id: &Scoped<ConversationId>,
        ttl: Duration,
        make: impl FnOnce() -> AuditEntry + Send + 'static,
    ) {
        // A caller that is dropped together with the runtime cannot write any more.
        if Handle::try_current().is_err() {
            return report_lost(id, "the program is shutting down");
        }
        let Ok(permit) = self.permits.clone().try_acquire_owned() else {
            return report_lost(id, "too many writes are pending");
        };
        let (log, id) = (self.log.clone(), id.clone());
        self.tasks.spawn(async move {
            let written = async {
                let entry = tokio::task::spawn_blocking(make).await;
                let entry = entry.map_err(|error| StoreError::Unavailable(error.to_string()))?;
                let ttl = jiff::SignedDuration::try_from(ttl).unwrap_or_default();
                let expires_at = entry.at.checked_add(ttl).unwrap_or(Timestamp::MAX);
                log.put_entry(&id, &entry, expires_at).await
            };
            match tokio::time::timeout(WRITE_TIMEOUT, written).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => report_lost(&id, &error.to_string()),
                Err(_) => report_lost(&id, "the store took too long"),
            }
            drop(permit);
        });
    }
}

fn report_lost(conversation: &Scoped<ConversationId>, reason: &str) {
    metrics::counter!("abide_audit_lost_total").increment(1);
    tracing::warn!(%conversation, reason, "audit entry lost");
}
