//! Journals that are being imported, in the file: a table that is emptied when the file is opened, because
//! the process of each import in it has died.

use std::sync::Arc;

use abide_actors::journal::{Claim, Commit, StoreError, event_json};
use abide_conversation::Event;
use async_trait::async_trait;
use redb::{Error, ReadableTable, TableDefinition, WriteTransaction};

use super::super::sealing::{CommitKey, sealed_events};
use super::super::staging::{StagedJournal, Staging, lost};
use super::Embedded;
use super::encode::Append;
use super::write::Write;

/// Import, number → event.
const STAGED: TableDefinition<(&str, u64), &[u8]> = TableDefinition::new("staged");

/// Events that are kept aside, as bytes; none if those that are aside are to be forgotten.
pub(super) struct EncodedEvents {
    staged: StagedJournal,
    events: Arc<[Vec<u8>]>,
}

#[async_trait]
impl Staging for Embedded {
    async fn stage(&self, staged: &StagedJournal, events: Arc<[Event]>) -> Result<(), StoreError> {
        if events.is_empty() {
            return Ok(());
        }
        let key = self.staging_key(staged)?;
        let own = key.as_ref().map(|key| &key.own);
        let events = sealed_events(&events, &event_json(&events)?, own)?;
        let events = EncodedEvents { staged: staged.clone(), events };
        self.write(Write::Stage(events)).await.map(drop)
    }

    async fn publish(
        &self,
        staged: &StagedJournal,
        held: &Claim,
        commit: Commit,
    ) -> Result<(), StoreError> {
        let key = self.staging_key(staged)?;
        let append = Append::new(&staged.id, held, commit, self.sealer(), key.as_ref())?;
        let append = Append { staged: Some(staged.clone()), ..append };
        let published = self.write(Write::Append(Box::new(append))).await.map(drop);
        if let (Some(sealer), Some(key)) = (self.sealer(), &key) {
            sealer.committed(held.epoch, key, published.is_ok());
        }
        if published.is_ok() {
            self.end_staging(staged);
        }
        published
    }

    async fn unstage(&self, staged: &StagedJournal) -> Result<(), StoreError> {
        self.end_staging(staged);
        let events = EncodedEvents { staged: staged.clone(), events: Arc::from([]) };
        self.write(Write::Stage(events)).await.map(drop)
    }
}

impl Embedded {
    /// What seals the events of an import; `None` if nothing does.
    fn staging_key(&self, staged: &StagedJournal) -> Result<Option<CommitKey>, StoreError> {
        match self.sealer() {
            Some(sealer) => sealer.staging_key(&staged.key(), &staged.id),
            None => Ok(None),
        }
    }

    fn end_staging(&self, staged: &StagedJournal) {
        if let Some(sealer) = self.sealer() {
            sealer.end_staging(&staged.key());
        }
    }
}

/// Forgets what imports left that died.
pub(super) fn clear(to: &WriteTransaction) -> Result<(), Error> {
    to.delete_table(STAGED)?;
    Ok(())
}

/// Returns whether the events follow what is aside.
pub(super) fn stage(
    to: &WriteTransaction,
    events: &EncodedEvents,
) -> Result<Result<bool, StoreError>, Error> {
    let EncodedEvents { staged, events } = events;
    let mut table = to.open_table(STAGED)?;
    let key = staged.key();
    if events.is_empty() {
        table.retain_in((key.as_str(), 0)..=(key.as_str(), u64::MAX), |_, _| false)?;
        return Ok(Ok(true));
    }
    if last_of(&table, &key)? != staged.last_seq.get() {
        return Ok(Err(lost()));
    }
    for (number, event) in (staged.last_seq.get() + 1..).zip(events.iter()) {
        table.insert((key.as_str(), number), event.as_slice())?;
    }
    Ok(Ok(true))
}

/// Hands the events of an import over, in their order, and forgets them. Returns whether they were
/// all there; otherwise nothing has happened.
pub(super) fn take(
    to: &WriteTransaction,
    staged: &StagedJournal,
    mut hand_over: impl FnMut(u64, &[u8]) -> Result<(), Error>,
) -> Result<bool, Error> {
    let mut table = to.open_table(STAGED)?;
    let key = staged.key();
    if last_of(&table, &key)? != staged.last_seq.get() {
        return Ok(false);
    }
    for row in table.range((key.as_str(), 0)..=(key.as_str(), u64::MAX))? {
        let (place, event) = row?;
        hand_over(place.value().1, event.value())?;
    }
    table.retain_in((key.as_str(), 0)..=(key.as_str(), u64::MAX), |_, _| false)?;
    Ok(true)
}

/// The number of the last event that is aside, 0 if there is none.
fn last_of(
    table: &impl ReadableTable<(&'static str, u64), &'static [u8]>,
    key: &str,
) -> Result<u64, Error> {
    let last = table.range((key, 0)..=(key, u64::MAX))?.next_back().transpose()?;
    Ok(last.map_or(0, |(place, _)| place.value().1))
}
