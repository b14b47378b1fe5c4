//! The connections to the servers of a cluster.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures::future::join_all;
use redis::aio::ConnectionLike;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{Route, SingleNodeRoutingInfo, SlotAddr};
use redis::{Pipeline, RedisResult, ServerErrorKind, Value};
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::super::command::keys::Tag;
use super::dial::{CONNECT_TIMEOUT, ServerConnection, dial_with};
use super::opening::{SlotRange, slot_ranges};
use super::url::{Host, RedisUrl};

/// How long a primary that was forgotten is not looked for.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// A connection to each primary of a cluster, and beside them that of the client library.
///
/// Commands go straight to the primary of their slot. What is not answered there goes through the
/// library, which follows slots that move and waits for primaries that fail over, but copies each
/// command and takes it through a task of its own: a turn costs a node a tenth more time that way.
pub(super) struct ClusterServers {
    library: ClusterConnection,
    primaries: Arc<Primaries>,
    _refreshing: AbortOnDropHandle<()>,
}

impl ClusterServers {
    pub(super) fn new(library: ClusterConnection, url: Arc<RedisUrl>) -> Self {
        let primaries = Arc::<Primaries>::default();
        let refreshing = tokio::spawn(Arc::clone(&primaries).refresh(url));
        Self { library, primaries, _refreshing: AbortOnDropHandle::new(refreshing) }
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
}

/// The primaries that are connected to.
#[derive(Default)]
pub(in crate::store::redis) struct Primaries {
    /// By the last slot of each range.
    ranges: RwLock<BTreeMap<u16, Primary>>,
    forgotten: Notify,
}

#[derive(Clone)]
struct Primary {
    first_slot: u16,
    host: Host,
    connection: ServerConnection,
}

impl Primaries {
    /// Sends commands to the primary of a slot. Returns `None` unless it has answered all of them;
    /// then the commands are to be sent otherwise, and so are those for its other slots.
    pub(in crate::store::redis) async fn send(
        &self,
        slot: u16,
        commands: &Pipeline,
    ) -> Option<Vec<Value>> {
        let answers = self.of(slot)?.req_packed_commands(commands, 0, commands.len()).await;
        let answers = answers.ok().filter(|answers| !answers.iter().any(is_redirection));
        if answers.is_none() {
            self.forget(slot);
        }
        answers
    }

    /// The connection to the primary of a slot, if there is one.
    fn of(&self, slot: u16) -> Option<ServerConnection> {
        let ranges = self.ranges.read().unwrap_or_else(PoisonError::into_inner);
        let (_, primary) = ranges.range(slot..).next()?;
        (primary.first_slot <= slot).then(|| primary.connection.clone())
    }

    /// Forgets the primary of this slot, with all its slots, until it is found again.
    fn forget(&self, slot: u16) {
        let mut ranges = self.ranges.write().unwrap_or_else(PoisonError::into_inner);
        let Some(host) = ranges.range(slot..).next().map(|(_, primary)| primary.host.clone())
        else {
            return;
        };
        ranges.retain(|_, primary| primary.host != host);
        tracing::debug!(primary = %host, "primary does not answer as such: its slots are read anew");
        self.forgotten.notify_one();
    }

    /// Finds the primaries, and finds them again whenever one was forgotten.
    async fn refresh(self: Arc<Self>, url: Arc<RedisUrl>) {
        loop {
            if self.connect(&url).await {
                self.forgotten.notified().await;
            }
            sleep(REFRESH_INTERVAL).await;
        }
    }

    /// Connects to the primaries that are not connected to. Returns whether there is a connection for
    /// every slot that has a primary.
    pub(in crate::store::redis) async fn connect(&self, url: &RedisUrl) -> bool {
        let Ok(found) = slot_ranges(url).await else { return false };
        let mut connections = self.connections();
        let mut missing: Vec<&Host> = found.iter().map(|range| &range.primary).collect();
        missing.sort();
        missing.dedup();
        missing.retain(|host| !connections.contains_key(host));
        // At once: one that hangs must not keep the others from being connected to.
        let dialled = join_all(missing.into_iter().map(async |host| {
            // The time of answers is watched by whoever sends.
            let connection = dial_with(url.server(host).ok()?, CONNECT_TIMEOUT, None).await;
            Some((host.clone(), connection.ok()?))
        }));
        connections.extend(dialled.await.into_iter().flatten());
        let ranges = found.iter().filter_map(|SlotRange { first, last, primary }| {
            let connection = connections.get(primary)?.clone();
            let (first_slot, host) = (*first, primary.clone());
            Some((*last, Primary { first_slot, host, connection }))
        });
        let ranges: BTreeMap<u16, Primary> = ranges.collect();
        let is_whole = ranges.len() == found.len();
        *self.ranges.write().unwrap_or_else(PoisonError::into_inner) = ranges;
        is_whole
    }

    fn connections(&self) -> HashMap<Host, ServerConnection> {
        let ranges = self.ranges.read().unwrap_or_else(PoisonError::into_inner);
        let primaries = ranges.values();
        primaries.map(|it| (it.host.clone(), it.connection.clone())).collect()
    }
}

/// Whether the answering server does not have the slot, or cannot serve it now.
fn is_redirection(answer: &Value) -> bool {
    let Value::ServerError(error) = answer else { return false };
    match error.kind() {
        Some(
            ServerErrorKind::Moved
            | ServerErrorKind::Ask
            | ServerErrorKind::TryAgain
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ReadOnly
            | ServerErrorKind::BusyLoading,
        ) => true,
        Some(_) | None => false,
    }
}
