//! The port to the stored agents: definitions by name and revision, and the decisions kept for them.

use std::sync::Arc;

use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::{AgentName, ConversationId, Revision, Scoped};
use async_trait::async_trait;

use crate::definition::Definition;
use crate::journal::StoreError;

/// The definition of an agent that a conversation runs on next.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The definition with which the turns of the conversation begin.
    pub definition: Arc<Definition>,
    /// The newest one, which is another one if the conversation is in the share of a rollout.
    pub newest: Arc<Definition>,
    /// The revision of the agent's rollout, whether the conversation is in its share or not.
    pub canary: Option<Revision>,
}

/// The stored agents, as the conversations of a node read them.
#[async_trait]
pub trait Agents: Send + Sync + 'static {
    /// The newest revision of an agent; `None` if there is no such agent, or no longer.
    async fn newest(&self, name: &Scoped<AgentName>)
    -> Result<Option<Arc<Definition>>, StoreError>;

    /// The definition of an agent for this conversation: the newest one, unless the conversation is
    /// in the share of a rollout. `None` if there is no such agent, or no longer.
    async fn choose(
        &self,
        agent: &AgentName,
        conversation: &Scoped<ConversationId>,
    ) -> Result<Option<Choice>, StoreError>;

    /// One revision, also of a deleted agent: a turn ends on the revision that it began with.
    async fn revision(
        &self,
        revision: &Scoped<Revision>,
    ) -> Result<Option<Arc<Definition>>, StoreError>;

    /// One revision if it is cached; never reads the store.
    fn cached(&self, revision: &Scoped<Revision>) -> Option<Arc<Definition>>;

    /// Stores a decision for all conversations of the agent. Storing it again is harmless.
    async fn remember(
        &self,
        agent: &Scoped<AgentName>,
        decision: &RememberedDecision,
    ) -> Result<(), StoreError>;

    /// The decisions that apply to all conversations of the agent, oldest first. Some may have
    /// expired.
    async fn decisions(
        &self,
        agent: &Scoped<AgentName>,
    ) -> Result<Vec<RememberedDecision>, StoreError>;
}
