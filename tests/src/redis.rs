//! A Redis for one test, and what can go wrong with one.

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

/// How long a command may take: more than a server that writes to its disk needs.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Ports tried before a start has failed: another process may take a free one first.
const MAX_PORT_TRIES: usize = 5;
/// What every server of ours is started with: it keeps what it acknowledged.
const FLAGS: [&str; 8] =
    ["--appendonly", "yes", "--appendfsync", "always", "--save", "", "--protected-mode", "no"];

/// A server on loopback, at one address for as long as the value lives; nothing of it is left
/// behind, also when the test fails.
///
/// Where it comes from: the one that `TEST_REDIS_URL` names; else a container of the local image
/// `redis:7`, when Docker answers; else a process of `redis-server`. `TEST_REDIS=container` makes
/// a Docker that does not answer a failure, `TEST_REDIS=process` asks for no Docker.
pub struct Redis {
    server: Server,
    url: String,
}

enum Server {
    /// Somebody else's: it cannot be killed. The file keeps other tests out.
    Given(#[allow(dead_code)] File),
    Container(Box<Container>),
    Process(Box<Process>),
}

impl Redis {
    /// An empty one. That of `TEST_REDIS_URL` is emptied, and is one test's at a time.
    pub async fn start() -> Self {
        match std::env::var("TEST_REDIS_URL") {
            Ok(url) => Self::given(url).await,
            Err(_) => Self::own().await,
        }
    }

    /// An empty one that may be killed: never that of `TEST_REDIS_URL`.
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

    /// One in a container.
    pub async fn container() -> Self {
        let (container, port) = Container::start().await;
        Self::serving(Server::Container(Box::new(container)), port).await
    }

    /// One in a process.
    pub async fn process() -> Self {
        Self::process_with(&[]).await
    }

    /// One in a process, with these settings too.
    pub async fn process_with(flags: &[&str]) -> Self {
        let (process, port) = Process::start(flags).await;
        Self::serving(Server::Process(Box::new(process)), port).await
    }

    async fn serving(server: Server, port: u16) -> Self {
        let redis = Self { server, url: format!("redis://127.0.0.1:{port}") };
        redis.answers().await;
        redis
    }

    async fn given(url: String) -> Self {
        let path = std::env::temp_dir().join("abide-tests.redis");
        let file = File::options().create(true).append(true).open(path).unwrap();
        // As long as the tests before this one; the runner bounds them all.
        let locked = tokio::task::spawn_blocking(move || file.lock().map(|()| file));
        let redis = Self { server: Server::Given(locked.await.unwrap().unwrap()), url };
        let () = redis.ask(&["FLUSHDB"]).await;
        redis
    }

    /// What a node's `--store` takes.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Host and port, for a proxy.
    pub fn address(&self) -> &str {
        let rest = self.url.strip_prefix("redis://").unwrap_or(&self.url);
        let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
        rest.split('/').next().unwrap_or(rest)
    }

    /// Kills it as hard as it goes; `restart` brings it back.
    pub async fn kill(&mut self) {
        match &mut self.server {
            Server::Given(_) => cannot("killed"),
            Server::Container(container) => container.kill().await,
            Server::Process(process) => process.kill().await,
        }
    }

    /// Starts it again, killed first if it runs, at the same address and with what it had kept.
    pub async fn restart(&mut self) {
        match &mut self.server {
            Server::Given(_) => cannot("restarted"),
            Server::Container(container) => container.restart().await,
            Server::Process(process) => process.restart().await,
        }
        self.answers().await;
    }

    /// The same, and all that it had kept is gone.
    pub async fn restart_empty(&mut self) {
        match &mut self.server {
            Server::Given(_) => cannot("restarted"),
            Server::Container(container) => container.restart_empty().await,
            Server::Process(process) => process.restart_empty().await,
        }
        self.answers().await;
    }

    /// It does nothing any more, and its connections stay.
    pub async fn stop(&self) {
        match &self.server {
            Server::Given(_) => cannot("stopped"),
            Server::Container(container) => container.pause().await,
            Server::Process(process) => process.stop().await,
        }
    }

    /// It goes on where it was stopped.
    pub async fn cont(&self) {
        match &self.server {
            Server::Given(_) => cannot("stopped"),
            Server::Container(container) => container.unpause().await,
            Server::Process(process) => process.cont(),
        }
    }

    /// Whether it answers every write with `NOREPLICAS`; it starts without.
    pub async fn refuse_writes(&self, refuse: bool) {
        let replicas = if refuse { "1" } else { "0" };
        let () = self.ask(&["CONFIG", "SET", "min-replicas-to-write", replicas]).await;
    }

    /// Whether it is full: it then answers what needs memory with `OOM`.
    pub async fn fill(&self, full: bool) {
        let bytes = if full { "1" } else { "0" };
        let () = self.ask(&["CONFIG", "SET", "maxmemory", bytes]).await;
    }

    /// The answer to one command, which must be one.
    pub async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let answer = self.try_ask(words).await;
        answer.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// The answer to one command, over a connection of its own.
    ///
    /// # Errors
    ///
    /// As Redis or the connection gives them.
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

    /// Waits until it serves; while it reads its file it does not.
    async fn answers(&self) {
        poll("Redis to answer", async || self.try_ask::<String>(&["PING"]).await.ok()).await;
    }
}

fn cannot(what: &str) -> ! {
    panic!("the Redis of TEST_REDIS_URL cannot be {what}: take `Redis::own`")
}

/// A port that nobody listened on a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
