//! The store of a cluster, in Redis: one server, a cluster of them, or what sentinels watch.

mod audit;
mod blobs;
mod calls;
mod facts;
mod journal;
mod keys;
mod line;
mod members;
mod pager;
mod promise;
mod rows;
mod script;
mod scripts;
mod sentinel;
mod stored;
#[cfg(test)]
mod tests;
mod url;
mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Semaphore;

use self::calls::PATIENCE_LARGE;
use self::line::Connection;
use self::url::Kind;
use super::rules::STATE_FORMAT;

pub use self::promise::{Durability, OpenError};
pub use self::url::{RedisUrl, RedisUrlError};

/// Connections whose commits wait for replicas: each waits for one at a time.
const WAITING: usize = 16;

/// Blobs and entries of the audit that are under way at once: more only slow each other down.
const CARRYING: usize = 4;

/// A store that is open. Clocks do not matter to it: what compares times is told them, and the
/// membership goes by the server's.
///
/// A connection that breaks is replaced, and what was under way is done once more; what was done
/// already is recognised. A write that answers [`Unavailable`](abide_actors::journal::Refusal) may
/// have been done all the same.
pub struct Redis {
    reads: Connection,
    writes: Connection,
    /// As many as commits may wait in; none, where they wait for no replicas.
    durable: Vec<Connection>,
    /// For what is megabytes, which would hold up all else behind it.
    large: Connection,
    carrying: Semaphore,
    turn: AtomicUsize,
    replicas: Option<usize>,
    cluster: bool,
    /// Tells this opening from all others.
    opened: String,
    calls: AtomicU64,
    found: String,
}

impl Redis {
    /// Opens the store, if its servers can promise this.
    pub async fn open(url: &RedisUrl, durability: Durability) -> Result<Self, OpenError> {
        let found = promise::check(url, durability).await?;
        let url = Arc::new(url.clone());
        let line = || Connection::new(Arc::clone(&url));
        let replicas = match durability {
            Durability::Replicas(replicas) => Some(usize::from(replicas.get())),
            Durability::Fsync | Durability::Os => None,
        };
        let waiting = replicas.map_or(0, |_| WAITING);
        Ok(Self {
            reads: line(),
            writes: line(),
            durable: (0..waiting).map(|_| line()).collect(),
            large: Connection::with_patience(Arc::clone(&url), PATIENCE_LARGE),
            carrying: Semaphore::new(CARRYING),
            turn: AtomicUsize::new(0),
            replicas,
            cluster: url.kind == Kind::Cluster,
            opened: found.opened,
            calls: AtomicU64::new(0),
            found: found.line,
        })
    }

    /// What the servers are and how they keep what they are given, as one line for the log.
    pub fn found(&self) -> &str {
        &self.found
    }

    /// Names one call, so that its repeat is recognised.
    fn nonce(&self) -> String {
        format!("{}-{}", self.opened, self.calls.fetch_add(1, Ordering::Relaxed))
    }
}
