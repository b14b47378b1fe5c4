//! Additional `redis-server` processes, such as replicas and sentinels, each in its own directory.

use std::process::Stdio;

use redis::{FromRedisValue, RedisResult};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::free_port;
use crate::deadline::poll;

/// A server on a free loopback port, which is killed when the value is dropped.
pub struct Server {
    pub port: u16,
    _child: Child,
    _dir: TempDir,
}

impl Server {
    /// Starts a server with these settings that never loses what it acknowledged.
    pub async fn start(args: &[&str]) -> Self {
        let all = [&["--appendonly", "yes", "--save", ""], args].concat();
        Self::spawn(&all).await
    }

    /// Starts a single sentinel that watches this primary as `main`, and waits until it knows one
    /// replica.
    pub async fn sentinel(primary: &str) -> Self {
        let primary = primary.replace(':', " ");
        let lines = format!(
            "sentinel monitor main {primary} 1\nsentinel down-after-milliseconds main 500\n\
             sentinel failover-timeout main 3000\n"
        );
        let dir = directory();
        let file = dir.path().join("sentinel.conf");
        std::fs::write(&file, lines).unwrap();
        let file = file.display().to_string();
        let sentinel = Self::spawn_in(dir, &[&file, "--sentinel"]).await;
        poll("the sentinel to know a replica", async || {
            let known: Vec<redis::Value> =
                sentinel.ask(&["SENTINEL", "REPLICAS", "main"]).await.ok()?;
            (known.len() == 1).then_some(())
        })
        .await;
        sentinel
    }

    async fn spawn(args: &[&str]) -> Self {
        Self::spawn_in(directory(), args).await
    }

    async fn spawn_in(dir: TempDir, args: &[&str]) -> Self {
        let port = free_port();
        let mut command = Command::new("redis-server");
        command.current_dir(dir.path()).kill_on_drop(true).args(args);
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Self { port, _child: command.spawn().unwrap(), _dir: dir };
        poll("a server to answer", async || server.ask::<String>(&["PING"]).await.ok()).await;
        server
    }

    /// Sends one command.
    pub async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let client = redis::Client::open(("127.0.0.1", self.port))?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        redis::Cmd::new().arg(words).query_async(&mut connection).await
    }
}

/// A directory in memory if the machine has one, as for the servers of `Redis::process`.
fn directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}
