//! The storage problems of this node, for `/readyz`.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::{Workspace, WorkspaceError};
use crate::limits::one_line;

/// As many as a person reads; the oldest are dropped.
const MAX_PROBLEMS: usize = 32;
/// A path may be long; a line is cut to this.
const MAX_LINE_BYTES: usize = 1_000;

/// The last opens that failed.
#[derive(Debug, Default)]
pub(super) struct StorageHealth(Mutex<VecDeque<WorkspaceError>>);

impl StorageHealth {
    pub(super) fn record(&self, problem: WorkspaceError) {
        let mut problems = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        problems.retain(|other| {
            !other.is_about(&problem.directory, problem.expected_storage.as_deref())
        });
        problems.push_back(problem);
        if problems.len() > MAX_PROBLEMS {
            problems.pop_front();
        }
    }

    /// Forgets the problems that this open workspace disproves: those of its root, of its
    /// directory, and of its storage.
    pub(super) fn clear(&self, root: &Path, workspace: &Workspace) {
        let root = root.display().to_string();
        let own = workspace.root().display().to_string();
        let mut problems = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        problems.retain(|problem| {
            let is_over = problem.is_about(&root, None)
                || problem.is_about(&own, None)
                || problem.is_about(&root, workspace.storage());
            !is_over
        });
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let problems = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        problems.iter().map(|problem| one_line(&problem.to_string(), MAX_LINE_BYTES)).collect()
    }
}

impl WorkspaceError {
    fn is_about(&self, directory: &str, sought: Option<&str>) -> bool {
        self.directory == directory && self.expected_storage.as_deref() == sought
    }
}
