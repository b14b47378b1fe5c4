//! A process of the program, on a directory that outlives it.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::client::{Addresses, Client};
use crate::patience::within;

/// Where one node lives: its directory, its flags, and the client that knows where it listens.
pub struct Site {
    pub client: Client,
    dir: TempDir,
    program: PathBuf,
    flags: Vec<String>,
    name: &'static str,
    log: PathBuf,
}

impl Site {
    /// A new directory for a node of this program.
    pub fn new(program: impl AsRef<Path>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let program = program.as_ref().to_owned();
        let (client, log) = (Client::default(), dir.path().join("stderr"));
        Self { client, dir, program, flags: Vec::new(), name: "test", log }
    }

    /// Adds flags to every start.
    pub fn with(mut self, flags: &[&str]) -> Self {
        self.flags.extend(flags.iter().map(|flag| flag.to_string()));
        self
    }

    /// Gives the node another name.
    pub fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// Sends the node's standard error elsewhere.
    pub fn with_log(mut self, log: &str) -> Self {
        self.log = log.into();
        self
    }

    /// The node's directory; its store is `store` in it.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The node's store.
    pub fn store(&self) -> PathBuf {
        self.dir().join("store")
    }

    /// Starts a process and waits until it serves.
    pub async fn start(&self) -> Node {
        let mut node = self.launch();
        let lines = BufReader::new(node.child.stdout.take().unwrap());
        let line = within("the ready line", lines.lines().next_line()).await.unwrap();
        let Some(line) = line else {
            panic!("the node never served: {:?}", node.exited().await);
        };
        let field = |name: &str| {
            let found = line.split(' ').find_map(|field| field.strip_prefix(name));
            found.unwrap_or_else(|| panic!("{name} is not in: {line}")).to_owned()
        };
        assert!(line.starts_with("ready "), "{line}");
        self.client.moved(Addresses { public: field("public="), admin: field("admin=") });
        node
    }

    /// Starts a process, and waits for nothing.
    pub fn launch(&self) -> Node {
        let mut command = self.command();
        command.arg("--store").arg(format!("embedded:{}", self.store().display()));
        command.args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
        command.args(["--node", self.name]).args(&self.flags).stderr(self.log());
        Node { child: command.spawn().unwrap(), log: self.log.clone() }
    }

    /// Runs the program to its end with these arguments; for those that are refused.
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
        command
    }

    fn log(&self) -> File {
        let mut options = OpenOptions::new();
        options.create(true).append(true).open(&self.log).unwrap()
    }
}

/// A running process; it dies with this value.
pub struct Node {
    child: Child,
    log: PathBuf,
}

impl Node {
    /// SIGKILL; returns when the process is gone.
    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// SIGTERM.
    pub async fn terminate(&self) {
        let pid = self.child.id().unwrap();
        let sent = Command::new("sh").arg("-c").arg(format!("kill -TERM {pid}")).status().await;
        assert!(sent.unwrap().success());
    }

    /// Waits for the process to end by itself.
    pub async fn exited(&mut self) -> ExitStatus {
        within("the process's end", self.child.wait()).await.unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            eprintln!("--- the node's standard error\n{log}---");
        }
    }
}
