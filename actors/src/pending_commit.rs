//! A commit that is under way while what follows it has begun.

use std::sync::Arc;

use tokio::sync::SetOnce;

/// The commit that made the state of an activity, or `None` if it was in the journal before the activity
/// began.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingCommit(Option<Arc<SetOnce<()>>>);

impl PendingCommit {
    /// A commit that is not in the journal yet.
    pub(crate) fn new() -> Self {
        Self(Some(Arc::default()))
    }

    /// The commit is in the journal, and everybody who is told has been told.
    pub(crate) fn finish(&self) {
        if let Some(commit) = &self.0 {
            // An activity begins ahead of one commit.
            let _ = commit.set(());
        }
    }

    /// Waits for the commit. A commit that fails ends the actor, and with it whoever waits here.
    pub(crate) async fn wait(&self) {
        if let Some(commit) = &self.0 {
            commit.wait().await;
        }
    }
}
