//! The suite against a primary with a replica behind a sentinel, and the effects of a fail-over.

use std::num::NonZeroU8;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use tempfile::TempDir;

use super::super::super::Store;
use super::super::super::conformance::conformance;
use super::super::{Durability, Redis, RedisUrl};
use super::load::Load;
use super::servers::{Server, free_port, wait_until, words};

const REPLICA: Durability = Durability::Replicas(NonZeroU8::MIN);

/// A primary, its replica, a sentinel, and a store that finds them by the sentinel.
pub(super) struct SentinelPair {
    primary: Server,
    replica: Server,
    sentinel: Sentinel,
    store: Arc<Redis>,
}

struct Sentinel {
    port: u16,
    child: Child,
    _dir: TempDir,
}

impl SentinelPair {
    pub(super) async fn start() -> Self {
        let args = ["--appendfsync", "no", "--repl-diskless-sync-delay", "0"];
        let primary = Server::start(&args).await;
        let port = primary.port.to_string();
        let of = [&args[..], &["--replicaof", "127.0.0.1", &port]].concat();
        let replica = Server::start(&of).await;
        wait_until_in_sync(&replica).await;
        wait_until("the primary counts its replica", async || {
            let info: String = primary.ask(&["INFO", "replication"]).await;
            info.contains("state=online")
        })
        .await;
        let sentinel = Sentinel::start(primary.port).await;
        let store = Arc::new(Redis::open(&sentinel.url(), REPLICA).await.unwrap());
        Self { primary, replica, sentinel, store }
    }

    async fn fresh(&self) -> Arc<dyn Store> {
        self.primary.ask::<()>(&["FLUSHDB"]).await;
        Arc::clone(&self.store) as Arc<dyn Store>
    }
}

/// Waits until the replica has everything that its primary has.
async fn wait_until_in_sync(replica: &Server) {
    wait_until("the replica is in sync", async || {
        let info: String = replica.ask(&["INFO", "replication"]).await;
        info.contains("master_link_status:up")
    })
    .await;
}

impl Sentinel {
    async fn start(primary: u16) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = free_port();
        let config = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor main 127.0.0.1 {primary} 1\n\
             sentinel down-after-milliseconds main 300\nsentinel failover-timeout main 2000\n",
            dir.path().display()
        );
        let file = dir.path().join("sentinel.conf");
        std::fs::write(&file, config).unwrap();
        let mut command = Command::new("redis-server");
        command.arg(&file).arg("--sentinel").stdout(Stdio::null()).stderr(Stdio::null());
        let sentinel = Self { port, child: command.spawn().unwrap(), _dir: dir };
        wait_until("the sentinel knows the replica", async || {
            let known = sentinel.ask(&["SENTINEL", "REPLICAS", "main"]).await;
            matches!(known, Ok(redis::Value::Array(known)) if known.len() == 1)
        })
        .await;
        sentinel
    }

    async fn ask(&self, command: &[&str]) -> redis::RedisResult<redis::Value> {
        let client = redis::Client::open(("127.0.0.1", self.port))?;
        words(command).query_async(&mut client.get_multiplexed_async_connection().await?).await
    }

    fn url(&self) -> RedisUrl {
        let silent = free_port();
        let port = self.port;
        format!("redis+sentinel://127.0.0.1:{silent},127.0.0.1:{port}/main").parse().unwrap()
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

conformance!(as one: a_pair_behind_a_sentinel_keeps_every_promise, SentinelPair::start().await);

#[tokio::test]
async fn a_failover_under_load_loses_nothing_acknowledged() {
    let mut pair = SentinelPair::start().await;
    let load = Load::start(Arc::clone(&pair.store) as Arc<dyn Store>);
    load.wait_for_commits(20).await;
    pair.primary.kill();
    wait_until("the replica takes over", async || {
        let role = pair.replica.try_ask::<Vec<redis::Value>>(&["ROLE"]).await;
        role.is_ok_and(|role| role.first() == Some(&redis::Value::BulkString(b"master".to_vec())))
    })
    .await;
    // Nothing is acknowledged until the new primary has a replica.
    let port = pair.replica.port.to_string();
    let of = ["--appendfsync", "no", "--replicaof", "127.0.0.1", &port];
    pair.primary = Server::start(&of).await;
    load.wait_for_commits(20).await;
    load.end_and_check(&*pair.store).await;
    assert!(pair.store.description().contains("connected replicas 1"));
    drop(pair.sentinel);
}

#[tokio::test]
async fn a_manual_failover_is_followed() {
    let pair = SentinelPair::start().await;
    let load = Load::start(Arc::clone(&pair.store) as Arc<dyn Store>);
    load.wait_for_commits(20).await;
    // The sentinel knows the replica, and learns a little later whether it can be promoted.
    wait_until("the sentinel agrees to fail over", async || {
        pair.sentinel.ask(&["SENTINEL", "FAILOVER", "main"]).await.is_ok()
    })
    .await;
    wait_until("the old primary follows the new one", async || {
        let info = pair.primary.try_ask::<String>(&["INFO", "replication"]).await;
        info.is_ok_and(|info| info.contains("master_link_status:up"))
    })
    .await;
    load.wait_for_commits(20).await;
    load.end_and_check(&*pair.store).await;
}
