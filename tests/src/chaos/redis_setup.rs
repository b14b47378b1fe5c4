//! The Redis under the nodes: one, a primary pair that fails over, or a cluster of three.

use clap::ValueEnum;

use super::schedule::RedisFault;
use crate::cluster::{Cluster, Plan};
use crate::deadline::poll;
use crate::redis::servers::Server;
use crate::redis::{Redis, free_port};

/// The first slot of each primary, and the one after the last.
const SLOTS: [u16; 4] = [0, 5_461, 10_923, 16_384];

/// What a run's Redis is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RedisKind {
    /// One server that writes everything to its disk.
    One,
    /// A primary and a replica, and a sentinel that fails over.
    Pair,
    /// Three primaries that share the keys.
    Three,
}

impl RedisKind {
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
pub(super) enum RedisSetup {
    One,
    Pair { other: Box<Redis>, sentinel: Server },
    Three { others: Vec<Redis>, next: usize },
}

impl RedisSetup {
    /// The servers, the first of them apart.
    pub(super) async fn start(kind: RedisKind) -> (Self, Redis) {
        match kind {
            RedisKind::One => (Self::One, Redis::process().await),
            RedisKind::Pair => pair().await,
            RedisKind::Three => three().await,
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

    /// Breaks it; returns when it is target.
    pub(super) async fn begin(&mut self, cluster: &mut Cluster, redis_fault: RedisFault) {
        let primary = self.primary().await;
        let first = &mut cluster.redis;
        let target: &mut Redis = match self {
            Self::One => first,
            Self::Pair { other, .. } => {
                let is_first = primary.as_deref() == Some(first.address());
                match is_first == (redis_fault == RedisFault::ReplicaKilled) {
                    true => other,
                    false => first,
                }
            }
            Self::Three { others, next } => {
                *next = (*next + 1) % 3;
                others.get_mut(*next).unwrap_or(first)
            }
        };
        match redis_fault {
            RedisFault::Killed | RedisFault::ReplicaKilled => target.kill().await,
            RedisFault::Stopped => target.stop().await,
            RedisFault::RefusesWrites => target.refuse_writes(true).await,
            RedisFault::Full => target.fill(true).await,
        }
        if let (Self::Pair { sentinel, .. }, RedisFault::Killed) = (&*self, redis_fault) {
            poll("the sentinel to name another primary", async || {
                (named_primary(sentinel).await? != primary.clone()?).then_some(())
            })
            .await;
        }
    }

    /// Heals it; returns when it keeps its promises again.
    pub(super) async fn end(&mut self, cluster: &mut Cluster, redis_fault: RedisFault) {
        let primary = self.primary().await;
        let first = &mut cluster.redis;
        let target: &mut Redis = match self {
            Self::One => first,
            Self::Pair { other, .. } => match primary.as_deref() == Some(first.address()) {
                true => other,
                false => first,
            },
            Self::Three { others, next } => others.get_mut(*next).unwrap_or(first),
        };
        match redis_fault {
            RedisFault::Killed | RedisFault::ReplicaKilled => target.restart().await,
            RedisFault::Stopped => target.cont().await,
            RedisFault::RefusesWrites => target.refuse_writes(false).await,
            RedisFault::Full => target.fill(false).await,
        }
        if let Some((host, port)) = primary.as_deref().and_then(|it| it.rsplit_once(':')) {
            follow(target, host, port).await;
        }
        if let Self::Three { others, .. } = self {
            whole(others.iter().chain([&cluster.redis])).await;
        }
    }

    /// The primary that a sentinel names; `None` without one.
    async fn primary(&self) -> Option<String> {
        let Self::Pair { sentinel, .. } = self else { return None };
        Some(poll("the sentinel to name a primary", async || named_primary(sentinel).await).await)
    }
}

async fn named_primary(sentinel: &Server) -> Option<String> {
    let ask = ["SENTINEL", "get-master-addr-by-name", "main"];
    let address: Vec<String> = sentinel.ask(&ask).await.ok()?;
    Some(address.join(":"))
}

/// Makes it a replica, and waits until it has everything.
async fn follow(redis: &Redis, host: &str, port: &str) {
    redis.ask::<()>(&["REPLICAOF", host, port]).await;
    poll("the replica to be in step", async || {
        let info: String = redis.try_ask(&["INFO", "replication"]).await.ok()?;
        info.contains("master_link_status:up").then_some(())
    })
    .await;
}

async fn pair() -> (RedisSetup, Redis) {
    let soon = ["--repl-diskless-sync-delay", "0"];
    let (first, other) = (Redis::process_with(&soon).await, Redis::process_with(&soon).await);
    if let Some((host, port)) = first.address().rsplit_once(':') {
        follow(&other, host, port).await;
    }
    let sentinel = Server::sentinel(first.address()).await;
    (RedisSetup::Pair { other: Box::new(other), sentinel }, first)
}

async fn three() -> (RedisSetup, Redis) {
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
    (RedisSetup::Three { others, next: 0 }, first)
}

/// Waits until each of them knows all slots to be served: a node that starts earlier ends at once,
/// as it does without any Redis.
async fn whole(servers: impl Iterator<Item = &Redis>) {
    for server in servers {
        poll("the cluster to be whole", async || {
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
