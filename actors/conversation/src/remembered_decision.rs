//! Remembered decisions: an approver's decision that holds for later calls, too.

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::ids::{DecisionId, Principal};

/// The conversations for which a decision holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = DecisionScope))]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    Conversation,
    /// All conversations of the agent.
    Agent,
}

/// The calls of the tool for which a decision holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = DecisionMatch))]
#[serde(rename_all = "snake_case")]
pub enum Match {
    /// Those with the same arguments.
    Exact,
    /// All of them.
    Tool,
}

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
}
