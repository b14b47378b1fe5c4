//! The store of a cluster, in Redis: one server, a Redis cluster, or servers behind sentinels.

mod audit;
mod blobs;
mod connection;
mod decode;
mod dial;
mod durability;
mod error;
mod execute;
mod journal;
mod keys;
mod members;
mod open_suspensions;
mod opening;
mod pager;
mod script;
mod scripts;
mod sentinel;
mod server_info;
mod store;
#[cfg(test)]
mod tests;
#[doc(hidden)]
pub mod transport;
mod url;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Semaphore;

use self::connection::{Connection, Servers};
use self::execute::LARGE_TIMEOUT;
use self::opening::OpenedStore;
use self::transport::Dial;
use self::url::Kind;
use super::commit_rules::STATE_FORMAT;

pub use self::durability::Durability;
pub use self::opening::OpenError;
pub use self::url::{RedisUrl, RedisUrlError};

/// Connections for commits that wait for replicas, of which each carries one wait at a time.
const DURABLE_CONNECTIONS: usize = 16;

/// Blobs and audit entries in flight at once: more only slow each other down.
const MAX_LARGE_TRANSFERS: usize = 4;

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
    /// For megabytes, which would hold up everything behind them.
    large: Connection,
    large_transfers: Semaphore,
    next_durable: AtomicUsize,
    replicas: Option<usize>,
    cluster: bool,
    /// Tells this opening from all others.
    opening_id: String,
    calls: AtomicU64,
    description: String,
}

impl Redis {
    /// Opens the store, if its servers can keep this durability.
    pub async fn open(url: &RedisUrl, durability: Durability) -> Result<Self, OpenError> {
        let opened = opening::check(url, durability).await?;
        let cluster = url.kind == Kind::Cluster;
        Ok(Self::over(&Servers::Real(Arc::new(url.clone())), cluster, durability, opened))
    }

    /// Opens the store over the servers of a simulation, without asking what they can keep.
    #[doc(hidden)]
    pub fn simulated(dial: Arc<dyn Dial>, durability: Durability, opening_id: String) -> Self {
        let opened = OpenedStore { description: "simulated redis".to_owned(), opening_id };
        Self::over(&Servers::Simulated(dial), false, durability, opened)
    }

    fn over(servers: &Servers, cluster: bool, durability: Durability, opened: OpenedStore) -> Self {
        let connection = || Connection::new(servers.clone());
        let replicas = match durability {
            Durability::Replicas(replicas) => Some(usize::from(replicas.get())),
            Durability::Fsync | Durability::Os => None,
        };
        let durable_count = replicas.map_or(0, |_| DURABLE_CONNECTIONS);
        Self {
            reads: connection(),
            writes: connection(),
            durable: (0..durable_count).map(|_| connection()).collect(),
            large: Connection::with_timeout(servers.clone(), LARGE_TIMEOUT),
            large_transfers: Semaphore::new(MAX_LARGE_TRANSFERS),
            next_durable: AtomicUsize::new(0),
            replicas,
            cluster,
            opening_id: opened.opening_id,
            calls: AtomicU64::new(0),
            description: opened.description,
        }
    }

    /// The servers and their durability settings, as one line for the log.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Names one call, so that the servers recognise its repeat.
    fn nonce(&self) -> String {
        format!("{}-{}", self.opening_id, self.calls.fetch_add(1, Ordering::Relaxed))
    }
}
