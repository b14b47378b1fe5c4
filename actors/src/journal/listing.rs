//! What lists show of a conversation, and when a commit changes it.

use std::sync::Arc;

use abide_conversation::usage::Usage;
use abide_conversation::{ConversationId, State, Timestamp};
use serde::{Deserialize, Serialize};

/// What lists show of a conversation in addition to what every commit stores. It is as of
/// [`active_at`](ListEntry::active_at), so that most commits need not write it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ListEntry {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// When the conversation is deleted, at a time of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The parent of a child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ConversationId>,
    /// When the conversation was created, a turn ended or a call began to wait, whichever was last;
    /// `None` where a version of the program wrote it that did not note this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_at: Option<Timestamp>,
    /// The number of turns that have started.
    #[serde(default)]
    pub turns: u64,
    #[serde(default)]
    pub usage: Usage,
}

impl ListEntry {
    /// What lists show of a conversation in this state.
    pub fn of(state: &State) -> Self {
        Self {
            title: state.title.clone(),
            expires_at: state.expires_at,
            parent: state.parent.as_ref().map(|parent| parent.conversation_id.clone()),
            active_at: state.active_at,
            turns: state.turns_started,
            usage: state.usage,
        }
    }
}

/// What a commit changes of the conversation's entry in lists.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Relisting {
    /// Nothing: stores leave the [`ListEntry`] as it is.
    #[default]
    Unchanged,
    /// When the conversation was active last, and the rest of the [`ListEntry`].
    Touched,
    /// The metadata, the participants, or whether there is an entry at all. `indexed` has the keys of
    /// the metadata by which the conversation is found.
    Whole { indexed: Arc<[String]> },
}

impl Relisting {
    /// The whole entry, found by no metadata.
    pub fn whole() -> Self {
        Self::Whole { indexed: Arc::from([]) }
    }
}
