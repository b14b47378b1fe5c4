//! Journals that are being imported, aside until they are whole: until then there is no conversation.

use std::collections::BTreeSet;
use std::sync::Arc;

use abide_actors::journal::{Claim, Commit, StoreError};
use abide_conversation::event::Event;
use abide_conversation::{BlobId, ConversationId, Scoped, Seq};
use async_trait::async_trait;

/// The events of one import, as far as they are kept aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedJournal {
    /// The conversation that there will be.
    pub id: Scoped<ConversationId>,
    /// The name of the import, which no other import has.
    pub import: String,
    /// The last event that is kept aside.
    pub last_seq: Seq,
    /// The blobs that the events name which are kept aside.
    pub blobs: BTreeSet<BlobId>,
}

impl StagedJournal {
    /// The name of the import among those of all tenants.
    pub(super) fn key(&self) -> String {
        format!("{}:{}", self.id, self.import)
    }
}

/// Keeps journals aside that are not whole.
#[async_trait]
pub trait Staging: Send + Sync + 'static {
    /// Keeps the events aside that follow those of an import. Nobody reads them, and a store forgets
    /// them if the import dies: within a day, or when it is opened anew. Repeating it is harmless.
    async fn stage(&self, staged: &StagedJournal, events: Arc<[Event]>) -> Result<(), StoreError>;

    /// Makes a conversation of the events of an import and those of the commit, which follow them, in
    /// one step. `Conflict` if there is a conversation of this id; `Unavailable` if the events are not
    /// aside any more.
    async fn publish(
        &self,
        staged: &StagedJournal,
        held: &Claim,
        commit: Commit,
    ) -> Result<(), StoreError>;

    /// Forgets the events of an import.
    async fn unstage(&self, staged: &StagedJournal) -> Result<(), StoreError>;
}

/// Why an import cannot go on.
pub(super) fn lost() -> StoreError {
    StoreError::Unavailable("what was read of the import is gone".to_owned())
}
