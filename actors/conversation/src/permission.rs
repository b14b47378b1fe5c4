//! What a conversation may do by itself, and what the gate decided about a call.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::ids::Principal;
use crate::message::{ErrorType, Outcome};

/// How freely an agent acts, from the strictest on.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum PermissionPhase {
    /// Only tools that change nothing.
    Plan,
    /// Everything, subject to approvals.
    #[default]
    Default,
    /// The file tools and what only reads without asking, approvals for the rest.
    AcceptEdits,
    /// Approvals are skipped.
    Trusted,
    /// Phase and approvals are skipped; the lists still hold.
    BypassPermissions,
}

/// What the gate says to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = GateDecision))]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    Allow,
    /// A person must say yes first.
    Ask,
    Deny,
}

/// A decision of the gate, for one call with one set of arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Verdict {
    pub decision: Decision,
    /// What decided, such as `disallowed_tools`, `phase: plan` or `approval`.
    pub rule: String,
    /// The phase in which it was judged, for the children that the call asks.
    pub phase: PermissionPhase,
    /// Which call was judged: the first 16 hex digits of the SHA-256 of the tool's name, a null
    /// byte, and the arguments' JSON.
    pub fingerprint: String,
    /// Whose remembered decision it was; the call runs as that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Principal>,
}

impl Verdict {
    /// What a call of the tool comes to that this refuses.
    pub fn denial(&self, tool: &str) -> Outcome {
        let error = format!("permission denied: {tool} is refused by {}", self.rule);
        Outcome::Err(error, ErrorType::PermissionDenied)
    }
}

/// What a child conversation may do at most: what its ancestors might when they asked for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Ceiling {
    pub phase: PermissionPhase,
    /// A tool must be in each of these lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_tools: Vec<BTreeSet<String>>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub disallowed_tools: BTreeSet<String>,
    /// Hosts that are otherwise refused, and that every ancestor may reach.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub allowed_hosts: BTreeSet<String>,
    /// Whether commands may use the network.
    #[serde(default)]
    pub network: bool,
}
