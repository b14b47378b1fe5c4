//! The Redis of a run: one server, a pair that fails over, or a cluster of three primaries.

use clap::ValueEnum;

use super::schedule::RedisFault;
use crate::cluster::{Cluster, Plan};
use crate::deadline::poll;
use crate::redis::servers::Server;
use crate::redis::{Redis, free_port};

/// The first slot of each primary, and the one after the last.
const SLOTS: [u16; 4] = [0, 5_461, 10_923, 16_384];

/// The kind of a run's Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RedisKind {
    /// One server that syncs every write to its disk.
    One,
    /// A primary, a replica, and a sentinel that fails over.
    Pair,
    /// Three primaries that share the keys.
    Three,
}

impl RedisKind {
    /// The kind for a seed: half of all seeds have one server.
    pub(super) fn for_seed(seed: u64) -> Self {
        match seed % 4 {
            0 | 1 => Self::One,
            2 => Self::Pair,
            _ => Self::Three,
        }
    }
}

/// The servers in addition to the first one, which belongs to the cluster.
pub(super) enum RedisSetup {
    One,
    Pair { other: Box<Redis>, sentinel: Server },
    Three { others: Vec<Redis>, next: usize },
}

impl RedisSetup {
    /// Starts the servers. The first one is returned separately.
    pub(super) async fn start(kind: RedisKind) -> (Self, Redis) {
        match kind {
            RedisKind::One => (Self::One, Redis::process().await),
            RedisKind::Pair => pair().await,
            RedisKind::Three => three().await,
        }
    }

    /// Adds the flags of this store to a plan.
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

    /// Causes a fault. Returns when it has taken effect.
    pub(super) async fn begin(&mut self, cluster: &mut Cluster, redis_fault: RedisFault) {
        let primary = self.primary().await;
        let first = &mut cluster.redis;
        let target: &mut Redis = match self {
            Self::One => first,
            Self::Pair { other, .. } => {
                let is_first = primary.as_deref() == Some(first.address());
                if is_first == (redis_fault == RedisFault::ReplicaKilled) { other } else { first }
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

    /// Heals a fault. Returns when Redis keeps its promises again.
    pub(super) async fn end(&mut self, cluster: &mut Cluster, redis_fault: RedisFault) {
        let primary = self.primary().await;
        let first = &mut cluster.redis;
        let target: &mut Redis = match self {
            Self::One => first,
            Self::Pair { other, .. } => {
                if primary.as_deref() == Some(first.address()) {
                    other
                } else {
                    first
                }
            }
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
            wait_until_all_slots_served(others.iter().chain([&cluster.redis])).await;
        }
    }

    /// The primary that the sentinel names; `None` without a sentinel.
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

/// Makes the server a replica, and waits until it is in sync.
async fn follow(redis: &Redis, host: &str, port: &str) {
    redis.ask::<()>(&["REPLICAOF", host, port]).await;
    poll("the replica to be in sync", async || {
        let info: String = redis.try_ask(&["INFO", "replication"]).await.ok()?;
        info.contains("master_link_status:up").then_some(())
    })
    .await;
}

async fn pair() -> (RedisSetup, Redis) {
    let no_delay = ["--repl-diskless-sync-delay", "0"];
    let (first, other) =
        (Redis::process_with(&no_delay).await, Redis::process_with(&no_delay).await);
    if let Some((host, port)) = first.address().rsplit_once(':') {
        follow(&other, host, port).await;
    }
    let sentinel = Server::sentinel(first.address()).await;
    (RedisSetup::Pair { other: Box::new(other), sentinel }, first)
}

async fn three() -> (RedisSetup, Redis) {
    let mut servers = Vec::new();
    for index in 0..3 {
        let bus = free_port().to_string();
        let flags = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"];
        // The slots of a dead primary are unavailable; the others are served.
        let more = ["--cluster-require-full-coverage", "no", "--cluster-port", &bus];
        let server = Redis::process_with(&[&flags[..], &more].concat()).await;
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
    let others = servers.into_iter().map(|(server, _)| server).collect();
    (RedisSetup::Three { others, next: 0 }, first)
}

/// Waits until each server sees all slots served: a node that starts earlier exits at once, as it
/// does without a Redis.
async fn wait_until_all_slots_served(servers: impl Iterator<Item = &Redis>) {
    for server in servers {
        poll("all slots to be served", async || {
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
