//! One node: a directory that stays, and the processes that run on it in turn.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::Signal;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::client::{Addresses, Client};
use crate::deadline::within;
use crate::signal::{Starvation, signal, stop};

/// How much of a failed test's log is printed: more than a test that fails early writes.
const MAX_PRINTED_LOG_BYTES: u64 = 1 << 20;

/// The setup of one node: its directory, its flags, and the client that knows its addresses. When a
/// test fails, the node's log is printed.
pub struct Site {
    pub client: Client,
    dir: TempDir,
    program: PathBuf,
    flags: Vec<String>,
    environment: Vec<(String, String)>,
    name: String,
    store: Option<String>,
    log: PathBuf,
}

impl Site {
    /// Makes a new directory for a node of this program.
    pub fn new(program: impl AsRef<Path>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let program = program.as_ref().to_owned();
        let (client, log) = (Client::default(), dir.path().join("stderr"));
        let (name, environment) = ("test".to_owned(), Vec::new());
        Self { client, dir, program, flags: Vec::new(), environment, name, store: None, log }
    }

    /// Adds flags to every start.
    pub fn with(mut self, flags: &[&str]) -> Self {
        self.flags.extend(flags.iter().map(|flag| flag.to_string()));
        self
    }

    /// Adds a variable to the environment, which contains no other `ABIDE_…` variable.
    pub fn with_env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets a variable from the next start on.
    pub fn set_env(&mut self, name: &str, value: &str) {
        self.environment.retain(|(present, _)| present != name);
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// Writes the log to this file, which stays; the log is then not printed.
    pub fn with_log_at(mut self, file: &Path) -> Self {
        self.log = file.to_owned();
        self
    }

    /// Gives the node another name.
    pub fn named(mut self, name: &str) -> Self {
        self.name = name.to_owned();
        self
    }

    /// Redirects the node's standard error to this path.
    pub fn with_log(mut self, log: &str) -> Self {
        self.log = log.into();
        self
    }

    /// Sets `--store`, which otherwise is an embedded store. The node then keeps its first cluster
    /// address across restarts.
    pub fn with_store(mut self, store: &str) -> Self {
        self.store = Some(store.to_owned());
        self
    }

    /// Replaces the program for later starts.
    pub fn set_program(&mut self, program: impl AsRef<Path>) {
        self.program = program.as_ref().to_owned();
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The node's directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The directory of the node's embedded store.
    pub fn store(&self) -> PathBuf {
        self.dir().join("store")
    }

    /// Everything that its processes have written to standard error.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap()).into_owned()
    }

    /// Starts a process, and waits until it serves.
    pub async fn start(&self) -> Node {
        let started = self.try_start().await;
        started.unwrap_or_else(|status| panic!("the node exited before it served: {status:?}"))
    }

    /// Starts a process, and waits until it serves.
    ///
    /// # Errors
    ///
    /// The exit status of a process that ended before it served.
    pub async fn try_start(&self) -> Result<Node, ExitStatus> {
        let mut node = self.launch();
        let mut lines = BufReader::new(node.child.stdout.take().unwrap());
        let mut line = String::new();
        within("the ready line", lines.read_line(&mut line)).await.unwrap();
        if line.is_empty() {
            return Err(node.wait_for_exit().await);
        }
        let line = line.trim_end();
        let field = |name: &str| {
            let found = line.split(' ').find_map(|field| field.strip_prefix(name));
            found.unwrap_or_else(|| panic!("{name} is not in: {line}")).to_owned()
        };
        assert!(line.starts_with("ready "), "{line}");
        let cluster = Some(field("cluster=")).filter(|address| address != "-");
        let (public, admin) = (field("public="), field("admin="));
        self.client.move_to(Addresses { public, admin, cluster });
        Ok(node)
    }

    /// Starts a process without waiting for it.
    pub fn launch(&self) -> Node {
        let mut command = self.command();
        let embedded = || format!("embedded:{}", self.store().display());
        command.arg("--store").arg(self.store.clone().unwrap_or_else(embedded));
        if self.store.is_some() {
            let cluster = self.client.cluster_address();
            let cluster = cluster.unwrap_or_else(|| format!("{}:0", unshared_address()));
            command.arg("--cluster-listen").arg(cluster);
        }
        command.args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
        command.args(["--node", &self.name]).args(&self.flags).stderr(self.open_log());
        Node { child: command.spawn().unwrap() }
    }

    /// Runs the program with these arguments until it exits, for arguments that are refused.
    pub async fn run(&self, arguments: &[&str]) -> std::process::Output {
        let mut command = self.command();
        command.args(arguments).stderr(Stdio::piped());
        within("the program's end", command.output()).await.unwrap()
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.current_dir(self.dir()).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ABIDE_")) {
            command.env_remove(name);
        }
        command.envs(self.environment.iter().cloned());
        command
    }

    fn open_log(&self) -> File {
        let mut options = OpenOptions::new();
        options.create(true).append(true).open(&self.log).unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if std::thread::panicking() && self.log.starts_with(self.dir.path()) {
            let mut log = Vec::new();
            // A log that cannot be read is printed as empty.
            let _ = File::open(&self.log)
                .and_then(|file| file.take(MAX_PRINTED_LOG_BYTES).read_to_end(&mut log));
            let (name, log) = (&self.name, String::from_utf8_lossy(&log));
            eprintln!("--- {name}'s standard error\n{log}---");
        }
    }
}

/// An address of this machine from which no other process connects or listens: a killed node finds its
/// port free again. On 127.0.0.1 the kernel gives free ports to connections of whoever asks for one.
fn unshared_address() -> Ipv4Addr {
    static SITES: AtomicU32 = AtomicU32::new(1);
    let site = SITES.fetch_add(1, Ordering::Relaxed) % 64;
    // 18 bits of the process, and 6 of the site.
    let host = (std::process::id() << 6 | site) & 0x00ff_ffff;
    Ipv4Addr::from_bits(0x7f00_0000 | host)
}

/// What a process uses of its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resources {
    /// Resident memory.
    pub memory_bytes: u64,
    pub threads: u64,
    /// Open file descriptors.
    pub descriptors: u64,
}

/// A running process, which is killed when the value is dropped.
pub struct Node {
    child: Child,
}

impl Node {
    /// Sends SIGKILL. Returns when the process is gone.
    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        signal(&self.child, Signal::TERM);
    }

    /// Sends SIGSTOP. After the return the process does nothing any more; its connections stay
    /// open.
    pub async fn stop(&self) {
        stop(&self.child).await;
    }

    /// Sends SIGCONT: the process continues where it was stopped.
    pub fn cont(&self) {
        signal(&self.child, Signal::CONT);
    }

    /// Starves the process of the CPU.
    pub fn starve(&self) -> Starvation {
        Starvation::of(&self.child)
    }

    /// The id of the process.
    pub fn id(&self) -> u32 {
        self.child.id().expect("a process that is waited for has no id")
    }

    /// The resident memory in bytes.
    pub fn memory(&self) -> u64 {
        self.resources().memory_bytes
    }

    /// What the process uses now.
    pub fn resources(&self) -> Resources {
        let pid = self.id();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
        };
        Resources {
            memory_bytes: number("VmRSS:") * 1024,
            threads: number("Threads:"),
            descriptors: std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count() as u64,
        }
    }

    /// The exit status, if the process has exited.
    pub fn try_wait(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for the process to exit by itself.
    pub async fn wait_for_exit(&mut self) -> ExitStatus {
        within("the process's end", self.child.wait()).await.unwrap()
    }
}
