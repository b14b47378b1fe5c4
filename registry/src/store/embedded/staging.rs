//! Journals that are being imported, in the file: a table that is emptied when the file is opened, because
//! the process of each import in it has died.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use abide_actors::journal::{Claim, Commit, StoreError, event_json};
use abide_conversation::Event;
use async_trait::async_trait;
use redb::{Error, ReadableTable, TableDefinition, WriteTransaction};

use super::super::blob_names::Naming;
use super::super::sealing::{CommitKey, sealed_events};
use super::super::staging::{StagedJournal, Staging, lost};
use super::Embedded;
use super::encode::Append;
use super::write::{OpenTables, Outcome, Write};

/// Import, number → event.
const STAGED: TableDefinition<(&str, u64), &[u8]> = TableDefinition::new("staged");

/// What one write moves or removes of a journal: some milliseconds of work, so that a long one does not
/// hold up other writes.
const MAX_ROWS: usize = 1_000;
const MAX_BYTES: usize = 4 << 20;

/// A write of what is kept aside.
pub(super) enum StageWrite {
    /// Adds events, as bytes.
    Add { staged: StagedJournal, events: Arc<[Vec<u8>]> },
    /// Moves some of them to where the journal of the conversation will be. Nobody sees them there
    /// before the conversation is written.
    Promote { staged: StagedJournal, held: Claim },
    /// Forgets some of them.
    Forget { staged: StagedJournal },
}

/// The journals that imports are moving, by their conversations. What is moved is noted as left by a
/// deletion until the conversation is written, so that it is removed if the process dies; until then it
/// is not.
#[derive(Debug, Default)]
pub(super) struct PromotedJournals(Mutex<BTreeMap<String, String>>);

impl PromotedJournals {
    pub(super) fn contains(&self, id: &str) -> bool {
        self.lock().contains_key(id)
    }

    /// Whether the journal is that of this import.
    pub(super) fn is_of(&self, id: &str, staged: &StagedJournal) -> bool {
        self.lock().get(id).is_some_and(|import| *import == staged.key())
    }

    fn begin(&self, staged: &StagedJournal) {
        self.lock().insert(staged.id.as_str().to_owned(), staged.key());
    }

    fn end(&self, staged: &StagedJournal) {
        if self.is_of(staged.id.as_str(), staged) {
            self.lock().remove(staged.id.as_str());
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
        let add = StageWrite::Add { staged: staged.clone(), events };
        self.write(Write::Stage(add)).await.map(drop)
    }

    async fn publish(
        &self,
        staged: &StagedJournal,
        held: &Claim,
        commit: Commit,
    ) -> Result<(), StoreError> {
        let key = self.staging_key(staged)?;
        let mut append = Append::new(&staged.id, held, commit, self.sealer(), key.as_ref())?;
        append.namings.extend(Naming::unsent(&staged.id, &staged.blobs));
        append.staged = Some(staged.clone());
        let promote = || StageWrite::Promote { staged: staged.clone(), held: held.clone() };
        while self.write(Write::Stage(promote())).await? {}
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
        let forget = || StageWrite::Forget { staged: staged.clone() };
        while self.write(Write::Stage(forget())).await? {}
        Ok(())
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

impl OpenTables<'_> {
    /// Returns, of what moves or forgets some of the events, whether there is more to do.
    pub(super) fn stage(&mut self, write: &StageWrite) -> Result<Outcome, Error> {
        match write {
            StageWrite::Add { staged, events } => self.add_staged(staged, events),
            StageWrite::Promote { staged, .. } => self.promote(staged),
            StageWrite::Forget { staged } => {
                self.promoted.end(staged);
                let (rows, has_more) = self.first_staged(&staged.key())?;
                self.remove_staged(&staged.key(), &rows)?;
                Ok(Ok(has_more))
            }
        }
    }

    fn add_staged(&mut self, staged: &StagedJournal, events: &[Vec<u8>]) -> Result<Outcome, Error> {
        let mut table = self.transaction.open_table(STAGED)?;
        let key = staged.key();
        if last_of(&table, &key)? != staged.last_seq.get() {
            return Ok(Err(lost()));
        }
        for (number, event) in (staged.last_seq.get() + 1..).zip(events) {
            table.insert((key.as_str(), number), event.as_slice())?;
        }
        Ok(Ok(true))
    }

    /// Moves some events, unless those that are left are few enough to be moved together with the
    /// commit that follows them. Returns whether it did.
    fn promote(&mut self, staged: &StagedJournal) -> Result<Outcome, Error> {
        if self.of(&staged.id)?.heads.get(staged.id.as_str())?.is_some() {
            return Ok(Err(StoreError::Conflict));
        }
        let key = staged.key();
        let (rows, has_more) = self.first_staged(&key)?;
        if !has_more {
            return Ok(Ok(false));
        }
        self.promoted.begin(staged);
        self.unswept.insert(staged.id.as_str(), ())?;
        self.move_staged(staged, &rows)?;
        Ok(Ok(true))
    }

    /// Moves the events of an import that are left, and forgets them. Returns whether all were there;
    /// otherwise nothing has happened.
    pub(super) fn take_staged(&mut self, staged: &StagedJournal) -> Result<bool, Error> {
        let key = staged.key();
        if last_of(&self.transaction.open_table(STAGED)?, &key)? != staged.last_seq.get() {
            return Ok(false);
        }
        loop {
            let (rows, has_more) = self.first_staged(&key)?;
            self.move_staged(staged, &rows)?;
            if !has_more {
                break;
            }
        }
        if self.promoted.is_of(staged.id.as_str(), staged) {
            self.unswept.remove(staged.id.as_str())?;
            self.promoted.end(staged);
        }
        Ok(true)
    }

    fn move_staged(&mut self, staged: &StagedJournal, rows: &[Row]) -> Result<(), Error> {
        for (number, event) in rows {
            self.journal.insert((staged.id.as_str(), *number), event.as_slice())?;
        }
        self.remove_staged(&staged.key(), rows)
    }

    /// The first events of an import that are aside, and whether there are others.
    fn first_staged(&self, key: &str) -> Result<(Vec<Row>, bool), Error> {
        let table = self.transaction.open_table(STAGED)?;
        let (mut found, mut bytes) = (Vec::new(), 0);
        for row in table.range((key, 0)..=(key, u64::MAX))? {
            if found.len() >= MAX_ROWS || bytes >= MAX_BYTES {
                return Ok((found, true));
            }
            let (number, event) = row?;
            bytes += event.value().len();
            found.push((number.value().1, event.value().to_vec()));
        }
        Ok((found, false))
    }

    fn remove_staged(&self, key: &str, rows: &[Row]) -> Result<(), Error> {
        let Some((last, _)) = rows.last() else { return Ok(()) };
        let mut table = self.transaction.open_table(STAGED)?;
        table.retain_in((key, 0)..=(key, *last), |_, _| false)?;
        Ok(())
    }
}

/// The number of an event, and its bytes.
type Row = (u64, Vec<u8>);

/// The number of the last event that is aside, 0 if there is none.
fn last_of(
    table: &impl ReadableTable<(&'static str, u64), &'static [u8]>,
    key: &str,
) -> Result<u64, Error> {
    let last = table.range((key, 0)..=(key, u64::MAX))?.next_back().transpose()?;
    Ok(last.map_or(0, |(place, _)| place.value().1))
}
