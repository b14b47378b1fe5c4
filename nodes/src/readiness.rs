//! What `/readyz` reports in addition to "ready".

use std::sync::Arc;

use abide_actors::tools::mcp::Mcp;
use abide_actors::workspace::Workspaces;

use crate::access::AccessControl;

/// Faults that keep nothing else from working: `/readyz` lists them below "ready".
#[derive(Clone)]
pub(crate) struct ReadinessNotes {
    /// The notes that hold as long as the node runs.
    permanent: Arc<[String]>,
    workspaces: Arc<Workspaces>,
    mcp: Arc<Mcp>,
    access: AccessControl,
}

impl ReadinessNotes {
    pub(crate) fn new(
        permanent: Vec<String>,
        workspaces: Arc<Workspaces>,
        mcp: Arc<Mcp>,
        access: AccessControl,
    ) -> Self {
        Self { permanent: permanent.into(), workspaces, mcp, access }
    }

    /// One line for each fault, those that come and go as of now.
    pub(crate) fn lines(&self) -> Vec<String> {
        let current = self.workspaces.storage_problems().into_iter().chain(self.mcp.problems());
        self.permanent.iter().cloned().chain(current).chain(self.access.notes()).collect()
    }
}
