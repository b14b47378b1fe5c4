//! The store of a run: one Redis, a pair that fails over, a cluster of three primaries with or without
//! replicas, or a node's own files.

use std::collections::BTreeSet;

use clap::ValueEnum;

use super::fault::StoreFault;
use super::redis_cluster::{self, host_and_port};
use super::slot_move;
use crate::cluster::{Cluster, Plan};
use crate::deadline::poll;
use crate::random::SeededRandom;
use crate::redis::Redis;
use crate::redis::servers::Server;

/// The kind of a run's store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StoreKind {
    /// One Redis that syncs every write to its disk.
    One,
    /// A primary, a replica, and a sentinel that fails over.
    Pair,
    /// Three primaries that share the keys.
    Three,
    /// Three primaries that share the keys, each with a replica that takes over.
    Replicated,
    /// One node with an embedded store.
    Embedded,
}

impl StoreKind {
    /// The kind for a seed: two of seven seeds have one server.
    pub(super) fn for_seed(seed: u64) -> Self {
        match seed % 7 {
            0 | 1 => Self::One,
            2 | 3 => Self::Pair,
            4 => Self::Three,
            5 => Self::Replicated,
            _ => Self::Embedded,
        }
    }

    /// Whether a replica takes over from a primary.
    fn fails_over(self) -> bool {
        matches!(self, Self::Pair | Self::Replicated)
    }

    /// How many nodes use the store.
    pub(super) fn nodes(self) -> u64 {
        if self == Self::Embedded { 1 } else { 3 }
    }
}

/// The servers in addition to the first one, which belongs to the cluster, and what is broken now. A
/// server is known by its number, from 0.
pub(super) struct StoreSetup {
    kind: StoreKind,
    others: Vec<Redis>,
    sentinel: Option<Server>,
    /// The server that broke last.
    last: usize,
    dead: BTreeSet<usize>,
    stopped: BTreeSet<usize>,
    configured: BTreeSet<usize>,
    random: SeededRandom,
}

impl StoreSetup {
    /// Starts the servers. The first one is returned separately; no node of an embedded store uses
    /// it.
    pub(super) async fn start(kind: StoreKind, random: SeededRandom) -> (Self, Redis) {
        let (first, others, sentinel) = match kind {
            StoreKind::One => (Redis::process_on_disk(&[]).await, Vec::new(), None),
            StoreKind::Pair => pair().await,
            StoreKind::Three => cluster(false).await,
            StoreKind::Replicated => cluster(true).await,
            StoreKind::Embedded => (Redis::process().await, Vec::new(), None),
        };
        let [dead, stopped, configured] = [const { BTreeSet::new() }; 3];
        let setup = Self { kind, others, sentinel, last: 0, dead, stopped, configured, random };
        (setup, first)
    }

    /// Adds the flags of this store to a plan.
    pub(super) fn plan(&self, plan: Plan) -> Plan {
        match self.kind {
            StoreKind::One => plan.proxied(),
            StoreKind::Pair => {
                let port = self.sentinel.as_ref().map(|sentinel| sentinel.port).unwrap_or_default();
                let store = format!("redis+sentinel://127.0.0.1:{port}/main");
                plan.proxied().with_store(&store).with(&["--durability", "replicas=1"])
            }
            StoreKind::Three => {
                let store = format!("redis+cluster://{}", self.others[0].address());
                plan.proxied().with_store(&store)
            }
            StoreKind::Replicated => {
                let named: Vec<&str> = self.others[..2].iter().map(Redis::address).collect();
                let store = format!("redis+cluster://{}", named.join(","));
                plan.proxied().with_store(&store).with(&["--durability", "replicas=1"])
            }
            StoreKind::Embedded => plan.embedded(),
        }
    }

    /// Causes a fault, in addition to those that have not been healed yet. Returns when it has taken
    /// effect, or at once if there is nothing that it could break.
    pub(super) async fn begin(&mut self, cluster: &mut Cluster, fault: StoreFault) {
        if self.kind == StoreKind::Embedded {
            return self.begin_embedded(cluster, fault).await;
        }
        if fault == StoreFault::SlotMoved {
            let servers = all(&cluster.redis, &self.others);
            return slot_move::move_a_slot(&servers, &mut self.random).await;
        }
        let target = self.target(cluster, fault).await;
        let is_kill = match fault {
            StoreFault::Killed | StoreFault::ReplicaKilled | StoreFault::PowerLost => true,
            StoreFault::Stopped
            | StoreFault::RefusesWrites
            | StoreFault::Full
            | StoreFault::DiskFull
            | StoreFault::SlotMoved => false,
        };
        if self.dead.contains(&target) || self.stopped.contains(&target) && !is_kill {
            return;
        }
        let server = server(&mut cluster.redis, &mut self.others, target);
        match fault {
            StoreFault::Killed | StoreFault::ReplicaKilled => server.kill().await,
            StoreFault::PowerLost => {
                let random = &mut self.random;
                server.lose_power(|count| random.below(count as u64 + 1) as usize).await;
            }
            StoreFault::Stopped => server.stop().await,
            StoreFault::RefusesWrites => server.refuse_writes(true).await,
            StoreFault::Full => server.fill(true).await,
            // A Redis whose disk is full exits, which `Killed` covers.
            StoreFault::DiskFull | StoreFault::SlotMoved => return,
        }
        let broken = if is_kill {
            &mut self.dead
        } else if fault == StoreFault::Stopped {
            &mut self.stopped
        } else {
            &mut self.configured
        };
        broken.insert(target);
        self.wait_for_failover(cluster, target).await;
    }

    /// Heals all faults. Returns when the store keeps its promises again.
    pub(super) async fn heal(&mut self, cluster: &mut Cluster) {
        if self.kind == StoreKind::Embedded {
            cluster.disk(0).fill(false);
            if !self.dead.is_empty() {
                cluster.restart(0).await;
                self.dead.clear();
            }
            return;
        }
        let is_broken =
            [&self.dead, &self.stopped, &self.configured].iter().any(|it| !it.is_empty());
        for index in std::mem::take(&mut self.stopped).difference(&self.dead) {
            server(&mut cluster.redis, &mut self.others, *index).cont().await;
        }
        // The primary comes first: a replica that comes back alone could be promoted instead, without
        // what the primary has.
        let primaries = self.primaries(cluster).await;
        let mut dead: Vec<usize> = std::mem::take(&mut self.dead).into_iter().collect();
        dead.sort_by_key(|index| !primaries.contains(index));
        for index in dead {
            self.configured.remove(&index);
            server(&mut cluster.redis, &mut self.others, index).restart().await;
        }
        for index in std::mem::take(&mut self.configured) {
            let server = server(&mut cluster.redis, &mut self.others, index);
            server.refuse_writes(false).await;
            server.fill(false).await;
        }
        match self.kind {
            StoreKind::Pair if is_broken => self.reunite(cluster).await,
            StoreKind::Three | StoreKind::Replicated => {
                redis_cluster::wait_until_whole(&all(&cluster.redis, &self.others)).await;
            }
            StoreKind::One | StoreKind::Pair | StoreKind::Embedded => {}
        }
    }

    async fn begin_embedded(&mut self, cluster: &mut Cluster, fault: StoreFault) {
        match fault {
            StoreFault::DiskFull => cluster.disk(0).fill(true),
            StoreFault::PowerLost => {
                cluster.kill(0).await;
                let random = &mut self.random;
                let keep = |count: usize| random.below(count as u64 + 1) as usize;
                cluster.disk(0).lose_unsynced(keep);
                self.dead.insert(0);
            }
            StoreFault::SlotMoved
            | StoreFault::RefusesWrites
            | StoreFault::Full
            | StoreFault::ReplicaKilled
            | StoreFault::Killed
            | StoreFault::Stopped => {}
        }
    }

    /// The server that the fault breaks.
    async fn target(&mut self, cluster: &Cluster, fault: StoreFault) -> usize {
        let primaries = self.primaries(cluster).await;
        let target = match self.kind {
            StoreKind::Three => (self.last + 1) % 3,
            StoreKind::Pair | StoreKind::Replicated => {
                let there = primaries.iter().filter(|index| !self.is_lost(**index));
                let there: Vec<usize> = there.copied().collect();
                let choice = if there.is_empty() { &primaries } else { &there };
                // Below the number of primaries, which fits.
                let primary = choice[self.random.below(choice.len() as u64) as usize];
                let is_of_replica = fault == StoreFault::ReplicaKilled;
                if is_of_replica { self.partner(primary) } else { primary }
            }
            StoreKind::One | StoreKind::Embedded => 0,
        };
        self.last = target;
        target
    }

    /// After the loss of a primary: waits until its replica is the primary, if that can take over.
    async fn wait_for_failover(&self, cluster: &Cluster, lost: usize) {
        let partner = self.partner(lost);
        if !self.kind.fails_over() || !self.is_lost(lost) || self.is_lost(partner) {
            return;
        }
        let primaries = self.primaries(cluster).await;
        // Most primaries of a cluster must be there to elect another.
        let lost_count = primaries.iter().filter(|index| self.is_lost(**index)).count();
        let can_elect = self.kind == StoreKind::Pair || 2 * lost_count < primaries.len();
        if can_elect && primaries.contains(&lost) {
            poll("a replica to take over", async || {
                self.primaries(cluster).await.contains(&partner).then_some(())
            })
            .await;
        }
    }

    fn is_lost(&self, index: usize) -> bool {
        self.dead.contains(&index) || self.stopped.contains(&index)
    }

    /// The other server of a primary and its replica.
    fn partner(&self, index: usize) -> usize {
        let count = self.others.len() + 1;
        (index + count / 2) % count
    }

    /// Makes a pair of the two servers again: the one that the sentinel names, and its replica.
    async fn reunite(&mut self, cluster: &mut Cluster) {
        poll("the primary to be one", async || {
            let servers = all(&cluster.redis, &self.others);
            let primary = *self.primaries(cluster).await.first()?;
            let (one, other) = (servers[primary], servers[self.partner(primary)]);
            let info: String = one.try_ask(&["INFO", "replication"]).await.ok()?;
            if !info.contains("role:master") {
                return None;
            }
            let (host, port) = host_and_port(one);
            other.try_ask::<()>(&["REPLICAOF", host, port]).await.ok()?;
            let info: String = other.try_ask(&["INFO", "replication"]).await.ok()?;
            info.contains("master_link_status:up").then_some(())
        })
        .await;
    }

    /// The primaries that have replicas, as the sentinel or a server that lives names them; none over
    /// other stores.
    async fn primaries(&self, cluster: &Cluster) -> Vec<usize> {
        let servers = all(&cluster.redis, &self.others);
        if let Some(sentinel) = &self.sentinel {
            let named = async || named_primary(sentinel).await;
            let address = poll("the sentinel to name a primary", named).await;
            return vec![usize::from(address != servers[0].address())];
        }
        if self.kind != StoreKind::Replicated {
            return Vec::new();
        }
        let witness = (0..servers.len()).find(|index| !self.is_lost(*index));
        let witness = witness.expect("an episode has fewer faults than there are servers");
        let ports = redis_cluster::primaries(servers[witness]).await;
        let is_primary =
            |index: &usize| ports.iter().any(|port| *port == host_and_port(servers[*index]).1);
        (0..servers.len()).filter(is_primary).collect()
    }
}

/// All servers, in the order of their numbers.
fn all<'a>(first: &'a Redis, others: &'a [Redis]) -> Vec<&'a Redis> {
    std::iter::once(first).chain(others).collect()
}

fn server<'a>(first: &'a mut Redis, others: &'a mut [Redis], index: usize) -> &'a mut Redis {
    match index {
        0 => first,
        _ => &mut others[index - 1],
    }
}

async fn named_primary(sentinel: &Server) -> Option<String> {
    let ask = ["SENTINEL", "get-master-addr-by-name", "main"];
    let address: Vec<String> = sentinel.ask(&ask).await.ok()?;
    Some(address.join(":"))
}

async fn pair() -> (Redis, Vec<Redis>, Option<Server>) {
    let no_delay = ["--repl-diskless-sync-delay", "0"];
    let first = Redis::process_on_disk(&no_delay).await;
    let other = Redis::process_on_disk(&no_delay).await;
    let (host, port) = host_and_port(&first);
    other.ask::<()>(&["REPLICAOF", host, port]).await;
    first.wait_for_replica().await;
    let sentinel = Server::sentinel(first.address()).await;
    (first, vec![other], Some(sentinel))
}

async fn cluster(has_replicas: bool) -> (Redis, Vec<Redis>, Option<Server>) {
    let mut servers = redis_cluster::start(has_replicas).await;
    let first = servers.remove(0);
    (first, servers, None)
}
