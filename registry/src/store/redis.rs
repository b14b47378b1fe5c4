//! The store of a cluster, in Redis: one server, a Redis cluster, or servers behind sentinels.

mod administration;
mod audit;
mod backlog;
mod blobs;
mod command;
mod connection;
mod encryption;
mod journal;
mod listing;
mod members;
mod rows;
mod scripts;
mod store;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinSet;

use self::connection::durability_watch::DurabilityWatch;
use self::connection::execute::LARGE_TIMEOUT;
use self::connection::opening::{self, OpenedStore};
use self::connection::transport::Dial;
use self::connection::url::Kind;
use self::connection::{Connection, Servers};
use self::members::KnownMembers;
use self::rows::indexed_row::IndexedRow;
use super::claimed_cache::ClaimedCache;
use super::commit_rules::STATE_FORMAT;
use super::compression::Compression;
use super::sealing::{KeyRing, OwnKey, Sealer};
use super::stored_form::StoredForm;

pub use self::connection::certificates::{CertificateError, CertificateFiles};
pub use self::connection::durability::Durability;
pub use self::connection::opening::OpenError;
#[doc(hidden)]
pub use self::connection::transport;
pub use self::connection::url::{RedisUrl, RedisUrlError};

/// Connections for commits that wait for replicas, of which each carries one wait at a time.
const DURABLE_CONNECTIONS: usize = 16;
/// Connections for reads that wait for replicas: fewer, because only what is read past a live actor
/// waits, and apart, because a long journal holds up everything behind it.
const CONFIRMED_CONNECTIONS: usize = 8;

/// Blobs and audit entries in flight at once: more only slow each other down.
const MAX_LARGE_TRANSFERS: usize = 4;

/// Pages of journals in flight at once: a server answers all that one connection has sent before it
/// serves another one, and so nobody waits for more than one page of each node.
const MAX_PAGE_TRANSFERS: usize = 1;

/// An open store. It reads no clock of this machine: callers pass the times that it compares, and
/// the membership goes by the server's clock.
///
/// A connection that breaks is replaced, and what was in flight is sent once more; the servers
/// recognise what they have done already. A write that fails as
/// [`Unavailable`](abide_actors::journal::StoreError) may have been carried out all the same.
pub struct Redis {
    reads: Connection,
    writes: Connection,
    /// For commits that wait for replicas; empty if none do.
    durable: Vec<Connection>,
    /// For reads that wait for replicas; empty if none do.
    confirmed: Vec<Connection>,
    /// For the node's own membership, if it waits for replicas: nothing may hold up a renewal.
    membership: Connection,
    known_members: std::sync::Mutex<Arc<KnownMembers>>,
    /// For megabytes, which would hold up everything behind them.
    large: Connection,
    large_transfers: Semaphore,
    /// For what follows the first page of a journal.
    pages: Connection,
    page_transfers: Semaphore,
    /// Entries of the operators' audit are written one at a time: two would only conflict.
    operating: Mutex<()>,
    next_durable: AtomicUsize,
    next_confirmed: AtomicUsize,
    replicas: Option<usize>,
    cluster: bool,
    /// Tells this opening from all others.
    opening_id: String,
    calls: AtomicU64,
    /// How often the store was asked for due schedules.
    schedule_polls: AtomicU64,
    description: String,
    watch: Arc<DurabilityWatch>,
    /// What the conversations that this node holds are indexed by.
    rows: ClaimedCache<IndexedRow>,
    /// Present if there is a key file.
    sealer: Option<Arc<Sealer>>,
    compression: Compression,
    /// Whether a member of the cluster reads nothing that is compressed.
    has_older_members: AtomicBool,
    /// The watch's task, which ends with the store.
    _watching: JoinSet<()>,
}

impl Redis {
    /// Opens the store, if its servers can keep this durability. As long as they no longer can, it
    /// refuses writes.
    pub async fn open(url: &RedisUrl, durability: Durability) -> Result<Self, OpenError> {
        Self::open_encrypted(url, durability, None).await
    }

    /// [Opens](Self::open) the store with the keys of a key file. A store that is encrypted is opened
    /// only with its keys.
    pub async fn open_encrypted(
        url: &RedisUrl,
        durability: Durability,
        keys: Option<KeyRing>,
    ) -> Result<Self, OpenError> {
        let opened = opening::check(url, durability).await?;
        let watch = Arc::new(DurabilityWatch::new(durability));
        let mut watching = JoinSet::new();
        watching.spawn(Arc::clone(&watch).watch(Arc::new(url.clone())));
        let is_cluster = url.kind == Kind::Cluster;
        let servers = Servers::Real(Arc::new(url.clone()), Arc::clone(&watch));
        let store = Self::over(&servers, is_cluster, durability, opened, watch);
        Self { _watching: watching, ..store }.with_keys(url, keys).await
    }

    /// Opens the store over the servers of a simulation, without asking what they can keep.
    #[doc(hidden)]
    pub fn simulated(dial: Arc<dyn Dial>, durability: Durability, opening_id: String) -> Self {
        let opened = OpenedStore { description: "simulated redis".to_owned(), opening_id };
        let watch = Arc::new(DurabilityWatch::new(durability));
        Self::over(&Servers::Simulated(dial), false, durability, opened, watch)
    }

    fn over(
        servers: &Servers,
        cluster: bool,
        durability: Durability,
        opened: OpenedStore,
        watch: Arc<DurabilityWatch>,
    ) -> Self {
        let reading = || Connection::new(servers.clone());
        let writing = || Connection::durable(servers.clone());
        let replicas = match durability {
            Durability::Replicas(replicas) => Some(usize::from(replicas.get())),
            Durability::Fsync | Durability::Os | Durability::Nothing => None,
        };
        let number = |count| replicas.map_or(0, |_| count);
        Self {
            reads: reading(),
            writes: writing(),
            durable: (0..number(DURABLE_CONNECTIONS)).map(|_| writing()).collect(),
            confirmed: (0..number(CONFIRMED_CONNECTIONS)).map(|_| reading()).collect(),
            membership: reading(),
            known_members: Default::default(),
            large: writing().with_timeout(LARGE_TIMEOUT),
            large_transfers: Semaphore::new(MAX_LARGE_TRANSFERS),
            pages: reading(),
            page_transfers: Semaphore::new(MAX_PAGE_TRANSFERS),
            operating: Mutex::new(()),
            next_durable: AtomicUsize::new(0),
            next_confirmed: AtomicUsize::new(0),
            replicas,
            cluster,
            opening_id: opened.opening_id,
            calls: AtomicU64::new(0),
            schedule_polls: AtomicU64::new(0),
            description: opened.description,
            watch,
            rows: ClaimedCache::default(),
            sealer: None,
            compression: Compression::None,
            has_older_members: AtomicBool::new(false),
            _watching: JoinSet::new(),
        }
    }

    /// Sets how values of conversations are compressed, as long as all members of the cluster can read
    /// that.
    #[must_use]
    pub fn with_compression(self, compression: Compression) -> Self {
        Self { compression, ..self }
    }

    /// The form of what is stored of a conversation that has this data key.
    fn stored_form<'k>(&self, own: Option<&'k OwnKey>) -> StoredForm<'k> {
        StoredForm { compression: self.compression(), own }
    }

    /// How new values are compressed.
    fn compression(&self) -> Compression {
        if self.has_older_members.load(Ordering::Relaxed) {
            Compression::None
        } else {
            self.compression
        }
    }

    /// The servers and their durability settings, as one line for the log.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Names one call, so that the servers recognise its repeat.
    fn nonce(&self) -> String {
        let call = self.calls.fetch_add(1, Ordering::Relaxed).to_string();
        [&*self.opening_id, "-", &*call].concat()
    }
}
