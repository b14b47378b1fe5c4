//! What a commit changes of the conversation's entry in lists.

use std::sync::Arc;

use abide_conversation::{AgentName, State, Timestamp, wanted};

use super::{LiveConversation, with_store_timeout};
use crate::journal::{ConversationSummary, ListEntry, Relisting, StoreError};

/// What is stored of a conversation in this state in addition to its journal.
pub fn summary(state: &State) -> ConversationSummary {
    ConversationSummary {
        agent: state.agent.clone().unwrap_or_else(|| AgentName::new("")),
        status: state.status(),
        last_seq: state.seq,
        created_at: state.created_at.unwrap_or(Timestamp::UNIX_EPOCH),
        metadata: state.metadata.clone(),
        participants: state.participants.clone(),
        alarm: state.alarm(),
        active: !wanted(state).is_empty(),
        listing: ListEntry::of(state),
    }
}

impl LiveConversation {
    /// What a commit changes of the entry after which this is the state.
    pub(super) async fn relisting(&self, next: &State) -> Result<Relisting, StoreError> {
        let before = &self.state;
        let is_whole = !before.exists()
            || before.metadata != next.metadata
            || before.title != next.title
            || before.expires_at != next.expires_at
            || before.participants != next.participants;
        if is_whole {
            return Ok(Relisting::Whole { indexed: self.indexed_keys(next).await? });
        }
        let is_touched = before.active_at != next.active_at;
        Ok(if is_touched { Relisting::Touched } else { Relisting::Unchanged })
    }

    /// The keys of the metadata that the newest revision of the agent indexes; none if the agent is
    /// gone. Reads nothing that the request has just read.
    pub(super) async fn indexed_keys(&self, next: &State) -> Result<Arc<[String]>, StoreError> {
        let Some(agent) = next.agent.as_ref().filter(|_| !next.metadata.is_empty()) else {
            return Ok(Arc::from([]));
        };
        let known = self.choice.as_ref().map(|choice| choice.newest.clone());
        let known = known.filter(|known| known.name == *agent);
        let definition = match known.filter(|_| !self.state.exists()) {
            Some(known) => Some(known),
            None => {
                let name = self.id.sibling(agent);
                with_store_timeout(self.services.agents.newest(&name)).await?
            }
        };
        Ok(definition.map(|definition| definition.index.clone()).unwrap_or_default())
    }
}
