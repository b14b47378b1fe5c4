//! Journals that are being imported, in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use abide_actors::journal::{Claim, Commit, StoreError};
use abide_conversation::Event;
use async_trait::async_trait;

use super::super::staging::{StagedJournal, Staging, lost};
use super::Memory;

/// The events of each import.
pub(super) type StagedEvents = BTreeMap<String, Vec<Event>>;

#[async_trait]
impl Staging for Memory {
    async fn stage(&self, staged: &StagedJournal, events: Arc<[Event]>) -> Result<(), StoreError> {
        let mut tables = self.tables();
        let aside = tables.staged.entry(staged.key()).or_default();
        if aside.len() as u64 != staged.last_seq.get() {
            return Err(lost());
        }
        aside.extend(events.iter().cloned());
        Ok(())
    }

    async fn publish(
        &self,
        staged: &StagedJournal,
        held: &Claim,
        commit: Commit,
    ) -> Result<(), StoreError> {
        let tables = &mut *self.tables();
        if !tables.claims.admits(&staged.id, held) {
            return Err(StoreError::Fenced);
        }
        if tables.conversations.contains_key(&staged.id) {
            return Err(StoreError::Conflict);
        }
        let aside = tables.staged.remove(&staged.key()).unwrap_or_default();
        if aside.len() as u64 != staged.last_seq.get() {
            return Err(lost());
        }
        let events = aside.into_iter().chain(commit.events.iter().cloned()).collect();
        tables.append(&staged.id, held.epoch, Commit { events, json: None, ..commit })
    }

    async fn unstage(&self, staged: &StagedJournal) -> Result<(), StoreError> {
        self.tables().staged.remove(&staged.key());
        Ok(())
    }
}
