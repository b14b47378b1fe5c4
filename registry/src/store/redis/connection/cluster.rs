//! The connections to the servers of a cluster.

use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use futures::future::join_all;
use redis::aio::ConnectionLike;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{Route, SingleNodeRoutingInfo, SlotAddr};
use redis::{Pipeline, RedisResult, ServerErrorKind, Value};
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::super::command::keys::{SLOTS, Tag};
use super::dial::{CONNECT_TIMEOUT, ServerConnection, dial_with};
use super::opening::{SlotRange, slot_ranges};
use super::url::{Host, RedisUrl};

/// How long after the last time the slots are read again; each time that a primary is missing
/// doubles it up to the maximum.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
const MAX_REFRESH_INTERVAL: Duration = Duration::from_secs(16);

/// A connection to each primary of a cluster, and beside them that of the client library.
///
/// Commands go straight to the primary of their slot. What is not answered there goes through the
/// library, which follows slots that move and waits for primaries that fail over, but copies each
/// command and takes it through a task of its own: a turn costs a node a tenth more time that way.
pub(super) struct ClusterServers {
    library: ClusterConnection,
    primaries: Arc<RefreshedPrimaries>,
}

/// Primaries that a task looks for.
pub(super) struct RefreshedPrimaries {
    primaries: Arc<Primaries>,
    _task: AbortOnDropHandle<()>,
}

impl RefreshedPrimaries {
    pub(super) fn new(url: Arc<RedisUrl>) -> Self {
        let primaries = Arc::<Primaries>::default();
        let task = tokio::spawn(Arc::clone(&primaries).refresh(url));
        Self { primaries, _task: AbortOnDropHandle::new(task) }
    }
}

impl Deref for RefreshedPrimaries {
    type Target = Primaries;

    fn deref(&self) -> &Primaries {
        &self.primaries
    }
}

impl ClusterServers {
    pub(super) fn new(library: ClusterConnection, primaries: Arc<RefreshedPrimaries>) -> Self {
        Self { library, primaries }
    }

    pub(super) async fn send(&self, tag: Tag, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        let slot = tag.slot();
        if let Some(answers) = self.primaries.send(slot, commands).await {
            return Ok(answers);
        }
        let route = SingleNodeRoutingInfo::SpecificNode(Route::new(slot, SlotAddr::Master));
        let mut library = self.library.clone();
        // Boxed: it is three times as large as what the other kinds need, and the future of every
        // command would have room for it.
        Box::pin(library.route_pipeline(commands.clone(), 0, commands.len(), route)).await
    }

    /// Connects anew to the primary for this tag, which has not answered in time.
    pub(super) fn forget(&self, tag: Tag) {
        self.primaries.forget(tag.slot());
    }
}

/// The primaries that are connected to.
#[derive(Default)]
pub(in crate::store::redis) struct Primaries {
    map: RwLock<SlotMap>,
    /// That the map may be wrong.
    outdated: Notify,
}

#[derive(Default)]
struct SlotMap {
    /// Each with its first slot and its primary, by its last slot.
    ranges: BTreeMap<u16, (u16, Host)>,
    connections: HashMap<Host, Arc<ServerConnection>>,
}

impl Primaries {
    /// Sends commands to the primary of a slot. Returns `None` unless it has answered all of them;
    /// then they are to be sent otherwise.
    pub(in crate::store::redis) async fn send(
        &self,
        slot: u16,
        commands: &Pipeline,
    ) -> Option<Vec<Value>> {
        let (host, connection) = self.of(slot)?;
        let mut primary = ServerConnection::clone(&connection);
        let Ok(answers) = primary.req_packed_commands(commands, 0, commands.len()).await else {
            self.forget_connection(&host, &connection);
            return None;
        };
        match answers.iter().filter_map(Refusal::of).max() {
            None => return Some(answers),
            Some(Refusal::NotNow) => {}
            Some(Refusal::Elsewhere) => self.outdated.notify_one(),
        }
        None
    }

    /// The primary of a slot, if it is connected to.
    fn of(&self, slot: u16) -> Option<(Host, Arc<ServerConnection>)> {
        let map = self.read();
        let (_, (first, host)) = map.ranges.range(slot..).next()?;
        let connection = map.connections.get(host).filter(|_| *first <= slot)?;
        Some((host.clone(), Arc::clone(connection)))
    }

    /// Forgets the connection to the primary of a slot.
    pub(in crate::store::redis) fn forget(&self, slot: u16) {
        if let Some((host, connection)) = self.of(slot) {
            self.forget_connection(&host, &connection);
        }
    }

    /// Forgets a connection that broke, unless it was replaced meanwhile.
    fn forget_connection(&self, host: &Host, broken: &Arc<ServerConnection>) {
        let mut map = self.write();
        if map.connections.get(host).is_some_and(|present| Arc::ptr_eq(present, broken)) {
            map.connections.remove(host);
            tracing::debug!(primary = %host, "connection to a primary of the cluster broke");
            self.outdated.notify_one();
        }
    }

    /// Reads the slots, and reads them again whenever they may be others.
    async fn refresh(self: Arc<Self>, url: Arc<RedisUrl>) {
        // Connections begin at different hosts, so that after a fail-over not all ask the same one.
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let mut asked = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut interval = REFRESH_INTERVAL;
        loop {
            if self.connect(&url, asked).await {
                interval = REFRESH_INTERVAL;
                self.outdated.notified().await;
            } else {
                interval = MAX_REFRESH_INTERVAL.min(interval * 2);
            }
            sleep(interval).await;
            asked = asked.wrapping_add(1);
        }
    }

    /// Reads the slots from the host with this number, or one after it, and connects to the primaries
    /// that are not connected to. Returns whether each slot has a primary, and all are connected to.
    pub(in crate::store::redis) async fn connect(&self, url: &RedisUrl, asked: usize) -> bool {
        let Ok(found) = slot_ranges(url, asked).await else { return false };
        let slots = |it: &SlotRange| u64::from(it.last.saturating_sub(it.first)) + 1;
        if found.iter().map(slots).sum::<u64>() < u64::from(SLOTS) {
            // A server that has left the cluster knows nothing of it.
            return false;
        }
        let mut missing: Vec<&Host> = found.iter().map(|range| &range.primary).collect();
        missing.sort();
        missing.dedup();
        missing.retain(|host| !self.read().connections.contains_key(host));
        let dialled = join_all(missing.into_iter().map(async |host| {
            // The time of answers is watched by whoever sends.
            let connection = dial_with(url.server(host).ok()?, CONNECT_TIMEOUT, None).await;
            Some((host.clone(), Arc::new(connection.ok()?)))
        }));
        let dialled = dialled.await;
        let mut map = self.write();
        map.connections.extend(dialled.into_iter().flatten());
        map.connections.retain(|host, _| found.iter().any(|range| range.primary == *host));
        let is_whole = found.iter().all(|range| map.connections.contains_key(&range.primary));
        let ranges = found.into_iter().map(|it| (it.last, (it.first, it.primary)));
        map.ranges = ranges.collect();
        is_whole
    }

    fn read(&self) -> RwLockReadGuard<'_, SlotMap> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, SlotMap> {
        self.map.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a server has not carried out a command that another one may carry out, or the same one later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Refusal {
    /// The slot moves, or the cluster is down: where it is has not changed.
    NotNow,
    /// The server is not the primary of the slot.
    Elsewhere,
}

impl Refusal {
    fn of(answer: &Value) -> Option<Self> {
        let Value::ServerError(error) = answer else { return None };
        match error.kind()? {
            ServerErrorKind::Ask
            | ServerErrorKind::TryAgain
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::BusyLoading => Some(Self::NotNow),
            ServerErrorKind::Moved | ServerErrorKind::MasterDown | ServerErrorKind::ReadOnly => {
                Some(Self::Elsewhere)
            }
            _ => None,
        }
    }
}
