//! An approver's decision that holds for later calls, too.

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::ids::{DecisionId, Principal};

/// For which conversations a decision holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = DecisionScope))]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    Conversation,
    /// All conversations of the agent.
    Agent,
}

/// For which calls of the tool a decision holds.
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

/// A remembered decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = RememberedDecision))]
pub struct RememberedDecision {
    pub id: DecisionId,
    pub tool: String,
    /// A digest of what the tool was: its executor and where it runs. A tool of the same name that
    /// does something else is another.
    pub does: String,
    pub approved: bool,
    #[serde(rename = "match")]
    pub matching: Match,
    /// Of the call that was decided about: the SHA-256 of the tool's name, a null byte, and the
    /// arguments' canonical JSON.
    pub fingerprint: String,
    pub by: Principal,
    /// From then on it is as if it had never been.
    pub expires_at: Timestamp,
}

impl RememberedDecision {
    /// Whether it is about a call of the tool with that fingerprint.
    pub fn matches(&self, tool: &str, does: &str, fingerprint: &str) -> bool {
        let same = match self.matching {
            Match::Exact => self.fingerprint == fingerprint,
            Match::Tool => true,
        };
        same && self.tool == tool && self.does == does
    }
}
