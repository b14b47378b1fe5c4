//! Permissions: what a conversation may do without asking, and the gate's verdicts on calls.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::approval::Approver;
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
    /// Those who approved the call before it was made: by a remembered decision, or with a dispatch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<Approver>,
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
    /// Whether commands may connect to any TCP port.
    #[serde(default)]
    pub network: bool,
    /// Without `network`: the TCP ports that commands may connect to.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub network_ports: BTreeSet<u16>,
}

impl Ceiling {
    /// The TCP ports that commands may connect to.
    pub fn network(&self) -> Network {
        if self.network { Network::All } else { Network::ports(self.network_ports.clone()) }
    }
}

/// The TCP ports that commands may connect to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Network {
    #[default]
    None,
    Ports(BTreeSet<u16>),
    All,
}

impl Network {
    /// These ports.
    pub fn ports(ports: BTreeSet<u16>) -> Self {
        if ports.is_empty() { Self::None } else { Self::Ports(ports) }
    }

    /// What both permit.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::All, both) | (both, Self::All) => both.clone(),
            (Self::None, _) | (_, Self::None) => Self::None,
            (Self::Ports(one), Self::Ports(other)) => Self::ports(one & other),
        }
    }

    /// The two fields of a [`Ceiling`] that say the same.
    pub fn into_fields(self) -> (bool, BTreeSet<u16>) {
        match self {
            Self::None => (false, BTreeSet::new()),
            Self::Ports(ports) => (false, ports),
            Self::All => (true, BTreeSet::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_connects_only_where_every_ancestor_may() {
        let ports = |ports: &[u16]| Network::ports(ports.iter().copied().collect());
        assert_eq!(ports(&[443]), Network::Ports([443].into()));
        for (one, other, both) in [
            (Network::All, Network::All, Network::All),
            (Network::All, ports(&[443]), ports(&[443])),
            (ports(&[80, 443]), ports(&[443, 22]), ports(&[443])),
            (ports(&[80]), ports(&[443]), Network::None),
            (Network::None, Network::All, Network::None),
            (Network::None, ports(&[443]), Network::None),
        ] {
            assert_eq!(one.and(&other), both);
            assert_eq!(other.and(&one), both);
            let (network, network_ports) = both.clone().into_fields();
            assert_eq!(Ceiling { network, network_ports, ..Ceiling::default() }.network(), both);
        }
    }
}
