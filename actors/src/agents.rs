//! The port to the stored agents: definitions by name and revision, and the decisions kept for them.

use std::sync::Arc;

use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::{AgentName, DecisionId, Revision};
use async_trait::async_trait;

use crate::definition::Definition;
use crate::journal::StoreError;

/// Where definitions are found.
#[async_trait]
pub trait Agents: Send + Sync + 'static {
    /// The newest revision of an agent; `None` if there is no such agent, or no longer.
    async fn newest(&self, name: &AgentName) -> Result<Option<Arc<Definition>>, StoreError>;

    /// One revision, also of an agent that was deleted, for the turns that began with it.
    async fn revision(&self, revision: &Revision) -> Result<Option<Arc<Definition>>, StoreError>;

    /// The same, if it is at hand: the store is not asked.
    fn kept(&self, revision: &Revision) -> Option<Arc<Definition>>;

    /// Keeps a decision for all conversations of the agent; again is harmless.
    async fn remember(
        &self,
        agent: &AgentName,
        decision: &RememberedDecision,
    ) -> Result<(), StoreError>;

    /// The decisions that hold for all conversations of the agent, oldest first; some may have
    /// expired.
    async fn decisions(&self, agent: &AgentName) -> Result<Vec<RememberedDecision>, StoreError>;

    /// Whether there was such a decision; now there is none.
    async fn revoke(&self, agent: &AgentName, decision: &DecisionId) -> Result<bool, StoreError>;
}
