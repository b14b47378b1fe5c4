//! The Redis under the nodes: one, a watched pair that fails over, or a cluster of three.

use clap::ValueEnum;

use super::schedule::Trouble;
use crate::cluster::{Cluster, Plan};
use crate::patience::look;
use crate::redis::servers::Server;
use crate::redis::{Redis, free_port};

/// The first slot of each primary, and the one after the last.
const SLOTS: [u16; 4] = [0, 5_461, 10_923, 16_384];

/// What a run's Redis is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// One server that writes everything to its disk.
    One,
    /// A primary and a replica, and a sentinel that fails over.
    Pair,
    /// Three primaries that share the keys.
    Three,
}

impl Kind {
    /// By the seed: half of all runs have one.
    pub(super) fn of(seed: u64) -> Self {
        match seed % 4 {
            0 | 1 => Self::One,
            2 => Self::Pair,
            _ => Self::Three,
        }
    }
}

/// The servers besides the first one, which is the cluster's own.
pub(super) enum Ground {
    One,
    Pair { other: Box<Redis>, sentinel: Server },
    Three { others: Vec<Redis>, next: usize },
}

impl Ground {
    /// The servers, the first of them apart.
    pub(super) async fn start(kind: Kind) -> (Self, Redis) {
        match kind {
            Kind::One => (Self::One, Redis::process().await),
            Kind::Pair => pair().await,
            Kind::Three => three().await,
        }
    }

    /// Over this store.
    pub(super) fn plan(&self, plan: Plan) -> Plan {
        match self {
            Self::One => plan,
            Self::Pair { sentinel, .. } => {
                let store = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port);
                plan.with_store(&store).with(&["--durability", "replicas=1"])
            }
            Self::Three { others, .. } => {
                plan.with_store(&format!("redis+cluster://{}", others[0].address()))
            }
        }
    }

    /// Breaks it; returns when it is broken.
    pub(super) async fn begin(&mut self, cluster: &mut Cluster, trouble: Trouble) {
        let watched = self.primary().await;
        let first = &mut cluster.redis;
        let broken: &mut Redis = match self {
            Self::One => first,
            Self::Pair { other, .. } => {
                let is_first = watched.as_deref() == Some(first.address());
                match is_first == (trouble == Trouble::ReplicaKilled) {
                    true => other,
                    false => first,
                }
            }
            Self::Three { others, next } => {
                *next = (*next + 1) % 3;
                others.get_mut(*next).unwrap_or(first)
            }
        };
        match trouble {
            Trouble::Killed | Trouble::ReplicaKilled => broken.kill().await,
            Trouble::Stopped => broken.stop().await,
            Trouble::RefusesWrites => broken.refuse_writes(true).await,
            Trouble::Full => broken.fill(true).await,
        }
        if let (Self::Pair { sentinel, .. }, Trouble::Killed) = (&*self, trouble) {
            look("the sentinel to name another primary", async || {
                (named(sentinel).await? != watched.clone()?).then_some(())
            })
            .await;
        }
    }

    /// Heals it; returns when it keeps its promises again.
    pub(super) async fn end(&mut self, cluster: &mut Cluster, trouble: Trouble) {
        let watched = self.primary().await;
        let first = &mut cluster.redis;
        let broken: &mut Redis = match self {
            Self::One => first,
            Self::Pair { other, .. } => match watched.as_deref() == Some(first.address()) {
                true => other,
                false => first,
            },
            Self::Three { others, next } => others.get_mut(*next).unwrap_or(first),
        };
        match trouble {
            Trouble::Killed | Trouble::ReplicaKilled => broken.restart().await,
            Trouble::Stopped => broken.cont().await,
            Trouble::RefusesWrites => broken.refuse_writes(false).await,
            Trouble::Full => broken.fill(false).await,
        }
        if let Some((host, port)) = watched.as_deref().and_then(|it| it.rsplit_once(':')) {
            follow(broken, host, port).await;
        }
        if let Self::Three { others, .. } = self {
            whole(others.iter().chain([&cluster.redis])).await;
        }
    }

    /// The primary that a sentinel names; `None` without one.
    async fn primary(&self) -> Option<String> {
        let Self::Pair { sentinel, .. } = self else { return None };
        Some(look("the sentinel to name a primary", async || named(sentinel).await).await)
    }
}

async fn named(sentinel: &Server) -> Option<String> {
    let ask = ["SENTINEL", "get-master-addr-by-name", "main"];
    let address: Vec<String> = sentinel.ask(&ask).await.ok()?;
    Some(address.join(":"))
}

/// Makes it a replica, and waits until it has everything.
async fn follow(redis: &Redis, host: &str, port: &str) {
    redis.ask::<()>(&["REPLICAOF", host, port]).await;
    look("the replica to be in step", async || {
        let info: String = redis.try_ask(&["INFO", "replication"]).await.ok()?;
        info.contains("master_link_status:up").then_some(())
    })
    .await;
}

async fn pair() -> (Ground, Redis) {
    let soon = ["--repl-diskless-sync-delay", "0"];
    let (first, other) = (Redis::process_with(&soon).await, Redis::process_with(&soon).await);
    if let Some((host, port)) = first.address().rsplit_once(':') {
        follow(&other, host, port).await;
    }
    let sentinel = Server::sentinel(first.address()).await;
    (Ground::Pair { other: Box::new(other), sentinel }, first)
}

async fn three() -> (Ground, Redis) {
    let mut servers = Vec::new();
    for place in 0..3 {
        let bus = free_port().to_string();
        let flags = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"];
        // Whatever a dead one had is away, and the rest is served.
        let more = ["--cluster-require-full-coverage", "no", "--cluster-port", &bus];
        let server = Redis::process_with(&[&flags[..], &more].concat()).await;
        let (first, last) = (SLOTS[place].to_string(), (SLOTS[place + 1] - 1).to_string());
        server.ask::<()>(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]).await;
        let epoch = (place + 1).to_string();
        server.ask::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]).await;
        servers.push((server, bus));
    }
    let (first, bus) = servers.remove(0);
    for (server, _) in &servers {
        let port = first.address().rsplit(':').next().unwrap_or_default();
        server.ask::<()>(&["CLUSTER", "MEET", "127.0.0.1", port, &bus]).await;
    }
    whole(servers.iter().map(|(server, _)| server).chain([&first])).await;
    let others = servers.into_iter().map(|(server, _)| server).collect();
    (Ground::Three { others, next: 0 }, first)
}

/// Waits until each of them knows all slots to be served: a node that starts earlier ends at once,
/// as it does without any Redis.
async fn whole(servers: impl Iterator<Item = &Redis>) {
    for server in servers {
        look("the cluster to be whole", async || {
            let info: String = server.try_ask(&["CLUSTER", "INFO"]).await.ok()?;
            let slots: Vec<redis::Value> = server.try_ask(&["CLUSTER", "SLOTS"]).await.ok()?;
            (info.contains("cluster_state:ok")
                && info.contains("cluster_slots_ok:16384")
                && slots.len() == 3)
                .then_some(())
        })
        .await;
    }
}
