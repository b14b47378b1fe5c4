//! The node under load, as a process.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use hyper::Method;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::client::Client;
use super::{Load, LoadError, load_error};
use crate::program;

/// After how long nodes give freed memory back to the kernel, as `deploy/Dockerfile` sets it.
const PURGE_DELAY_MS: &str = "10000";
/// How long a start may take, including the repair of a large store.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a stop may take: longer than a node drains.
const STOP_TIMEOUT: Duration = Duration::from_secs(40);

/// The unit of processor times in /proc, on every Linux.
const TICK_MS: u64 = 10;

/// A node, and its process if the load program started it. Dropping the value kills the process.
pub(super) struct Node {
    pub(super) public: SocketAddr,
    pub(super) admin: SocketAddr,
    child: Option<Child>,
    /// The time from its start to its ready line.
    pub(super) ready_after: Duration,
    started: Instant,
}

/// How a node is started.
pub(super) struct Start<'a> {
    pub(super) store: &'a str,
    /// `--passivate-after`.
    pub(super) passivate: &'a str,
    /// The working directory.
    pub(super) dir: &'a Path,
    pub(super) name: &'a str,
    /// The collector of its traces, if it exports them.
    pub(super) otlp: Option<&'a str>,
}

/// A node's counters since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counters {
    pub(super) commits: u64,
    pub(super) fsyncs: u64,
    pub(super) live_actors: u64,
    pub(super) dropped_spans: u64,
    /// The number of nodes to which it is connected.
    pub(super) peers: u64,
}

/// A key file in this directory, the same for all nodes.
fn key_file(dir: &Path) -> Result<PathBuf, LoadError> {
    let path = dir.join("encryption.keys");
    let key = "k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n";
    let written = std::fs::write(&path, key);
    let private = std::fs::Permissions::from_mode(0o600);
    written
        .and_then(|()| std::fs::set_permissions(&path, private))
        .map_err(|error| load_error("the key file", error))?;
    Ok(path)
}

impl Node {
    /// A node that is already running.
    pub(super) fn running(public: SocketAddr, admin: SocketAddr) -> Self {
        Self { public, admin, child: None, ready_after: Duration::ZERO, started: Instant::now() }
    }

    /// Starts a node on a store directory, and waits until it serves.
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

    /// Starts a node on any store, and waits until it serves.
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
        if load.encrypt {
            command.arg("--encrypt-key-file").arg(key_file(dir)?);
        }
        if load.compress {
            command.args(["--store-compression", "zstd"]);
        }
        Self::ready(command).await
    }

    /// Starts this program as a bare node over a store.
    pub(super) async fn start_bare(load: &Load, store: &str) -> Result<Self, LoadError> {
        let me = std::env::current_exe().map_err(|error| load_error("this program", error))?;
        let mut command = Command::new(me);
        command.args(["--serve-bare", store, "--durability", &load.durability.to_string()]);
        Self::ready(command).await
    }

    /// Starts a process and waits for its ready line, which contains its addresses.
    async fn ready(mut command: Command) -> Result<Self, LoadError> {
        command.env("MIMALLOC_PURGE_DELAY", PURGE_DELAY_MS);
        let started = Instant::now();
        let spawned = command.stdout(Stdio::piped()).kill_on_drop(true).spawn();
        let program = command.as_std().get_program().to_string_lossy();
        let mut child = spawned.map_err(|error| load_error(&program, error))?;
        let stdout =
            child.stdout.take().ok_or_else(|| LoadError("no standard output".to_owned()))?;
        let mut lines = BufReader::new(stdout).lines();
        let line = tokio::time::timeout(START_TIMEOUT, lines.next_line()).await;
        let line = line
            .map_err(|_| LoadError(format!("the node was not ready within {START_TIMEOUT:?}")))?;
        let line = line.map_err(|error| load_error("the ready line", error))?.unwrap_or_default();
        let ready_after = started.elapsed();
        let address = |key: &str| {
            let field = line.split(' ').find_map(|field| field.strip_prefix(key));
            let address = field.and_then(|field| field.parse().ok());
            address.ok_or_else(|| {
                LoadError(format!("the node printed {line:?} instead of its ready line"))
            })
        };
        let (public, admin) = (address("public=")?, address("admin=")?);
        Ok(Self { public, admin, child: Some(child), ready_after, started })
    }

    /// The time since its start.
    pub(super) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    pub(super) async fn counters(&self) -> Result<Counters, LoadError> {
        let mut client = Client::new(self.admin);
        let (_, text) = client.ask(Method::GET, "/metrics", None).await?;
        Ok(Counters::parse(text.as_str().unwrap_or_default()))
    }

    /// The id of its process, if the load program started it.
    pub(super) fn pid(&self) -> Result<u32, LoadError> {
        let child = self.child.as_ref().and_then(Child::id);
        child.ok_or_else(|| LoadError("the node's process is not ours".to_owned()))
    }

    /// Its resident memory in kB.
    pub(super) fn resident_kb(&self) -> Result<u64, LoadError> {
        self.memory_kb("VmRSS")
    }

    /// The peak of its resident memory in kB.
    pub(super) fn peak_kb(&self) -> Result<u64, LoadError> {
        self.memory_kb("VmHWM")
    }

    fn memory_kb(&self, field: &str) -> Result<u64, LoadError> {
        let path = format!("/proc/{}/status", self.pid()?);
        let status = std::fs::read_to_string(&path).map_err(|error| load_error(&path, error))?;
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let kb = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
        kb.ok_or_else(|| LoadError(format!("{path}: has no {field}")))
    }

    /// The processor time of its threads, in the kernel and in user mode. Unlike elapsed time, it
    /// depends little on other load on the machine. `None` for a node that the load program did not
    /// start.
    pub(super) fn cpu_time(&self) -> Option<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid().ok()?)).ok()?;
        // The name, in brackets, may contain anything; user and system time are the 12th and 13th
        // fields after it.
        let mut times = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
        let user = times.next()?.parse::<u64>().ok()?;
        let system = times.next()?.parse::<u64>().ok()?;
        Some(Duration::from_millis((user + system) * TICK_MS))
    }

    /// Sends SIGKILL. Returns when the process is gone.
    pub(super) async fn kill(mut self) -> Result<(), LoadError> {
        match &mut self.child {
            Some(child) => {
                child.kill().await.map_err(|error| load_error("killing the node", error))
            }
            None => Ok(()),
        }
    }

    /// Drains the node, if the load program started it. It must exit with 0.
    pub(super) async fn stop(mut self) -> Result<(), LoadError> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let pid = child.id().map(|pid| pid.to_string()).unwrap_or_default();
        let signalled = Command::new("kill").args(["-TERM", &pid]).status().await;
        signalled.map_err(|error| load_error("kill", error))?;
        let status = tokio::time::timeout(STOP_TIMEOUT, child.wait()).await;
        let status =
            status.map_err(|_| LoadError(format!("the node ran on for {STOP_TIMEOUT:?}")))?;
        let status = status.map_err(|error| load_error("the node", error))?;
        if status.success() {
            Ok(())
        } else {
            Err(LoadError(format!("the node exited with {status}")))
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
