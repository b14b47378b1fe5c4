//! Events of remembered decisions.

use serde::{Deserialize, Serialize};

use crate::ids::{AgentName, CallId, DecisionId};
use crate::remembered_decision::{RememberedDecision, Scope};

/// An approver's decision holds for later calls, too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DecisionRemembered {
    pub call_id: CallId,
    pub scope: Scope,
    /// The agent of the call, to which a decision of the scope `agent` is given.
    pub agent: AgentName,
    pub decision: RememberedDecision,
}

/// The agent has the decision; until then, only this conversation had it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = DecisionKept))]
pub struct DecisionPublished {
    pub decision_id: DecisionId,
}

/// A decision of this conversation was revoked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DecisionRevoked {
    pub decision_id: DecisionId,
}
