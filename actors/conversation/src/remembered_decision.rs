//! Remembered decisions: an approver's decision that holds for later calls, too.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::approval::{Approver, SubjectId};
pub use crate::extent::{Extent, Match, Scope};
use crate::ids::{DecisionId, Principal};

/// A decision about one tool, and the calls that it holds for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = RememberedDecision))]
pub struct RememberedDecision {
    pub id: DecisionId,
    pub tool: String,
    /// A digest of the tool's executor and of where it runs. The decision does not hold for a tool
    /// of the same name whose digest differs.
    #[serde(rename = "does")]
    pub tool_digest: String,
    pub approved: bool,
    #[serde(rename = "match")]
    pub matching: Match,
    /// Identifies the call that was decided about: the SHA-256 of the tool's name, a null byte, and
    /// the arguments' canonical JSON.
    pub fingerprint: String,
    pub by: Principal,
    /// Those who made the decision by their votes; empty if nobody was authenticated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub voters: Vec<Approver>,
    /// The decision holds until this time.
    pub expires_at: Timestamp,
}

impl RememberedDecision {
    /// Whether the decision holds for a call of this tool with this fingerprint.
    pub fn matches(&self, tool: &str, tool_digest: &str, fingerprint: &str) -> bool {
        let same = match self.matching {
            Match::Exact => self.fingerprint == fingerprint,
            Match::Tool => true,
        };
        same && self.tool == tool && self.tool_digest == tool_digest
    }

    /// Whether the decision may be applied to a call of these requesters, which `quorum` must approve.
    ///
    /// Nobody approves their own call by a decision of before. Where nobody was authenticated, there
    /// are no requesters.
    pub fn covers(&self, requesters: &BTreeSet<SubjectId>, quorum: u32) -> bool {
        let voters = u32::try_from(self.voters.len()).unwrap_or(u32::MAX);
        let is_own = self
            .voters
            .iter()
            .any(|voter| requesters.iter().any(|own| own.is_same(&voter.subject)));
        !self.approved || requesters.is_empty() || (voters >= quorum && !is_own)
    }
}
