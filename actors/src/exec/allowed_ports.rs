//! Where a command may connect to.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock};

use abide_conversation::permission::Network;
use serde::{Deserialize, Serialize};

/// The TCP ports that commands never connect to: those of the nodes and of their store. A command that
/// reached them could approve calls, or change journals. Clones share the ports.
#[derive(Clone, Debug, Default)]
pub struct ProtectedPorts(Arc<RwLock<BTreeSet<u16>>>);

impl ProtectedPorts {
    /// Replaces the ports, for the commands that start from now on.
    pub fn set(&self, ports: BTreeSet<u16>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = ports;
    }

    fn get(&self) -> BTreeSet<u16> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The TCP ports that the sandbox lets a command connect to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum AllowedPorts {
    /// These; the command accepts no connections.
    Only(BTreeSet<u16>),
    /// All but these; the command may accept connections.
    AllBut(BTreeSet<u16>),
}

impl AllowedPorts {
    pub(super) fn new(network: &Network, protected: &ProtectedPorts) -> Self {
        let protected = protected.get();
        match network {
            Network::None => Self::Only(BTreeSet::new()),
            Network::Ports(ports) => Self::Only(ports - &protected),
            Network::All => Self::AllBut(protected),
        }
    }

    /// The ports to connect to; `None` for all of them.
    pub(super) fn allowed(&self) -> Option<Vec<u16>> {
        match self {
            Self::Only(ports) => Some(ports.iter().copied().collect()),
            Self::AllBut(ports) if ports.is_empty() => None,
            Self::AllBut(ports) => Some((0..=u16::MAX).filter(|it| !ports.contains(it)).collect()),
        }
    }

    pub(super) fn may_listen(&self) -> bool {
        match self {
            Self::Only(_) => false,
            Self::AllBut(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protected_ports_are_allowed_to_no_command() {
        let protected = ProtectedPorts::default();
        let allowed = |network: Network| AllowedPorts::new(&network, &protected).allowed();
        let ports = |ports: &[u16]| Network::ports(ports.iter().copied().collect());
        assert_eq!(allowed(Network::All), None);
        protected.set(BTreeSet::from([6379, 8080]));
        let all = allowed(Network::All).unwrap_or_default();
        assert_eq!(all.len(), 65_534);
        assert!(!all.contains(&6379) && !all.contains(&8080));
        assert_eq!(allowed(ports(&[443, 8080])), Some(vec![443]));
        assert_eq!(allowed(Network::None), Some(vec![]));
    }
}
