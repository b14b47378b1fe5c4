//! A rollout: a share of an agent's conversations runs on another revision than the newest one.

use abide_actors::journal::StoredResponse;
use abide_conversation::{AgentName, ConversationId, Revision, Scoped};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The revision that a share of the conversations of an agent runs on in place of the newest one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollout {
    pub revision: Revision,
    /// From 1 to 100.
    pub percent: u8,
}

impl Rollout {
    /// Whether the conversation is in the share. It depends on nothing but the conversation, so that
    /// a larger percentage has all conversations of a smaller one.
    pub fn includes(&self, agent: &AgentName, conversation: &Scoped<ConversationId>) -> bool {
        bucket(agent, conversation) < u64::from(self.percent)
    }
}

/// The number from 0 to 99 that a conversation has among those of its agent.
fn bucket(agent: &AgentName, conversation: &Scoped<ConversationId>) -> u64 {
    let (tenant, id) = (conversation.tenant(), conversation.local());
    let mut hash = Sha256::new();
    for part in [tenant.as_str(), agent.as_str(), id.as_str()] {
        hash.update(part);
        // No name has this byte.
        hash.update([0]);
    }
    let first = hash.finalize().into_iter().take(8);
    first.fold(0, |number: u64, byte| (number << 8) | u64::from(byte)) % 100
}

/// The revisions with which an agent's turns begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurrentRevisions {
    pub newest: Revision,
    /// Concerns another revision than the newest.
    pub rollout: Option<Rollout>,
}

/// Begins, changes or ends the rollout of an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct RolloutChange {
    pub name: Scoped<AgentName>,
    /// `None` ends it.
    pub rollout: Option<Rollout>,
    pub response: Option<StoredResponse>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn share(agent: &str, tenant: &str, percent: u8) -> Vec<usize> {
        let rollout = Rollout { revision: Revision::new("r"), percent };
        let includes = |number: &usize| {
            let id = Scoped::parse(&format!("{tenant}c_{number}")).unwrap();
            rollout.includes(&AgentName::new(agent), &id)
        };
        (0..2_000).filter(includes).collect()
    }

    #[test]
    fn a_larger_percentage_only_adds_conversations() {
        let mut before = share("demo", "", 0);
        assert_eq!(before, [0; 0]);
        for percent in 1..=100 {
            let now = share("demo", "", percent);
            assert!(before.iter().all(|number| now.contains(number)), "{percent}");
            before = now;
        }
        assert_eq!(before.len(), 2_000);
    }

    #[test]
    fn a_share_has_about_its_percentage_and_differs_between_agents_and_tenants() {
        let shares = [share("demo", "", 10), share("demo", "acme/", 10), share("other", "", 10)];
        for share in &shares {
            assert!((150..250).contains(&share.len()), "{}", share.len());
        }
        assert_ne!(shares[0], shares[1]);
        assert_ne!(shares[0], shares[2]);
    }
}
