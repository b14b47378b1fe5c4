//! Causes and heals the faults of the schedule.

use reqwest::Method;
use tokio::time::Instant;

use super::client_proxies::{ClientProxies, cut};
use super::fault_log::FaultLog;
use super::redis_setup::RedisSetup;
use super::schedule::{Between, Episode, Fault, NODES, RedisFault};
use crate::cluster::Cluster;
use crate::deadline::{poll, try_poll};
use crate::proxy::Proxy;

/// Everything that can be broken.
pub(super) struct Faults<'a> {
    pub(super) cluster: &'a mut Cluster,
    pub(super) redis_setup: RedisSetup,
    pub(super) client_proxies: ClientProxies,
    pub(super) fault_log: FaultLog,
}

impl Faults<'_> {
    /// Causes all faults of an episode, waits for its duration, and heals them.
    ///
    /// # Errors
    /// A node that exited by itself.
    pub(super) async fn play(&mut self, episode: &Episode) -> Result<(), String> {
        let began = Instant::now();
        for fault in &episode.faults {
            self.begin(*fault).await;
        }
        tokio::time::sleep(episode.duration).await;
        // Redis and the links are healed first: nodes need them to start.
        let mut faults = episode.faults.clone();
        faults.sort_by_key(|fault| match fault {
            Fault::Store(_) => 0,
            Fault::Link(..) => 1,
            _ => 2,
        });
        for fault in faults {
            self.end(fault).await;
        }
        self.fault_log.record_duration(began.elapsed());
        match self.cluster.exited_nodes().as_slice() {
            [] => Ok(()),
            ended => Err(format!("{}\n{}", ended.join(", "), self.fault_log.lines())),
        }
    }

    /// Waits until every node sees all nodes up again.
    ///
    /// # Errors
    ///
    /// A node that does not see all nodes up, although nothing is broken any more.
    pub(super) async fn wait_until_all_up(&self) -> Result<(), String> {
        for (index, client) in self.cluster.clients().enumerate() {
            let all_up = try_poll(async || {
                let answer = client.try_admin(Method::GET, "/admin/nodes").await?;
                let nodes = answer.body["nodes"].as_array()?.clone();
                let up = nodes.iter().filter(|node| node["state"] == "up").count();
                (up as u64 == NODES && nodes.len() == up).then_some(())
            });
            if all_up.await.is_none() {
                let name = self.cluster.name(index);
                return Err(format!(
                    "{name} does not see all nodes up\n{}",
                    self.fault_log.lines()
                ));
            }
        }
        Ok(())
    }

    async fn begin(&mut self, fault: Fault) {
        self.fault_log.record(&format!("causing {fault:?}"));
        self.fault_log.count(kind(fault));
        match fault {
            Fault::Kill(node) => self.cluster.kill(node).await,
            Fault::KillAll => {
                for node in 0..NODES as usize {
                    self.cluster.kill(node).await;
                }
            }
            Fault::Stop(node) => self.cluster.stop(node).await,
            Fault::Terminate(node) => self.cluster.terminate(node).await,
            Fault::Drain(node) => self.drain(node).await,
            Fault::Link(between, link_fault) => cut(self.link(between), link_fault).await,
            Fault::Store(redis_fault) => self.redis_setup.begin(self.cluster, redis_fault).await,
        }
        self.fault_log.record(&format!("caused {fault:?}"));
    }

    async fn end(&mut self, fault: Fault) {
        match fault {
            Fault::Kill(node) | Fault::Terminate(node) | Fault::Drain(node) => {
                self.restart(node).await;
            }
            Fault::KillAll => {
                for node in 0..NODES as usize {
                    self.restart(node).await;
                }
            }
            Fault::Stop(node) => self.cluster.cont(node),
            Fault::Link(between, _) => self.link(between).heal().await,
            Fault::Store(redis_fault) => self.redis_setup.end(self.cluster, redis_fault).await,
        }
        self.fault_log.record(&format!("healed {fault:?}"));
    }

    async fn restart(&mut self, node: usize) {
        self.cluster.restart(node).await;
        self.client_proxies.follow(self.cluster, node);
    }

    /// Drains a node through another one, and terminates it once it reports that it has drained.
    async fn drain(&mut self, node: usize) {
        let name = self.cluster.name(node).to_owned();
        let other = self.cluster.client(self.cluster.other(node));
        let path = format!("/admin/nodes/{name}/drain");
        poll("the drain to be accepted", async || {
            let answer = other.try_admin(Method::POST, &path).await?;
            (answer.status == 202).then_some(())
        })
        .await;
        poll("the node to be drained", async || {
            let answer = other.try_admin(Method::GET, "/admin/nodes").await?;
            let nodes = answer.body["nodes"].as_array()?.clone();
            nodes.iter().any(|it| it["name"] == name && it["state"] == "drained").then_some(())
        })
        .await;
        self.cluster.terminate(node).await;
    }

    fn link(&self, between: Between) -> &Proxy {
        match between {
            Between::Redis(node) => self.cluster.to_redis(node),
            Between::Peers(node) => self.cluster.to_node(node),
            Between::Clients(node) => self.client_proxies.of(node),
        }
    }
}

/// The name of a fault's kind, for the summary.
fn kind(fault: Fault) -> &'static str {
    match fault {
        Fault::Kill(_) => "SIGKILL",
        Fault::KillAll => "SIGKILL of all",
        Fault::Stop(_) => "SIGSTOP",
        Fault::Terminate(_) => "SIGTERM",
        Fault::Drain(_) => "drain",
        Fault::Link(Between::Redis(_), _) => "broken link to Redis",
        Fault::Link(Between::Peers(_), _) => "broken link to peers",
        Fault::Link(Between::Clients(_), _) => "broken link to clients",
        Fault::Store(RedisFault::Killed) => "Redis killed",
        Fault::Store(RedisFault::ReplicaKilled) => "replica killed",
        Fault::Store(_) => "Redis stopped or full",
    }
}
