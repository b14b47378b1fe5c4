//! The audit as a port: what was sent to a model and what came back, kept for a while.

mod entry;

use std::sync::Arc;
use std::time::Duration;

use abide_conversation::{ConversationId, Timestamp};
use async_trait::async_trait;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::journal::StoreError;

pub use entry::{AuditEntry, Excerpt, Omitted, Received};

/// How many entries of one conversation are kept: the newest.
pub const MAX_ENTRIES: usize = 1_000;
/// No entry is kept longer.
pub const MAX_TTL: Duration = Duration::from_secs(30 * 86_400);

/// Entries that are on their way into the store; each may be some megabytes. Those beyond are lost:
/// the audit holds up no step.
const MAX_PENDING_WRITES: usize = 64;
/// A store that takes longer is away.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Keeps entries until they expire, at most [`MOST_ENTRIES`] of a conversation, and none of one that
/// is gone.
#[async_trait]
pub trait AuditLog: Send + Sync + 'static {
    /// Keeps an entry; nothing happens if there is no such conversation.
    async fn put_entry(
        &self,
        id: &ConversationId,
        entry: &AuditEntry,
        expires_at: Timestamp,
    ) -> Result<(), StoreError>;

    /// At most `limit` entries that have not expired at `now`, newest first; with `before`, those
    /// whose [key](Entry::key) is less.
    async fn entries(
        &self,
        id: &ConversationId,
        before: Option<&str>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<AuditEntry>, StoreError>;
}

/// Writes entries beside everything else.
pub struct Recorder {
    log: Arc<dyn AuditLog>,
    /// What a drain waits for.
    tasks: TaskTracker,
    permits: Arc<Semaphore>,
}

impl Recorder {
    /// Writes into a log; tasks are tracked by `work`.
    pub fn new(log: Arc<dyn AuditLog>, work: TaskTracker) -> Self {
        Self { log, tasks: work, permits: Arc::new(Semaphore::new(MAX_PENDING_WRITES)) }
    }

    /// Makes an entry, on a thread where that blocks nobody, and keeps it for a while. Never waits
    /// and never fails: an entry that cannot be kept is logged and counted.
    pub fn keep(
        &self,
        id: &ConversationId,
        ttl: Duration,
        make: impl FnOnce() -> AuditEntry + Send + 'static,
    ) {
        // Whoever is dropped with the whole program cannot write any more.
        if Handle::try_current().is_err() {
            return report_lost(id, "the program ends");
        }
        let Ok(place) = self.permits.clone().try_acquire_owned() else {
            return report_lost(id, "too many are under way");
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
                Ok(Err(refusal)) => report_lost(&id, &refusal.to_string()),
                Err(_) => report_lost(&id, "the store took too long"),
            }
            drop(place);
        });
    }
}

fn report_lost(conversation: &ConversationId, why: &str) {
    metrics::counter!("abide_audit_lost_total").increment(1);
    tracing::warn!(%conversation, why, "an entry of the audit is lost");
}
