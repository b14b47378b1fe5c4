//! What `/readyz` reports in addition to "ready".

use std::sync::Arc;

use abide_actors::tools::mcp::Mcp;
use abide_actors::workspace::Workspaces;

/// Faults that keep nothing else from working: `/readyz` lists them below "ready".
#[derive(Clone)]
pub(crate) struct ReadinessNotes {
    /// The notes that hold as long as the node runs.
    permanent: Arc<[String]>,
    workspaces: Arc<Workspaces>,
    mcp: Arc<Mcp>,
}

impl ReadinessNotes {
    pub(crate) fn new(permanent: Vec<String>, workspaces: Arc<Workspaces>, mcp: Arc<Mcp>) -> Self {
        Self { permanent: permanent.into(), workspaces, mcp }
    }

    /// One line for each fault, those of the workspaces and the MCP servers as of now.
    pub(crate) fn lines(&self) -> Vec<String> {
        let current = self.workspaces.storage_problems().into_iter().chain(self.mcp.problems());
        self.permanent.iter().cloned().chain(current).collect()
    }
}
