//! Permissions: what a conversation may do without asking, and the gate's verdicts on calls.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::ids::Principal;
use crate::message::{ErrorType, Outcome};

/// How freely an agent acts, from the strictest phase to the most permissive.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum PermissionPhase {
    /// Only tools that change nothing may run.
    Plan,
    /// Every tool may run, subject to approvals.
    #[default]
    Default,
    /// File tools and read-only tools run without asking, the rest subject to approvals.
    AcceptEdits,
    /// Approvals are skipped.
    Trusted,
    /// Phase and approvals are skipped; the lists of allowed and disallowed tools still hold.
    BypassPermissions,
}

/// The gate's answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = GateDecision))]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    Allow,
    /// A person must approve the call first.
    Ask,
    Deny,
}

/// The gate's decision about one call with one set of arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Verdict {
    pub decision: Decision,
    /// The rule that decided, for example `disallowed_tools`, `phase: plan` or `approval`.
    pub rule: String,
    /// The phase at the time of the decision, which bounds the children that the call asks.
    pub phase: PermissionPhase,
    /// Identifies the call: the first 16 hex digits of the SHA-256 of the tool's name, a null byte,
    /// and the arguments' JSON.
    pub fingerprint: String,
    /// Who made the remembered decision that applied; the call runs as that principal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Principal>,
}

impl Verdict {
    /// The error result of a call that this verdict denies.
    pub fn to_error(&self, tool: &str) -> Outcome {
        let error = format!("permission denied: {tool} is refused by {}", self.rule);
        Outcome::Err(error, ErrorType::PermissionDenied)
    }
}

/// The most that a child conversation may do: what its ancestors were allowed when they asked it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Ceiling {
    pub phase: PermissionPhase,
    /// A tool must be in every one of these lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_tools: Vec<BTreeSet<String>>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub disallowed_tools: BTreeSet<String>,
    /// Hosts that are refused by default, and that every ancestor may reach.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub allowed_hosts: BTreeSet<String>,
    /// Whether commands may use the network.
    #[serde(default)]
    pub network: bool,
}
