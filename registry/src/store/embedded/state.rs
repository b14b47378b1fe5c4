//! The state that readers and the writer of one store share: the open file, the claims, the
//! counters.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use abide_actors::identity::Epoch;
use abide_actors::journal::{Claim, Holder, StoreError};
use abide_conversation::{ConversationId, Scoped};
use redb::{Database, Error, ReadableDatabase};

use super::super::claims::Claims;
use super::super::sealing::Sealer;
use super::disk::Probe;
use super::encryption::{self, Snapshot};
use super::read;
use super::staging::PromotedJournals;

/// The shared state. Its locks are held for a lookup, never across a write, but for `overwriting`.
#[derive(Debug)]
pub(super) struct Shared {
    file: RwLock<OpenFile>,
    claims: Mutex<Claims>,
    /// The conversations that were at work when the last process ended without closing the store,
    /// and that nobody has claimed since.
    interrupted: Mutex<BTreeSet<Scoped<ConversationId>>>,
    pub(super) probe: Arc<Probe>,
    commits: AtomicU64,
    pub(super) promoted: PromotedJournals,
    /// Held by whoever overwrites the free pages of the file.
    pub(super) overwriting: tokio::sync::Mutex<()>,
    /// Present if there is a key file.
    pub(super) sealer: Option<Arc<Sealer>>,
}

/// The file as it was last opened.
#[derive(Clone, Debug)]
pub(super) struct OpenFile {
    /// Counts the openings, so that a failure is attributed to the right one.
    pub(super) generation: u64,
    /// `Err` says why the file is closed.
    pub(super) database: Result<Arc<Database>, String>,
    /// Whoever has a clone of it may read from a snapshot of the file.
    readers: Arc<()>,
}

/// Why a read failed, and which opening of the file to replace if that may help.
pub(super) struct ReadError {
    pub(super) error: StoreError,
    pub(super) reopen: Option<u64>,
}

/// How a claim continues.
pub(super) enum ClaimStep {
    /// This is the present claim.
    Held(Claim),
    /// The claim of this dead holder is to be replaced, once its writes are done.
    TakeOver(Holder),
}

impl Shared {
    pub(super) fn new(
        database: Database,
        interrupted: BTreeSet<Scoped<ConversationId>>,
        probe: Arc<Probe>,
        sealer: Option<Sealer>,
    ) -> Self {
        let database = Ok(Arc::new(database));
        let file = OpenFile { generation: 0, database, readers: Arc::default() };
        Self {
            file: RwLock::new(file),
            claims: Mutex::default(),
            interrupted: Mutex::new(interrupted),
            probe,
            commits: AtomicU64::new(0),
            promoted: PromotedJournals::default(),
            overwriting: tokio::sync::Mutex::default(),
            sealer: sealer.map(Arc::new),
        }
    }

    pub(super) fn file(&self) -> OpenFile {
        self.file.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the file by an open one, or by the reason why there is none.
    pub(super) fn replace(&self, database: Result<Arc<Database>, String>) {
        let mut file = self.file.write().unwrap_or_else(PoisonError::into_inner);
        file.generation += 1;
        file.database = database;
    }

    /// Those who read now: what is returned has other owners as long as one of them does. Who reads from
    /// now on sees everything that is written by now.
    pub(super) fn present_readers(&self) -> Arc<()> {
        let mut file = self.file.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut file.readers)
    }

    pub(super) fn claims(&self) -> MutexGuard<'_, Claims> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The conversations that the end of the last process interrupted.
    pub(super) fn interrupted(&self) -> MutexGuard<'_, BTreeSet<Scoped<ConversationId>>> {
        self.interrupted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims a conversation, unless the claim must wait for writes of a dead holder.
    pub(super) fn claim(
        &self,
        id: &Scoped<ConversationId>,
        me: &Holder,
        dead: Option<&Holder>,
    ) -> Result<ClaimStep, ReadError> {
        let stored_epoch = self.stored_epoch(id)?;
        let mut claims = self.claims();
        match (claims.present(id), dead) {
            (Some(present), Some(dead)) if present.holder == *dead => {
                Ok(ClaimStep::TakeOver(dead.clone()))
            }
            (Some(_), _) | (None, _) => {
                Ok(ClaimStep::Held(claims.claim(id, me, None, stored_epoch)))
            }
        }
    }

    /// Replaces the claim of a dead holder while no write to the conversation is running.
    pub(super) fn take_over(
        &self,
        id: &Scoped<ConversationId>,
        me: &Holder,
        dead: &Holder,
    ) -> Result<Claim, ReadError> {
        let stored_epoch = self.stored_epoch(id)?;
        Ok(self.claims().claim(id, me, Some(dead), stored_epoch))
    }

    /// The epoch in the file, read without holding the lock. Before it is used another claim may
    /// come and go, and then the floor of the claims is at least that claim's epoch.
    fn stored_epoch(&self, id: &Scoped<ConversationId>) -> Result<Epoch, ReadError> {
        if self.claims().present(id).is_some() {
            return Ok(Epoch::ZERO);
        }
        let record = self.read(|from| read::sealed_record(from, id))?;
        Ok(record.map_or(Epoch::ZERO, |record| record.epoch))
    }

    /// Reads from a snapshot on the caller's thread.
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&Snapshot<'_>) -> Result<T, Error>,
    ) -> Result<T, ReadError> {
        let OpenFile { generation, database, readers: _reading } = self.file();
        let closed = |reason| ReadError { error: StoreError::Unavailable(reason), reopen: None };
        let database = database.map_err(closed)?;
        let outcome = database.begin_read().map_err(Error::from);
        let sealer = self.sealer.as_deref();
        let outcome = outcome.and_then(|from| read(&Snapshot::new(from, sealer)));
        outcome.map_err(|error| {
            if let Some(reason) = encryption::unreadable(&error) {
                return ReadError { error: StoreError::Unreadable(reason), reopen: None };
            }
            let is_damaged = matches!(error, Error::Corrupted(_));
            let error = StoreError::Unavailable(error.to_string());
            ReadError { error, reopen: (!is_damaged).then_some(generation) }
        })
    }

    pub(super) fn count_commits(&self, commits: u64) {
        self.commits.fetch_add(commits, Ordering::Relaxed);
        metrics::counter!("abide_store_commits_total").increment(commits);
    }

    pub(super) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }
}
