//! What is wrong with storage on this node, for whoever asks whether it is ready.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::{Workspace, WorkspaceError};
use crate::limits::one_line;

/// As many as somebody reads; the oldest go first.
const MOST: usize = 32;
/// A path may be long; the line stays one.
const LONGEST_LINE: usize = 1_000;

/// The opens that failed last.
#[derive(Debug, Default)]
pub(super) struct StorageHealth(Mutex<VecDeque<WorkspaceError>>);

impl StorageHealth {
    pub(super) fn add(&self, trouble: WorkspaceError) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|other| !other.is_about(&trouble.directory, trouble.sought.as_deref()));
        known.push_back(trouble);
        if known.len() > MOST {
            known.pop_front();
        }
    }

    /// Forgets what the workspace shows to be over: its root and its directory are there, and the
    /// storage with its id is.
    pub(super) fn over(&self, root: &Path, workspace: &Workspace) {
        let root = root.display().to_string();
        let own = workspace.root().display().to_string();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|trouble| {
            let is_over = trouble.is_about(&root, None)
                || trouble.is_about(&own, None)
                || trouble.is_about(&root, workspace.storage());
            !is_over
        });
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().map(|trouble| one_line(&trouble.to_string(), LONGEST_LINE)).collect()
    }
}

impl WorkspaceError {
    fn is_about(&self, directory: &str, sought: Option<&str>) -> bool {
        self.directory == directory && self.sought.as_deref() == sought
    }
}
