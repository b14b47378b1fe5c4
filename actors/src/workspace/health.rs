//! The storage problems of this node, for `/readyz`.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::{Workspace, WorkspaceError};
use crate::tools::limits::one_line;

/// As many as a person reads; the oldest are dropped.
const MAX_PROBLEMS: usize = 32;
/// A path may be long; a line is cut to this.
const MAX_LINE_BYTES: usize = 1_000;

/// The last opens that failed.
#[derive(Debug, Default)]
pub(super) struct StorageHealth(Mutex<VecDeque<WorkspaceError>>);

impl StorageHealth {
    pub(super) fn record(&self, trouble: WorkspaceError) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|other| {
            !other.is_about(&trouble.directory, trouble.expected_storage.as_deref())
        });
        known.push_back(trouble);
        if known.len() > MAX_PROBLEMS {
            known.pop_front();
        }
    }

    /// Forgets the problems that this open workspace disproves: those of its root, of its
    /// directory, and of its storage.
    pub(super) fn clear(&self, root: &Path, workspace: &Workspace) {
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
        known.iter().map(|trouble| one_line(&trouble.to_string(), MAX_LINE_BYTES)).collect()
    }
}

impl WorkspaceError {
    fn is_about(&self, directory: &str, sought: Option<&str>) -> bool {
        self.directory == directory && self.expected_storage.as_deref() == sought
    }
}
