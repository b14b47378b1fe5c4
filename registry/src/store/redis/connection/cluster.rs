//! The connections to the servers of a cluster.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{join_all, pending};
use redis::aio::ConnectionLike;
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{Route, SingleNodeRoutingInfo, SlotAddr};
use redis::io::tcp::TcpSettings;
use redis::{Pipeline, RedisResult, ServerErrorKind, Value};
use tokio::sync::{Notify, OnceCell};
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::super::command::keys::SLOTS;
use super::dial::{ANSWER_TIMEOUT, CONNECT_TIMEOUT, ServerConnection, dial_with, timed_out};
use super::durability_watch::DurabilityWatch;
use super::opening::{SlotRange, slot_ranges};
use super::url::{Host, RedisUrl};

/// How long after the last time the slots are read again; each time that a primary is missing
/// doubles it up to the maximum.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
const MAX_REFRESH_INTERVAL: Duration = Duration::from_secs(16);
/// How long the library waits for a server that it connects to. It may wait twice for one that hangs, and
/// must be done within [`CONNECT_TIMEOUT`].
const LIBRARY_CONNECT_TIMEOUT: Duration = Duration::from_millis(700);
/// How often the library follows a moved slot, or reconnects, within the answer's timeout.
const MAX_REDIRECTS: u32 = 3;
/// The shortest and longest wait before it asks again.
const REDIRECT_WAIT_MS: (u64, u64) = (10, 200);

/// A cluster, whose primaries are looked for from the first command on.
pub(super) struct Cluster {
    url: Arc<RedisUrl>,
    /// Checks each primary that is connected to, if durable writes go there.
    watch: Option<Arc<DurabilityWatch>>,
    found: OnceCell<Found>,
}

struct Found {
    primaries: Arc<Primaries>,
    _refresh: AbortOnDropHandle<()>,
}

impl Cluster {
    pub(super) fn new(url: Arc<RedisUrl>, watch: Option<Arc<DurabilityWatch>>) -> Self {
        Self { url, watch, found: OnceCell::new() }
    }

    /// The primaries, once they were looked for.
    pub(super) fn found(&self) -> Option<&Primaries> {
        self.found.get().map(|found| &*found.primaries)
    }

    /// Looks for the primaries, for as long as a connection may take, and keeps looking from then on.
    /// Whenever all are connected to, it calls `close_library`.
    pub(super) async fn find<F: Future<Output = ()> + Send + 'static>(
        &self,
        close_library: impl Fn() -> F + Send + 'static,
    ) -> &Primaries {
        let found = self.found.get_or_init(|| async {
            let primaries = Arc::new(Primaries::new(Arc::clone(&self.url), self.watch.clone()));
            let connected = timeout(CONNECT_TIMEOUT, primaries.connect(primaries.servers())).await;
            let is_whole = connected.unwrap_or_default();
            let refresh = Arc::clone(&primaries).refresh(is_whole, close_library);
            Found { primaries, _refresh: AbortOnDropHandle::new(tokio::spawn(refresh)) }
        });
        &found.await.primaries
    }
}

/// Sends commands to the primary of a slot through the client library.
pub(super) async fn send_by_library(
    library: &mut ClusterConnection,
    slot: u16,
    commands: &Pipeline,
) -> RedisResult<Vec<Value>> {
    let route = SingleNodeRoutingInfo::SpecificNode(Route::new(slot, SlotAddr::Master));
    library.route_pipeline(commands.clone(), 0, commands.len(), route).await
}

/// A connection to each primary of a cluster.
///
/// Commands go straight to the primary of their slot. What is not answered there goes through the
/// client library, which follows slots that move and waits for primaries that fail over, but copies each
/// command and takes it through a task of its own: a turn costs a node a tenth more time that way.
pub(in crate::store::redis) struct Primaries {
    url: Arc<RedisUrl>,
    watch: Option<Arc<DurabilityWatch>>,
    map: RwLock<SlotMap>,
    /// That the map may be wrong, or that the library is connected, too.
    outdated: Notify,
}

#[derive(Default)]
struct SlotMap {
    /// Each with its first slot and its primary, by its last slot.
    ranges: BTreeMap<u16, (u16, Host)>,
    /// All servers of these ranges, replicas included.
    servers: BTreeSet<Host>,
    connections: HashMap<Host, Arc<ServerConnection>>,
}

impl Primaries {
    pub(in crate::store::redis) fn new(
        url: Arc<RedisUrl>,
        watch: Option<Arc<DurabilityWatch>>,
    ) -> Self {
        Self { url, watch, map: RwLock::default(), outdated: Notify::new() }
    }

    /// Sends commands to the primary of a slot. Returns `None` unless it has answered all of them;
    /// then they are to be sent otherwise. Fails if no answer comes in time.
    pub(in crate::store::redis) async fn send(
        &self,
        slot: u16,
        commands: &Pipeline,
        answer_timeout: Duration,
    ) -> RedisResult<Option<Vec<Value>>> {
        let Some((host, connection)) = self.of(slot) else { return Ok(None) };
        let mut primary = ServerConnection::clone(&connection);
        let answers = primary.req_packed_commands(commands, 0, commands.len());
        let answers = match timeout(answer_timeout, answers).await {
            Ok(Ok(answers)) => answers,
            Ok(Err(_)) => {
                self.forget(&host, &connection);
                return Ok(None);
            }
            Err(_) => {
                self.forget(&host, &connection);
                return Err(timed_out());
            }
        };
        match answers.iter().filter_map(Refusal::of).max() {
            None => return Ok(Some(answers)),
            Some(Refusal::Moving) => {}
            Some(Refusal::Elsewhere) => self.outdated.notify_one(),
        }
        Ok(None)
    }

    /// The primary of a slot, if it is connected to.
    fn of(&self, slot: u16) -> Option<(Host, Arc<ServerConnection>)> {
        let map = self.read();
        let (_, (first, host)) = map.ranges.range(slot..).next()?;
        let connection = map.connections.get(host).filter(|_| *first <= slot)?;
        Some((host.clone(), Arc::clone(connection)))
    }

    /// Forgets a connection that broke, unless it was replaced meanwhile.
    fn forget(&self, host: &Host, broken: &Arc<ServerConnection>) {
        let mut map = self.write();
        if map.connections.get(host).is_some_and(|present| Arc::ptr_eq(present, broken)) {
            map.connections.remove(host);
            tracing::debug!(primary = %host, "connection to a primary of the cluster broke");
            self.outdated.notify_one();
        }
    }

    /// Reads the slots again whenever they may be others; `is_whole` is what the first
    /// [`connect`](Self::connect) returned.
    async fn refresh<F: Future<Output = ()>>(
        self: Arc<Self>,
        mut is_whole: bool,
        close_library: impl Fn() -> F,
    ) {
        let mut interval = REFRESH_INTERVAL;
        loop {
            if is_whole {
                interval = REFRESH_INTERVAL;
                let closed = close_library().then(|()| pending::<()>());
                tokio::select! {
                    () = self.outdated.notified() => {}
                    () = closed => {}
                }
            } else {
                interval = MAX_REFRESH_INTERVAL.min(interval * 2);
            }
            sleep(interval).await;
            is_whole = self.connect(self.servers()).await;
        }
    }

    /// The servers to ask for the others: those that the URL names, and those that are known.
    fn servers(&self) -> Vec<Host> {
        // Each call begins at another one, so that after a fail-over not all connections ask the same.
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let map = self.read();
        let servers: BTreeSet<&Host> = self.url.hosts().iter().chain(&map.servers).collect();
        let mut servers: Vec<Host> = servers.into_iter().cloned().collect();
        let first = NEXT.fetch_add(1, Ordering::Relaxed) % servers.len().max(1);
        servers.rotate_left(first);
        servers
    }

    /// Reads the slots from the first of the servers that knows all, and connects to the primaries that
    /// are not connected to. Returns whether each slot has a primary, and all are connected to.
    pub(in crate::store::redis) async fn connect(&self, servers: Vec<Host>) -> bool {
        let Some(found) = self.read_slots(servers).await else { return false };
        let primaries: BTreeSet<Host> = found.iter().map(|range| range.primary.clone()).collect();
        let missing: Vec<&Host> = {
            let mut map = self.write();
            map.connections.retain(|host, _| primaries.contains(host));
            map.servers = found.iter().flat_map(SlotRange::servers).cloned().collect();
            let ranges = found.into_iter().map(|it| (it.last, (it.first, it.primary)));
            map.ranges = ranges.collect();
            primaries.iter().filter(|host| !map.connections.contains_key(host)).collect()
        };
        // Each is used as soon as it is there: one that hangs keeps nobody from the others.
        let connected = join_all(missing.into_iter().map(async |host| {
            let connection = self.dial(host).await?;
            self.write().connections.insert(host.clone(), Arc::new(connection));
            RedisResult::Ok(())
        }));
        connected.await.iter().all(RedisResult::is_ok)
    }

    /// All slots with their servers. One that hangs, or has left the cluster, is passed over.
    async fn read_slots(&self, servers: Vec<Host>) -> Option<Vec<SlotRange>> {
        for server in servers {
            let Ok(found) = slot_ranges(&self.url, &[server]).await else { continue };
            let slots = |it: &SlotRange| u64::from(it.last.saturating_sub(it.first)) + 1;
            if found.iter().map(slots).sum::<u64>() >= u64::from(SLOTS) {
                return Some(found);
            }
        }
        None
    }

    async fn dial(&self, host: &Host) -> RedisResult<ServerConnection> {
        // The time of answers is watched by whoever sends.
        let mut connection = dial_with(self.url.server(host)?, CONNECT_TIMEOUT, None).await?;
        if let Some(watch) = &self.watch {
            let checked = timeout(ANSWER_TIMEOUT, watch.check_server(host, &mut connection)).await;
            checked.unwrap_or_else(|_| Err(timed_out()))?;
        }
        Ok(connection)
    }

    /// A connection of the client library.
    pub(super) async fn library(&self, answer_timeout: Duration) -> RedisResult<ClusterConnection> {
        let servers = self.reachable();
        let servers = servers.iter().map(|host| self.url.server(host));
        let mut client = ClusterClientBuilder::new(servers.collect::<RedisResult<Vec<_>>>()?);
        if let Some(certificates) = self.url.certificates()? {
            client = client.certs(certificates);
        }
        let client = client
            .retries(MAX_REDIRECTS)
            .min_retry_wait(REDIRECT_WAIT_MS.0)
            .max_retry_wait(REDIRECT_WAIT_MS.1)
            .connection_timeout(LIBRARY_CONNECT_TIMEOUT)
            .response_timeout(answer_timeout)
            .tcp_settings(TcpSettings::default().set_nodelay(true))
            .build()?;
        let library = client.get_async_connection().await?;
        // It is closed once all primaries are found to be there.
        self.outdated.notify_one();
        Ok(library)
    }

    /// The servers that the library begins with: those that are connected to, which are likely to
    /// answer, or else any that may be there.
    fn reachable(&self) -> Vec<Host> {
        let connected: Vec<Host> = self.read().connections.keys().cloned().collect();
        if connected.is_empty() { self.servers() } else { connected }
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
    /// The slot moves, key by key: its primary is still the same.
    Moving,
    /// The server is not the primary of the slot, or may soon not be.
    Elsewhere,
}

impl Refusal {
    fn of(answer: &Value) -> Option<Self> {
        let Value::ServerError(error) = answer else { return None };
        match error.kind()? {
            ServerErrorKind::Ask | ServerErrorKind::TryAgain => Some(Self::Moving),
            ServerErrorKind::Moved
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ReadOnly
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::BusyLoading => Some(Self::Elsewhere),
            _ => None,
        }
    }
}
