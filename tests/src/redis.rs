//! A Redis for one test, and the faults that the test can cause in it.

mod container;
mod process;
pub mod servers;

use std::fs::File;
use std::net::TcpListener;
use std::time::Duration;

use redis::{AsyncConnectionConfig, FromRedisValue};

use crate::deadline::poll;
use container::Container;
use process::Process;

/// How long a command may take: more than a server needs that syncs to its disk.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// How many ports are tried before a start fails: another process may take a free port first.
const MAX_PORT_TRIES: usize = 5;
/// The settings of every server of ours: it never loses what it acknowledged.
const FLAGS: [&str; 8] =
    ["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--protected-mode", "no"];

/// A server on loopback, at one address for as long as the value lives. Dropping the value removes
/// it, also when the test fails.
///
/// It is the server that `TEST_REDIS_URL` names; else a container of the local image `redis:7`,
/// when Docker answers; else a process of `redis-server`. With `TEST_REDIS=container` a Docker that
/// does not answer is a failure; with `TEST_REDIS=process` Docker is not used.
pub struct Redis {
    server: Server,
    url: String,
}

enum Server {
    /// The server of `TEST_REDIS_URL`, which cannot be killed. The file's lock keeps other tests
    /// out.
    Given(#[allow(dead_code)] File),
    Container(Box<Container>),
    Process(Box<Process>),
}

impl Redis {
    /// Starts an empty server. The server of `TEST_REDIS_URL` is emptied, and serves one test at a
    /// time.
    pub async fn start() -> Self {
        match std::env::var("TEST_REDIS_URL") {
            Ok(url) => Self::from_env(url).await,
            Err(_) => Self::own().await,
        }
    }

    /// Starts an empty server that may be killed: never that of `TEST_REDIS_URL`.
    pub async fn own() -> Self {
        let wish = std::env::var("TEST_REDIS").unwrap_or_default();
        match wish.as_str() {
            "container" => Self::container().await,
            "process" => Self::process().await,
            "" if container::docker().await.is_ok() => Self::container().await,
            "" => Self::process().await,
            _ => panic!("TEST_REDIS must be container or process, not {wish}"),
        }
    }

    /// Starts a server in a container.
    pub async fn container() -> Self {
        let (container, port) = Container::start().await;
        Self::serve_on(Server::Container(Box::new(container)), port).await
    }

    /// Starts a server as a process.
    pub async fn process() -> Self {
        Self::process_with(&[]).await
    }

    /// Starts a server as a process, with these additional settings.
    pub async fn process_with(flags: &[&str]) -> Self {
        let (process, port) = Process::start(flags, false).await;
        Self::serve_on(Server::Process(Box::new(process)), port).await
    }

    /// Starts a server as a process whose machine may lose power.
    pub async fn process_on_disk(flags: &[&str]) -> Self {
        let (process, port) = Process::start(flags, true).await;
        Self::serve_on(Server::Process(Box::new(process)), port).await
    }

    async fn serve_on(server: Server, port: u16) -> Self {
        let redis = Self { server, url: format!("redis://127.0.0.1:{port}") };
        redis.wait_until_ready().await;
        redis
    }

    async fn from_env(url: String) -> Self {
        let path = std::env::temp_dir().join("abide-tests.redis");
        let file = File::options().create(true).append(true).open(path).unwrap();
        // Waits as long as the tests before this one take; the test runner bounds them all.
        let locked = tokio::task::spawn_blocking(move || file.lock().map(|()| file));
        let redis = Self { server: Server::Given(locked.await.unwrap().unwrap()), url };
        let () = redis.ask(&["FLUSHDB"]).await;
        redis
    }

    /// The URL for a node's `--store`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The host and port, for a proxy.
    pub fn address(&self) -> &str {
        let rest = self.url.strip_prefix("redis://").unwrap_or(&self.url);
        let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
        rest.split('/').next().unwrap_or(rest)
    }

    /// Kills the server without warning; `restart` brings it back.
    pub async fn kill(&mut self) {
        match &mut self.server {
            Server::Given(_) => cannot("killed"),
            Server::Container(container) => container.kill().await,
            Server::Process(process) => process.kill().await,
        }
    }

    /// Kills the server and undoes the latest of its writes that were not synced; `keep` is told how
    /// many there are in a file, and returns how many of them reached the disk. `restart` brings the
    /// server back. Only for a process on a disk.
    pub async fn lose_power(&mut self, keep: impl FnMut(usize) -> usize) {
        match &mut self.server {
            Server::Given(_) | Server::Container(_) => cannot("cut off from power"),
            Server::Process(process) => process.lose_power(keep).await,
        }
    }

    /// Restarts the server at the same address with its data, after killing it if it is running.
    pub async fn restart(&mut self) {
        match &mut self.server {
            Server::Given(_) => cannot("restarted"),
            Server::Container(container) => container.restart().await,
            Server::Process(process) => process.restart().await,
        }
        self.wait_until_ready().await;
    }

    /// Restarts the server at the same address without its data.
    pub async fn restart_empty(&mut self) {
        match &mut self.server {
            Server::Given(_) => cannot("restarted"),
            Server::Container(container) => container.restart_empty().await,
            Server::Process(process) => process.restart_empty().await,
        }
        self.wait_until_ready().await;
    }

    /// Stops the server: it does nothing any more, and its connections stay open.
    pub async fn stop(&self) {
        match &self.server {
            Server::Given(_) => cannot("stopped"),
            Server::Container(container) => container.pause().await,
            Server::Process(process) => process.stop().await,
        }
    }

    /// Lets the server continue where it was stopped.
    pub async fn cont(&self) {
        match &self.server {
            Server::Given(_) => cannot("stopped"),
            Server::Container(container) => container.unpause().await,
            Server::Process(process) => process.cont(),
        }
    }

    /// Sets whether the server answers every write with `NOREPLICAS`. It does not at its start.
    pub async fn refuse_writes(&self, refuse: bool) {
        let replicas = if refuse { "1" } else { "0" };
        let () = self.ask(&["CONFIG", "SET", "min-replicas-to-write", replicas]).await;
    }

    /// Sets whether the server is full: it then answers commands that need memory with `OOM`.
    pub async fn fill(&self, full: bool) {
        let bytes = if full { "1" } else { "0" };
        let () = self.ask(&["CONFIG", "SET", "maxmemory", bytes]).await;
    }

    /// Waits until the server counts a replica in step, as a node of `--durability replicas=1` does.
    /// A replica calls its link up before its primary has the first acknowledgement.
    pub async fn wait_for_replica(&self) {
        poll("the primary to count its replica", async || {
            let info: String = self.try_ask(&["INFO", "replication"]).await.ok()?;
            info.contains("state=online").then_some(())
        })
        .await;
    }

    /// Sends one command, which must succeed.
    pub async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let answer = self.try_ask(words).await;
        answer.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// Sends one command over a new connection.
    ///
    /// # Errors
    ///
    /// Those of Redis and of the connection.
    pub async fn try_ask<T: FromRedisValue>(&self, words: &[&str]) -> redis::RedisResult<T> {
        let times = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(RESPONSE_TIMEOUT))
            .set_response_timeout(Some(RESPONSE_TIMEOUT));
        let client = redis::Client::open(self.url.as_str())?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&times).await?;
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(*word);
        }
        command.query_async(&mut connection).await
    }

    /// Waits until the server answers, which it does not while it loads its file.
    async fn wait_until_ready(&self) {
        poll("Redis to answer", async || self.try_ask::<String>(&["PING"]).await.ok()).await;
    }
}

fn cannot(what: &str) -> ! {
    panic!("the Redis of TEST_REDIS_URL cannot be {what}: take `Redis::own`")
}

/// A port on which nothing listened a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
