//! What became of remembered decisions.

use serde::{Deserialize, Serialize};

use crate::ids::{AgentName, CallId, DecisionId};
use crate::remembered::{RememberedDecision, Scope};

/// An approver's decision is to hold for later calls, too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DecisionRemembered {
    pub call_id: CallId,
    pub scope: Scope,
    /// Of the scope `agent`: whose.
    pub agent: AgentName,
    pub decision: RememberedDecision,
}

/// The agent has the decision; until then only this conversation had it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DecisionPublished {
    pub decision_id: DecisionId,
}

/// A decision of this conversation holds no more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DecisionRevoked {
    pub decision_id: DecisionId,
}
