//! The node under load: a process of its own.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use hyper::Method;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::client::Client;
use super::{Load, LoadError, load_error};
use crate::program;

/// A node that takes longer to start has failed; repairing a large file is part of it.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// Longer than a node drains.
const STOP_TIMEOUT: Duration = Duration::from_secs(40);

/// What /proc counts in, on every Linux.
const TICK_MS: u64 = 10;

/// A node, and its process if the load program started it. Dropping it kills the process.
pub(super) struct Node {
    pub(super) public: SocketAddr,
    pub(super) admin: SocketAddr,
    child: Option<Child>,
    /// From its start to its ready line.
    pub(super) ready_after: Duration,
    started: Instant,
}

/// How a node is started.
pub(super) struct Start<'a> {
    pub(super) store: &'a str,
    /// How soon an actor with nothing to do leaves.
    pub(super) passivate: &'a str,
    /// Where it runs.
    pub(super) dir: &'a Path,
    pub(super) name: &'a str,
    /// Where it sends its traces, if it does.
    pub(super) otlp: Option<&'a str>,
}

/// What a node has counters since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counters {
    pub(super) commits: u64,
    pub(super) fsyncs: u64,
    pub(super) live_actors: u64,
    pub(super) dropped_spans: u64,
    /// Nodes that it is connected to.
    pub(super) peers: u64,
}

impl Node {
    /// A node that runs already.
    pub(super) fn running(public: SocketAddr, admin: SocketAddr) -> Self {
        Self { public, admin, child: None, ready_after: Duration::ZERO, started: Instant::now() }
    }

    /// Starts one on a store directory and waits until it serves.
    pub(super) async fn start(
        load: &Load,
        store: &Path,
        passivate: &str,
    ) -> Result<Self, LoadError> {
        let url = format!("embedded:{}", store.display());
        let dir = store.parent().unwrap_or(store);
        let start = Start { store: &url, passivate, dir, name: "load", otlp: None };
        Self::start_as(load, &start).await
    }

    /// The same on any store.
    pub(super) async fn start_as(load: &Load, start: &Start<'_>) -> Result<Self, LoadError> {
        let program = program::release(load.binary.as_deref()).await.map_err(LoadError)?;
        let Start { store, passivate, dir, name, otlp } = start;
        let mut command = Command::new(&program);
        command
            .args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
            .args(["--cluster-listen", "127.0.0.1:0", "--node", name, "--store", store])
            .args(["--passivate-after", passivate, "--durability", &load.durability.to_string()])
            .args(otlp.iter().flat_map(|url| ["--otlp", url]))
            .env("RUST_LOG", std::env::var("RUST_LOG").unwrap_or_else(|_| "warn".to_owned()))
            .current_dir(dir);
        Self::ready(command).await
    }

    /// Starts this program as a bare node over a Redis.
    pub(super) async fn start_bare(load: &Load, redis: &str) -> Result<Self, LoadError> {
        let me = std::env::current_exe().map_err(|error| load_error("this program", error))?;
        let mut command = Command::new(me);
        command.args(["--serve-bare", redis, "--durability", &load.durability.to_string()]);
        Self::ready(command).await
    }

    /// Starts a process and waits until it says that it serves, and where.
    async fn ready(mut command: Command) -> Result<Self, LoadError> {
        let started = Instant::now();
        let spawned = command.stdout(Stdio::piped()).kill_on_drop(true).spawn();
        let program = command.as_std().get_program().to_string_lossy();
        let mut child = spawned.map_err(|error| load_error(&program, error))?;
        let said = child.stdout.take().ok_or_else(|| LoadError("no standard output".to_owned()))?;
        let mut lines = BufReader::new(said).lines();
        let line = tokio::time::timeout(START_TIMEOUT, lines.next_line()).await;
        let line = line
            .map_err(|_| LoadError(format!("the node was not ready within {START_TIMEOUT:?}")))?;
        let line = line.map_err(|error| load_error("the ready line", error))?.unwrap_or_default();
        let ready_after = started.elapsed();
        let address = |key: &str| {
            let field = line.split(' ').find_map(|field| field.strip_prefix(key));
            let address = field.and_then(|field| field.parse().ok());
            address.ok_or_else(|| LoadError(format!("the node said {line:?} instead of ready")))
        };
        let (public, admin) = (address("public=")?, address("admin=")?);
        Ok(Self { public, admin, child: Some(child), ready_after, started })
    }

    /// How long ago it was started.
    pub(super) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    pub(super) async fn counters(&self) -> Result<Counters, LoadError> {
        let mut client = Client::new(self.admin);
        let (_, text) = client.ask(Method::GET, "/metrics", None).await?;
        Ok(Counters::parse(text.as_str().unwrap_or_default()))
    }

    /// Its process, if the load program started it.
    pub(super) fn pid(&self) -> Result<u32, LoadError> {
        let child = self.child.as_ref().and_then(Child::id);
        child.ok_or_else(|| LoadError("the node's process is not ours".to_owned()))
    }

    /// Its resident memory in kB.
    pub(super) fn resident_kb(&self) -> Result<u64, LoadError> {
        let path = format!("/proc/{}/status", self.pid()?);
        let status = std::fs::read_to_string(&path).map_err(|error| load_error(&path, error))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kb = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
        kb.ok_or_else(|| LoadError(format!("{path}: has no VmRSS")))
    }

    /// What its threads have cpu_time, in the kernel and out of it; unlike the time that passes, it
    /// depends little on what else the machine does. `None` of a node that runs elsewhere.
    pub(super) fn cpu_time(&self) -> Option<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid().ok()?)).ok()?;
        // The name, in brackets, may hold anything; user and system time are the 12th and 13th
        // after.
        let mut times = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
        let (user, system) =
            (times.next()?.parse::<u64>().ok()?, times.next()?.parse::<u64>().ok()?);
        Some(Duration::from_millis((user + system) * TICK_MS))
    }

    /// SIGKILL.
    pub(super) async fn kill(mut self) -> Result<(), LoadError> {
        match &mut self.child {
            Some(child) => {
                child.kill().await.map_err(|error| load_error("killing the node", error))
            }
            None => Ok(()),
        }
    }

    /// Lets it drain, if it is the load program's own. It must exit with 0.
    pub(super) async fn stop(mut self) -> Result<(), LoadError> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let pid = child.id().map(|pid| pid.to_string()).unwrap_or_default();
        let asked = Command::new("kill").args(["-TERM", &pid]).status().await;
        asked.map_err(|error| load_error("kill", error))?;
        let status = tokio::time::timeout(STOP_TIMEOUT, child.wait()).await;
        let status =
            status.map_err(|_| LoadError(format!("the node ran on for {STOP_TIMEOUT:?}")))?;
        let status = status.map_err(|error| load_error("the node", error))?;
        match status.success() {
            true => Ok(()),
            false => Err(LoadError(format!("the node ended with {status}"))),
        }
    }
}

impl Counters {
    fn parse(text: &str) -> Self {
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|value| value.trim().parse::<f64>().ok()).unwrap_or_default() as u64
        };
        Self {
            commits: value("abide_store_commits_total"),
            fsyncs: value("abide_store_fsyncs_total"),
            live_actors: value("abide_live_actors"),
            dropped_spans: value("abide_spans_dropped_total{cause=\"queue\"}")
                + value("abide_spans_dropped_total{cause=\"export\"}"),
            peers: value("abide_peers_connected"),
        }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            commits: self.commits + other.commits,
            fsyncs: self.fsyncs + other.fsyncs,
            live_actors: self.live_actors + other.live_actors,
            dropped_spans: self.dropped_spans + other.dropped_spans,
            peers: self.peers + other.peers,
        }
    }

    pub(super) fn since(self, before: Self) -> Self {
        Self {
            commits: self.commits.saturating_sub(before.commits),
            fsyncs: self.fsyncs.saturating_sub(before.fsyncs),
            live_actors: self.live_actors,
            dropped_spans: self.dropped_spans.saturating_sub(before.dropped_spans),
            peers: self.peers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Counters;

    #[test]
    fn counters_are_read_by_their_whole_name() {
        let text = "# TYPE x\nabide_store_commits_total_x 9\nabide_store_commits_total 5\n\
                    abide_live_actors 2\nabide_spans_dropped_total{cause=\"queue\"} 3\n";
        let expected =
            Counters { commits: 5, fsyncs: 0, live_actors: 2, dropped_spans: 3, peers: 0 };
        assert_eq!(Counters::parse(text), expected);
    }
}
