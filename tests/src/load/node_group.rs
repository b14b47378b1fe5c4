//! A group of nodes over one Redis.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::client::Client;
use super::comparison::Contender;
use super::node::{Node, Start};
use super::redis::Redis;
use super::{Load, LoadError, agent, idle_conversations, load_error};

/// For how long idle nodes are measured.
const IDLE_WATCH_TIME: Duration = Duration::from_secs(10);
/// How long nodes may take to connect to each other: several heartbeats.
const LINK_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A Redis and its nodes. Dropping the value kills all of them.
pub(super) struct NodeGroup {
    pub(super) redis: Redis,
    pub(super) nodes: Vec<Node>,
    dir: PathBuf,
    /// The nodes' `--passivate-after`.
    passivate: &'static str,
    /// The collector of the nodes' traces, if they export them.
    otlp: Option<String>,
}

/// What a second without load takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Idle {
    /// The processor time of all nodes.
    pub(super) nodes: Duration,
    /// The processor time of Redis.
    pub(super) redis: Duration,
    pub(super) redis_commands: f64,
}

impl NodeGroup {
    /// Starts `load.nodes` nodes, or one.
    pub(super) async fn start(
        load: &Load,
        dir: &Path,
        passivate: &'static str,
        otlp: Option<String>,
    ) -> Result<Self, LoadError> {
        let mut group = Self::empty(load, dir, passivate, otlp).await?;
        for _ in 0..load.nodes.unwrap_or(1) {
            group.add(load).await?;
        }
        Ok(group)
    }

    /// Starts one bare node.
    pub(super) async fn bare(load: &Load, dir: &Path) -> Result<Self, LoadError> {
        let mut group = Self::empty(load, dir, idle_conversations::PASSIVATE_AFTER, None).await?;
        group.nodes.push(Node::start_bare(load, &group.redis.url).await?);
        Ok(group)
    }

    async fn empty(
        load: &Load,
        dir: &Path,
        passivate: &'static str,
        otlp: Option<String>,
    ) -> Result<Self, LoadError> {
        std::fs::create_dir_all(dir).map_err(|error| load_error("a directory", error))?;
        let redis = Redis::start(load.durability, dir).await?;
        Ok(Self { redis, nodes: Vec::new(), dir: dir.to_owned(), passivate, otlp })
    }

    /// Starts one more node.
    pub(super) async fn add(&mut self, load: &Load) -> Result<(), LoadError> {
        self.nodes.push(self.node(load, self.nodes.len()).await?);
        Ok(())
    }

    /// Sends SIGKILL to a node. Returns when it is gone.
    pub(super) async fn kill(&mut self, n: usize) -> Result<Instant, LoadError> {
        self.nodes.remove(n).kill().await?;
        Ok(Instant::now())
    }

    /// Starts the node that was at this index.
    pub(super) async fn restart(&mut self, load: &Load, n: usize) -> Result<(), LoadError> {
        self.nodes.insert(n, self.node(load, n).await?);
        Ok(())
    }

    /// Drains a node, and starts it again.
    pub(super) async fn replace(&mut self, load: &Load, n: usize) -> Result<(), LoadError> {
        self.nodes.remove(n).stop().await?;
        self.restart(load, n).await
    }

    async fn node(&self, load: &Load, n: usize) -> Result<Node, LoadError> {
        let start = Start {
            store: &self.redis.url,
            passivate: self.passivate,
            dir: &self.dir,
            name: &format!("load-{}", n + 1),
            otlp: self.otlp.as_deref(),
        };
        Node::start_as(load, &start).await
    }

    /// Defines the agent under load.
    pub(super) async fn define(&self) -> Result<(), LoadError> {
        let [first, ..] = &*self.nodes else {
            return Err(LoadError("there is no node".to_owned()));
        };
        agent::define(&mut Client::new(first.public)).await
    }

    /// Waits until no actor is live and Redis does no background work.
    pub(super) async fn wait_until_quiet(&self) -> Result<(), LoadError> {
        Contender::from(self).wait_until_quiet().await
    }

    /// Waits until each node is connected to all others: only then does it notice a death at once.
    pub(super) async fn wait_until_connected(&self) -> Result<(), LoadError> {
        let others = self.nodes.len().saturating_sub(1) as u64;
        let linked = async {
            for node in &self.nodes {
                while node.counters().await?.peers < others {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
            }
            Ok(())
        };
        let linked = tokio::time::timeout(LINK_TIMEOUT, linked).await;
        linked.map_err(|_| {
            LoadError(format!("the nodes were not connected after {LINK_TIMEOUT:?}"))
        })?
    }

    /// The nodes' total resident memory.
    pub(super) fn resident_kb(&self) -> Result<u64, LoadError> {
        self.nodes.iter().map(Node::resident_kb).sum()
    }

    /// Measures the processor time while there is no load.
    pub(super) async fn idle(&self) -> Result<Idle, LoadError> {
        let nodes = || self.nodes.iter().map(Node::cpu_time).sum::<Option<Duration>>();
        let (before, redis) = (nodes(), self.redis.info().await?.usage);
        tokio::time::sleep(IDLE_WATCH_TIME).await;
        let cpu_time = before.zip(nodes()).map(|(before, after)| after.saturating_sub(before));
        let cpu_time = cpu_time.ok_or_else(|| LoadError("the nodes' processor time".to_owned()))?;
        let redis = self.redis.info().await?.usage.since(redis);
        let seconds = IDLE_WATCH_TIME.as_secs_f64();
        Ok(Idle {
            nodes: cpu_time.div_f64(seconds),
            redis: redis.cpu_time.div_f64(seconds),
            redis_commands: redis.commands as f64 / seconds,
        })
    }

    /// Drains the nodes; each must exit with 0.
    pub(super) async fn stop(self) -> Result<Redis, LoadError> {
        for node in self.nodes {
            node.stop().await?;
        }
        Ok(self.redis)
    }
}
