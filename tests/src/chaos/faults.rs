//! Causes and heals the faults of the schedule.

use std::path::PathBuf;
use std::sync::Arc;

use reqwest::Method;
use tokio::time::Instant;

use super::client_proxies::{ClientProxies, cut};
use super::fault::{Between, ClockJump, Fault};
use super::fault_log::FaultLog;
use super::schedule::Episode;
use super::store_setup::StoreSetup;
use super::worker::RunContext;
use crate::cluster::Cluster;
use crate::deadline::{poll, try_poll};
use crate::proxy::Proxy;
use crate::signal::Starvation;

/// Everything that can be broken.
pub(super) struct Faults<'a> {
    pub(super) cluster: &'a mut Cluster,
    pub(super) store_setup: StoreSetup,
    pub(super) client_proxies: ClientProxies,
    pub(super) context: Arc<RunContext>,
    /// The build that nodes are replaced by next, and the one after it.
    pub(super) programs: [PathBuf; 2],
    /// The nodes that were killed as holders.
    pub(super) killed_holders: Vec<usize>,
    pub(super) starved: Vec<Starvation>,
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
        // The store and the links are healed first: nodes need them to start.
        if episode.faults.iter().any(|fault| matches!(fault, Fault::Store(_))) {
            self.store_setup.heal(self.cluster).await;
            self.follow_all();
            self.fault_log().record("healed the store");
        }
        let mut faults = episode.faults.clone();
        faults.sort_by_key(|fault| !matches!(fault, Fault::Link(..)));
        for fault in faults {
            self.end(fault).await;
        }
        self.fault_log().record_duration(began.elapsed());
        match self.cluster.exited_nodes().as_slice() {
            [] => Ok(()),
            ended => Err(format!("{}\n{}", ended.join(", "), self.fault_log().lines())),
        }
    }

    /// Waits until every node sees all nodes up again.
    ///
    /// # Errors
    ///
    /// A node that does not see all nodes up, although nothing is broken any more.
    pub(super) async fn wait_until_all_up(&self) -> Result<(), String> {
        let count = self.cluster.clients().count();
        for (index, client) in self.cluster.clients().enumerate() {
            let all_up = try_poll(async || {
                let answer = client.try_admin(Method::GET, "/admin/nodes").await?;
                let nodes = answer.body["nodes"].as_array()?.clone();
                let up = nodes.iter().filter(|node| node["state"] == "up").count();
                (up == count && nodes.len() == up).then_some(())
            });
            if all_up.await.is_none() {
                let name = self.cluster.name(index);
                return Err(format!(
                    "{name} does not see all nodes up\n{}",
                    self.fault_log().lines()
                ));
            }
        }
        Ok(())
    }

    fn fault_log(&self) -> &FaultLog {
        &self.context.fault_log
    }

    async fn begin(&mut self, fault: Fault) {
        self.fault_log().record(&format!("causing {fault:?}"));
        self.fault_log().count(fault.kind());
        match fault {
            Fault::Kill(node) => self.cluster.kill(node).await,
            Fault::KillAll => {
                for node in 0..self.cluster.clients().count() {
                    self.cluster.kill(node).await;
                }
            }
            Fault::KillHolder => self.kill_holder().await,
            Fault::Stop(node) => self.cluster.stop(node).await,
            Fault::Starve(node) => self.starved.push(self.cluster.starve(node)),
            Fault::Terminate(node) | Fault::Swap(node) => self.cluster.terminate(node).await,
            Fault::Drain(node) => self.drain(node).await,
            Fault::ClockJump(node, jump) => self.cluster.clock(node).set(match jump {
                ClockJump::Ahead => "+1h",
                ClockJump::Back => "-1h",
            }),
            Fault::Link(between, link_fault) => cut(self.link(between), link_fault).await,
            Fault::Store(store_fault) => self.store_setup.begin(self.cluster, store_fault).await,
        }
        self.fault_log().record(&format!("caused {fault:?}"));
    }

    async fn end(&mut self, fault: Fault) {
        match fault {
            Fault::Kill(node) | Fault::Terminate(node) | Fault::Drain(node) => {
                self.restart(node).await;
            }
            Fault::Swap(node) => {
                self.cluster.set_program(node, &self.programs[0]);
                self.programs.swap(0, 1);
                self.restart(node).await;
            }
            Fault::KillAll => {
                for node in 0..self.cluster.clients().count() {
                    self.restart(node).await;
                }
            }
            Fault::KillHolder => {
                for node in std::mem::take(&mut self.killed_holders) {
                    self.restart(node).await;
                }
            }
            Fault::Stop(node) => self.cluster.cont(node),
            Fault::Starve(_) => {
                for starvation in std::mem::take(&mut self.starved) {
                    starvation.end().await;
                }
            }
            Fault::ClockJump(node, _) => self.cluster.clock(node).set("+0"),
            Fault::Link(between, _) => self.link(between).heal().await,
            // The whole store is healed at once.
            Fault::Store(_) => return,
        }
        self.fault_log().record(&format!("healed {fault:?}"));
    }

    async fn restart(&mut self, node: usize) {
        self.cluster.restart(node).await;
        self.client_proxies.follow(self.cluster, node);
    }

    fn follow_all(&self) {
        for node in 0..self.cluster.clients().count() {
            self.client_proxies.follow(self.cluster, node);
        }
    }

    /// Kills the node that holds some conversation, as a tool does that takes its node with it.
    async fn kill_holder(&mut self) {
        if let Some(holder) = self.context.some_holder().await {
            let mut nodes = 0..self.cluster.clients().count();
            let node = nodes.find(|node| self.cluster.name(*node) == holder);
            if let Some(node) = node {
                self.cluster.kill(node).await;
                self.killed_holders.push(node);
            }
        }
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
