//! The Redis that several nodes share under load: a process of its own.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use abide_registry::store::Store;
use abide_registry::store::redis::{self, RedisUrl};
use tokio::process::{Child, Command};

use super::{Durability, Wrong, wrong};

/// A server that takes longer has failed.
const START: Duration = Duration::from_secs(10);

/// Dropping it kills the server.
pub(super) struct Redis {
    pub(super) url: String,
    _server: Child,
}

impl Redis {
    /// Starts one that keeps what it is given, as the durability asks.
    pub(super) async fn start(durability: Durability, dir: &Path) -> Result<Self, Wrong> {
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|port| port.local_addr());
        let port = free.map_err(|error| wrong("a free port", error))?.port().to_string();
        let fsync = match durability {
            Durability::Fsync => "always",
            Durability::Os => "everysec",
        };
        let server = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &port, "--save", "", "--appendonly", "yes"])
            .args(["--appendfsync", fsync, "--dir"])
            .arg(dir)
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| wrong("redis-server", error))?;
        let redis = Self { url: format!("redis://127.0.0.1:{port}"), _server: server };
        let up = async {
            while redis.store(durability).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let up = tokio::time::timeout(START, up).await;
        up.map_err(|_| Wrong(format!("redis-server did not answer within {START:?}")))?;
        Ok(redis)
    }

    /// Opens it as a node does.
    pub(super) async fn store(&self, durability: Durability) -> Result<Arc<dyn Store>, Wrong> {
        let url: RedisUrl = self.url.parse().map_err(|error| wrong(&self.url, error))?;
        let durability = match durability {
            Durability::Fsync => redis::Durability::Fsync,
            Durability::Os => redis::Durability::Os,
        };
        let store = redis::Redis::open(&url, durability).await;
        Ok(Arc::new(store.map_err(|error| wrong(&self.url, error))?))
    }
}
