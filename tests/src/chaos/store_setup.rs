//! The store of a run: one Redis, a pair that fails over, a cluster of three primaries, or a node's
//! own files.

use std::collections::BTreeSet;

use clap::ValueEnum;

use super::fault::StoreFault;
use super::slot_move;
use crate::cluster::{Cluster, Plan};
use crate::deadline::poll;
use crate::random::SeededRandom;
use crate::redis::servers::Server;
use crate::redis::{Redis, free_port};

/// The first slot of each primary, and the one after the last.
const SLOTS: [u16; 4] = [0, 5_461, 10_923, 16_384];

/// The kind of a run's store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StoreKind {
    /// One Redis that syncs every write to its disk.
    One,
    /// A primary, a replica, and a sentinel that fails over.
    Pair,
    /// Three primaries that share the keys.
    Three,
    /// One node with an embedded store.
    Embedded,
}

impl StoreKind {
    /// The kind for a seed: two of six seeds have one server.
    pub(super) fn for_seed(seed: u64) -> Self {
        match seed % 6 {
            0 | 1 => Self::One,
            2 | 3 => Self::Pair,
            4 => Self::Three,
            _ => Self::Embedded,
        }
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
            StoreKind::Three => three().await,
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
            let all: Vec<&Redis> = std::iter::once(&cluster.redis).chain(&self.others).collect();
            return slot_move::move_a_slot(&all, &mut self.random).await;
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
        let primary = self.primary(cluster).await;
        let mut dead: Vec<usize> = std::mem::take(&mut self.dead).into_iter().collect();
        dead.sort_by_key(|index| Some(*index) != primary);
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
            StoreKind::Three => {
                let servers = self.others.iter().chain([&cluster.redis]);
                wait_until_all_slots_served(servers).await;
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
        let target = match (self.kind, self.primary(cluster).await) {
            (StoreKind::Pair, Some(primary)) if fault == StoreFault::ReplicaKilled => 1 - primary,
            (_, Some(primary)) => primary,
            (StoreKind::Three, None) => (self.last + 1) % 3,
            (_, None) => 0,
        };
        self.last = target;
        target
    }

    /// After the loss of a primary: waits until the sentinel names the other server, if that can take
    /// over.
    async fn wait_for_failover(&self, cluster: &Cluster, lost: usize) {
        let is_lost = |index| self.dead.contains(&index) || self.stopped.contains(&index);
        if self.kind != StoreKind::Pair
            || self.primary(cluster).await != Some(lost)
            || !is_lost(lost)
            || is_lost(1 - lost)
        {
            return;
        }
        poll("the sentinel to name another primary", async || {
            (self.primary(cluster).await? != lost).then_some(())
        })
        .await;
    }

    /// Makes a pair of the two servers again: the one that the sentinel names, and its replica.
    async fn reunite(&mut self, cluster: &mut Cluster) {
        poll("the primary to be one", async || {
            let primary = self.primary(cluster).await?;
            let (one, other) = match primary {
                0 => (&cluster.redis, &self.others[0]),
                _ => (&self.others[0], &cluster.redis),
            };
            let info: String = one.try_ask(&["INFO", "replication"]).await.ok()?;
            if !info.contains("role:master") {
                return None;
            }
            let (host, port) = one.address().rsplit_once(':')?;
            other.try_ask::<()>(&["REPLICAOF", host, port]).await.ok()?;
            let info: String = other.try_ask(&["INFO", "replication"]).await.ok()?;
            info.contains("master_link_status:up").then_some(())
        })
        .await;
    }

    /// The primary that the sentinel names; `None` without a sentinel.
    async fn primary(&self, cluster: &Cluster) -> Option<usize> {
        let sentinel = self.sentinel.as_ref()?;
        let address =
            poll("the sentinel to name a primary", async || named_primary(sentinel).await).await;
        Some(usize::from(address != cluster.redis.address()))
    }
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
    if let Some((host, port)) = first.address().rsplit_once(':') {
        other.ask::<()>(&["REPLICAOF", host, port]).await;
        first.wait_for_replica().await;
    }
    let sentinel = Server::sentinel(first.address()).await;
    (first, vec![other], Some(sentinel))
}

async fn three() -> (Redis, Vec<Redis>, Option<Server>) {
    let mut servers = Vec::new();
    for index in 0..3 {
        let bus = free_port().to_string();
        let flags = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"];
        // The slots of a dead primary are unavailable; the others are served.
        let more = ["--cluster-require-full-coverage", "no", "--cluster-port", &bus];
        let server = Redis::process_on_disk(&[&flags[..], &more].concat()).await;
        let (first, last) = (SLOTS[index].to_string(), (SLOTS[index + 1] - 1).to_string());
        server.ask::<()>(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]).await;
        let epoch = (index + 1).to_string();
        server.ask::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]).await;
        servers.push((server, bus));
    }
    let (first, bus) = servers.remove(0);
    for (server, _) in &servers {
        let port = first.address().rsplit(':').next().unwrap_or_default();
        server.ask::<()>(&["CLUSTER", "MEET", "127.0.0.1", port, &bus]).await;
    }
    wait_until_all_slots_served(servers.iter().map(|(server, _)| server).chain([&first])).await;
    (first, servers.into_iter().map(|(server, _)| server).collect(), None)
}

/// Waits until each server sees all slots served by three primaries: a node that starts earlier exits
/// at once, as it does without a Redis.
async fn wait_until_all_slots_served(servers: impl Iterator<Item = &Redis>) {
    for server in servers {
        poll("all slots to be served", async || {
            let info: String = server.try_ask(&["CLUSTER", "INFO"]).await.ok()?;
            let expected = [
                "cluster_state:ok",
                "cluster_slots_ok:16384",
                "cluster_known_nodes:3",
                "cluster_size:3",
            ];
            expected.iter().all(|line| info.contains(line)).then_some(())
        })
        .await;
    }
}
