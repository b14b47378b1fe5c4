//! A count that the store keeps, as it was last read, and what this node has added since.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use abide_actors::journal::StoreError;
use abide_conversation::Tenant;
use abide_registry::store::Store;
use jiff::civil::Date;
use tokio::time::Instant;

/// A count is read again when it is this old, while requests go on with the one before.
const REFRESH_INTERVAL: Duration = Duration::from_secs(5);
/// A count that is close to its limit, or seems to have reached it, is read again when it is this old,
/// and the request waits.
const CLOSE_INTERVAL: Duration = Duration::from_secs(1);
/// How far from its limit a count is close at least.
const CLOSE_COUNT: u64 = 10;
/// A count that is older than this is not believed.
const MAX_AGE: Duration = Duration::from_secs(60);

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Conversations,
    BlobBytes,
    Tokens(Date),
}

impl Source {
    async fn read(self, store: &dyn Store, tenant: &Tenant) -> Result<u64, StoreError> {
        match self {
            Self::Conversations => store.conversation_count(tenant).await,
            Self::BlobBytes => store.blob_bytes(tenant).await,
            Self::Tokens(day) => store.tokens_of_day(tenant, day).await,
        }
    }
}

/// One count of one tenant; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct StoredCount(Arc<Counted>);

#[derive(Debug, Default)]
struct Counted {
    known: Mutex<Known>,
    /// Held while the count is read, so that many requests read it once.
    reading: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
struct Known {
    /// `None`: nothing is known.
    read: Option<(Source, u64, Instant)>,
    /// What this node has added since it was read.
    added: u64,
    /// A reading that began before this does not count as one.
    stale_since: Option<Instant>,
}

impl StoredCount {
    /// Takes room for `more`, if there is as much below the limit.
    pub(super) fn reserve(&self, more: u64, limit: u64) -> bool {
        let mut known = self.known();
        let has_room = known.fits(more, limit);
        if has_room {
            known.added = known.added.saturating_add(more);
        }
        has_room
    }

    /// Whether there is room for `more` below the limit.
    pub(super) fn has_room(&self, more: u64, limit: u64) -> bool {
        self.known().fits(more, limit)
    }

    /// Whether the limit is near enough to be exact about it.
    pub(super) fn is_close(&self, more: u64, limit: u64) -> bool {
        self.known().is_close(more, limit)
    }

    /// Lets the next request read the count again. Until then what was read before holds, so that a
    /// deletion makes no room for more than it gives back.
    pub(super) fn forget(&self) {
        self.known().stale_since = Some(Instant::now());
    }

    /// Reads the count if it is due: before this returns if it matters to whoever adds `more` below the
    /// limit, else meanwhile.
    pub(super) async fn refresh(
        &self,
        store: &Arc<dyn Store>,
        tenant: &Tenant,
        source: Source,
        (more, limit): (u64, u64),
    ) -> Result<(), StoreError> {
        let (age, is_close) = {
            let known = self.known();
            (known.age(source), known.is_close(more, limit))
        };
        let must_wait = match age {
            None => true,
            Some(age) => age > MAX_AGE || (is_close && age > CLOSE_INTERVAL),
        };
        if must_wait {
            let asked_at = Instant::now();
            let _reading = self.0.reading.lock().await;
            let read_at = self.known().read_at(source);
            if read_at.is_none_or(|read_at| read_at < asked_at) {
                self.read(&**store, tenant, source).await?;
            }
        } else if age.is_some_and(|age| age > REFRESH_INTERVAL)
            && let Ok(reading) = self.0.reading.clone().try_lock_owned()
        {
            let (store, tenant) = (store.clone(), tenant.clone());
            let this = self.clone();
            tokio::spawn(async move {
                let _reading = reading;
                // The count before holds for a minute, and then a request learns of the failure.
                let _ = this.read(&*store, &tenant, source).await;
            });
        }
        Ok(())
    }

    async fn read(
        &self,
        store: &dyn Store,
        tenant: &Tenant,
        source: Source,
    ) -> Result<(), StoreError> {
        let added_before = self.known().added;
        let asked_at = Instant::now();
        let count = source.read(store, tenant).await?;
        let mut known = self.known();
        known.read = Some((source, count, asked_at));
        known.added = known.added.saturating_sub(added_before);
        Ok(())
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn read_at(&self, source: Source) -> Option<Instant> {
        let read_at = self.read.filter(|(of, ..)| *of == source).map(|(_, _, at)| at);
        read_at.filter(|at| self.stale_since.is_none_or(|stale_since| stale_since < *at))
    }

    fn age(&self, source: Source) -> Option<Duration> {
        self.read_at(source).map(|at| at.elapsed())
    }

    fn is_close(&self, more: u64, limit: u64) -> bool {
        let margin = (limit / 5).saturating_add(CLOSE_COUNT);
        !self.fits(more.saturating_add(margin), limit)
    }

    fn fits(&self, more: u64, limit: u64) -> bool {
        let count = self.read.map_or(0, |(_, count, _)| count);
        count.saturating_add(self.added).saturating_add(more) <= limit
    }
}
