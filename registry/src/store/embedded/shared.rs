//! What readers and the writer of one store share: the open file, the claims, the counters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use abide_actors::journal::{Claim, Holder, StoreError};
use abide_conversation::ConversationId;
use redb::{Database, Error, ReadTransaction, ReadableDatabase};

use super::super::claims::Claims;
use super::disk::Probe;
use super::read;

/// Locks are held for a lookup, never across a write.
#[derive(Debug)]
pub(super) struct Shared {
    file: RwLock<OpenFile>,
    claims: Mutex<Claims>,
    pub(super) probe: Arc<Probe>,
    commits: AtomicU64,
}

/// The file between two failures.
#[derive(Clone, Debug)]
pub(super) struct OpenFile {
    /// Counts how often it was opened, so that a failure is blamed on the right opening.
    pub(super) number: u64,
    /// `Err` says why it is closed.
    pub(super) database: Result<Arc<Database>, String>,
}

/// A read that failed, and whether opening the file again may help.
pub(super) struct Failed {
    pub(super) refusal: StoreError,
    pub(super) reopen: Option<u64>,
}

/// What a claim came to.
pub(super) enum Claim {
    /// This is the holding now.
    Holds(Claim),
    /// It takes over from this holder, who may be writing.
    TakesOver(Holder),
}

impl Shared {
    pub(super) fn new(database: Database, probe: Arc<Probe>) -> Self {
        let file = OpenFile { number: 0, database: Ok(Arc::new(database)) };
        let (claims, commits) = (Mutex::default(), AtomicU64::new(0));
        Self { file: RwLock::new(file), claims, probe, commits }
    }

    pub(super) fn file(&self) -> OpenFile {
        self.file.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the file by a newly opened one, or by the reason why there is none.
    pub(super) fn replace(&self, database: Result<Database, String>) {
        let mut file = self.file.write().unwrap_or_else(PoisonError::into_inner);
        let number = file.number + 1;
        *file = OpenFile { number, database: database.map(Arc::new) };
    }

    pub(super) fn claims(&self) -> MutexGuard<'_, Claims> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a claim, if it need not wait for what is being written.
    pub(super) fn claim(
        &self,
        id: &ConversationId,
        me: &Holder,
        dead: Option<&Holder>,
    ) -> Result<Claim, Failed> {
        let written = self.written(id)?;
        let mut claims = self.claims();
        match (claims.present(id), dead) {
            (Some(present), Some(dead)) if present.holder == *dead => {
                Ok(Claim::TakesOver(dead.clone()))
            }
            (Some(_), _) | (None, _) => Ok(Claim::Holds(claims.claim(id, me, None, written))),
        }
    }

    /// Answers a claim when nothing of the conversation is being written.
    pub(super) fn take_over(
        &self,
        id: &ConversationId,
        me: &Holder,
        dead: &Holder,
    ) -> Result<Claim, Failed> {
        let written = self.written(id)?;
        Ok(self.claims().claim(id, me, Some(dead), written))
    }

    /// The epoch that stands in the file, read without holding the lock. By the time it is used a
    /// holding may have come and gone; the floor of the claims is then above it.
    fn written(&self, id: &ConversationId) -> Result<u64, Failed> {
        if self.claims().present(id).is_some() {
            return Ok(0);
        }
        let record = self.read(|from| read::record(from, id.as_str()))?;
        Ok(record.map_or(0, |record| record.epoch))
    }

    /// Reads from a snapshot, on the caller's thread.
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&ReadTransaction) -> Result<T, Error>,
    ) -> Result<T, Failed> {
        let OpenFile { number, database } = self.file();
        let closed = |reason| Failed { refusal: StoreError::Unavailable(reason), reopen: None };
        let database = database.map_err(closed)?;
        let outcome = database.begin_read().map_err(Error::from).and_then(|from| read(&from));
        outcome.map_err(|error| {
            let damaged = matches!(error, Error::Corrupted(_));
            let refusal = StoreError::Unavailable(error.to_string());
            Failed { refusal, reopen: (!damaged).then_some(number) }
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
