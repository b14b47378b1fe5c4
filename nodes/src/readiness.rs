//! What `/readyz` reports in addition to "ready".

use std::sync::Arc;

use abide_actors::workspace::Workspaces;

/// Faults that keep nothing else from working: `/readyz` lists them below "ready".
#[derive(Clone)]
pub(crate) struct ReadinessNotes {
    /// The notes that hold as long as the node runs.
    permanent: Arc<[String]>,
    workspaces: Arc<Workspaces>,
}

impl ReadinessNotes {
    pub(crate) fn new(permanent: Vec<String>, workspaces: Arc<Workspaces>) -> Self {
        Self { permanent: permanent.into(), workspaces }
    }

    /// One line for each fault, those of the workspaces as of now.
    pub(crate) fn lines(&self) -> Vec<String> {
        let current = self.workspaces.storage_problems().into_iter();
        self.permanent.iter().cloned().chain(current).collect()
    }
}
