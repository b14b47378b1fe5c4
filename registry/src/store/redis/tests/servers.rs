//! Redis servers in temporary directories, which die with the test.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use redis::Cmd;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::super::RedisUrl;

/// How long a server may take to reach an expected state.
const STATE_TIMEOUT: Duration = Duration::from_secs(20);

/// A `redis-server` process with a directory of its own.
pub(super) struct Server {
    pub(super) port: u16,
    args: Vec<String>,
    child: Child,
    dir: TempDir,
}

impl Server {
    /// Starts a server on a free port with these settings on top of `--save "" --appendonly yes`.
    pub(super) async fn start(args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let args: Vec<_> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let port = free_port();
        let child = spawn(dir.path(), port, &args);
        let server = Self { port, args, child, dir };
        server.ready().await;
        server
    }

    pub(super) fn url(&self) -> RedisUrl {
        format!("redis://127.0.0.1:{}", self.port).parse().unwrap()
    }

    /// Kills it without notice, as the failure of its machine would.
    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stops it without closing its connections, as a machine that hangs would.
    pub(super) fn freeze(&self) {
        self.signal("-STOP");
    }

    /// Lets a frozen server go on.
    pub(super) fn thaw(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").arg(signal).arg(self.child.id().to_string()).status();
        assert!(sent.unwrap().success());
    }

    /// Starts it again on its directory, with another value of a setting.
    pub(super) async fn restart_with(&mut self, setting: &str, value: &str) {
        self.args.extend([setting.to_owned(), value.to_owned()]);
        self.restart().await;
    }

    /// Starts it again on its directory.
    pub(super) async fn restart(&mut self) {
        self.child = spawn(self.dir.path(), self.port, &self.args);
        self.ready().await;
    }

    /// Empties its directory.
    pub(super) fn empty(&mut self) {
        self.kill();
        self.dir = tempfile::tempdir().unwrap();
    }

    pub(super) async fn ask<T: redis::FromRedisValue>(&self, command: &[&str]) -> T {
        self.try_ask(command).await.unwrap()
    }

    /// Also fails if the server closes its connections, as in a fail-over.
    pub(super) async fn try_ask<T: redis::FromRedisValue>(
        &self,
        command: &[&str],
    ) -> redis::RedisResult<T> {
        let client = redis::Client::open(("127.0.0.1", self.port))?;
        words(command).query_async(&mut client.get_multiplexed_async_connection().await?).await
    }

    async fn ready(&self) {
        wait_until("the server answers", async || self.try_ask::<String>(&["PING"]).await.is_ok())
            .await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command from its words.
pub(super) fn words(words: &[&str]) -> Cmd {
    let mut command = Cmd::new();
    command.arg(words);
    command
}

/// Polls every few milliseconds until the condition holds.
pub(super) async fn wait_until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + STATE_TIMEOUT;
    while !condition().await {
        assert!(Instant::now() < deadline, "not in time: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// A free port, different in each test process. It is below the ports that the system gives to
/// clients, so that no outgoing connection takes it before the server does.
pub(super) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let process = std::process::id() as usize * 16;
    loop {
        let next = process + usize::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 12_000 + (next % 20_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn spawn(dir: &Path, port: u16, args: &[String]) -> Child {
    let port = port.to_string();
    let own = ["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"];
    let mut command = Command::new("redis-server");
    command.args(own).args(args).arg("--dir").arg(dir);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}
