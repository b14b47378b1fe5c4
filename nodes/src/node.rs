//! A node that serves: its addresses, its drain, and its end.

mod assemble;
mod builder;
mod builtin_tools;
mod listeners;
mod protected_ports;
mod shared;
mod stores;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use abide_actors::identity::NodeName;
use abide_actors::tools::Extensions;
use abide_registry::membership::MemberState;
use abide_registry::runtime::NodeRuntime;
use abide_registry::store::embedded::{CloseWatch, FailureWatch};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::access::AccessControl;
use crate::config::{AdminAddress, Config};
use crate::start_error::StartError;
pub use builder::NodeBuilder;
pub(crate) use stores::{open_store, open_store_to_read};

/// How long the store may still be in use once the node has stopped.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A node that serves, in this process.
///
/// Dropped without [`stop`](Self::stop), it ends like a node that crashed: nothing acknowledged is
/// lost, but other nodes wait for its lease before they take its conversations over.
pub struct Node {
    /// Where the public API listens.
    pub public: SocketAddr,
    /// Where the operators' API listens.
    pub admin: AdminAddress,
    /// Where other nodes connect; `None` when there is no cluster.
    pub cluster: Option<SocketAddr>,
    /// The node's name in the cluster.
    pub name: NodeName,
    stop: watch::Sender<bool>,
    servers: Vec<JoinHandle<()>>,
    runtime: NodeRuntime,
    extensions: Arc<Extensions>,
    background: Vec<AbortOnDropHandle<()>>,
    access: AccessControl,
    /// Ends the streams of turns when it is dropped.
    departing: AbortOnDropHandle<()>,
    close_watch: Option<CloseWatch>,
    failure_watch: Option<FailureWatch>,
}

/// Makes a node read the file of `--auth` again. The node does so by itself soon after the file has
/// changed; one with a mistake does not replace the one before.
#[derive(Clone)]
pub struct AuthReloader(AccessControl);

impl AuthReloader {
    /// Has the file read now.
    pub fn reload(&self) {
        self.0.reload();
    }
}

impl Node {
    /// A node to be started with this configuration.
    pub fn builder(config: Config) -> NodeBuilder {
        NodeBuilder::new(config)
    }

    /// Watches the node: drains it whenever an operator asks for that, for at most `drain_timeout`, and
    /// goes on serving; a drained node answers mutating requests with "unavailable". Returns only when
    /// the node cannot go on, because the supervisor of the conversations died or the store failed.
    pub async fn supervise(&mut self, drain_timeout: Duration) -> StartError {
        let mut state = self.runtime.state.subscribe();
        tokio::select! {
            // The node itself holds the sender: waiting cannot fail.
            _ = state.wait_for(|state| *state != MemberState::Up) => {}
            _ = &mut self.runtime.supervisor => return supervisor_died(),
            reason = failure(&mut self.failure_watch) => return store_failed(&reason),
        }
        let drained = self.runtime.drain(drain_timeout).await;
        tracing::info!(drained, "drained by an operator");
        // Drained, the node only waits for its end.
        tokio::select! {
            _ = &mut self.runtime.supervisor => supervisor_died(),
            reason = failure(&mut self.failure_watch) => store_failed(&reason),
        }
    }

    /// What makes the node read the file of `--auth` again.
    pub fn auth_reloader(&self) -> AuthReloader {
        AuthReloader(self.access.clone())
    }

    /// Takes no more work, lets running model steps and tools finish for at most `timeout`, and hands
    /// the rest over. Returns true when nothing had to be cut off.
    pub async fn drain(&self, timeout: Duration) -> bool {
        self.runtime.drain(timeout).await
    }

    /// Leaves the cluster, stops serving, lets the native tools clean up, and closes the store, whose
    /// directory another node may then open.
    pub async fn stop(self) {
        drop(self.departing);
        self.runtime.leave().await;
        self.stop.send_replace(true);
        for server in self.servers {
            if let Err(error) = server.await {
                tracing::error!(%error, "server task failed");
            }
        }
        // The last tool runs end with the runtime; only then may their tools clean up.
        drop(self.runtime);
        self.extensions.stop().await;
        drop(self.background);
        // The stored keys and the quotas hold the store.
        drop(self.access);
        // Actors that were killed and tasks that were aborted drop the store when they are next
        // scheduled.
        if let Some(close_watch) = self.close_watch
            && timeout(CLOSE_TIMEOUT, close_watch.closed()).await.is_err()
        {
            tracing::warn!("store not closed: it is still in use");
        }
    }
}

async fn failure(watch: &mut Option<FailureWatch>) -> String {
    match watch {
        Some(watch) => watch.failed().await,
        None => std::future::pending().await,
    }
}

fn store_failed(reason: &str) -> StartError {
    StartError::Broken(format!("the store failed: {reason}"))
}

fn supervisor_died() -> StartError {
    StartError::Broken("the supervisor of the conversations died".to_owned())
}
