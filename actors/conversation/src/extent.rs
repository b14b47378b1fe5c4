//! How far a decision about a call holds for later calls.

use serde::{Deserialize, Serialize};

/// The conversations for which a decision holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = DecisionScope))]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    Conversation,
    /// All conversations of the agent.
    Agent,
}

/// The calls of the tool for which a decision holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = DecisionMatch))]
#[serde(rename_all = "snake_case")]
pub enum Match {
    /// Those with the same arguments.
    Exact,
    /// All of them.
    Tool,
}

/// How far a decision holds beyond the call that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Extent {
    pub scope: Scope,
    #[serde(rename = "match")]
    pub matching: Match,
    pub for_ms: u64,
}

impl Extent {
    /// How far both want the decision to hold.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            scope: self.scope.min(other.scope),
            matching: self.matching.min(other.matching),
            for_ms: self.for_ms.min(other.for_ms),
        }
    }
}
