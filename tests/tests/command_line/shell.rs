//! Runs the program as a user's shell would, with a home of its own.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use abide_tests::client::Client;
use abide_tests::deadline::within;
use abide_tests::node::{Node, Site};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};

use crate::ABIDE;

/// What a command printed, and its exit code.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// Fails unless the command ended with this code; returns its standard output.
    pub(crate) fn expect(self, code: i32) -> String {
        assert_eq!(self.code, code, "{self:#?}");
        self.stdout
    }

    /// The output of a command that succeeded, as JSON.
    pub(crate) fn json(self) -> Value {
        let stdout = self.expect(0);
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"))
    }

    /// The lines of a command that succeeded, each as JSON.
    pub(crate) fn json_lines(self) -> Vec<Value> {
        let stdout = self.expect(0);
        stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// A user with a home directory, and the addresses of nodes in the environment.
pub(crate) struct Shell {
    pub(crate) home: TempDir,
    environment: Vec<(String, String)>,
}

impl Shell {
    /// A user for whom no environment variable says where nodes are.
    pub(crate) fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap(), environment: Vec::new() }
    }

    /// A user of these nodes.
    pub(crate) fn of<'a>(clients: impl Iterator<Item = &'a Client>) -> Self {
        let (mut public, mut admin) = (Vec::new(), Vec::new());
        for client in clients {
            public.push(format!("http://{}", client.public_address()));
            admin.push(format!("http://{}", client.admin_address()));
        }
        Self::new().with("ABIDE_URL", &public.join(",")).with("ABIDE_ADMIN_URL", &admin.join(","))
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The command, which ends with its value.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(ABIDE);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("ABIDE_")) {
            command.env_remove(name);
        }
        command
            .args(arguments)
            .current_dir(self.home.path())
            .env("HOME", self.home.path())
            .env_remove("XDG_CONFIG_HOME")
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs a command to its end.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Run {
        finish(self.command(arguments).spawn().unwrap(), &arguments.join(" ")).await
    }

    /// Runs a command to its end, with this on standard input.
    pub(crate) async fn run_with(&self, arguments: &[&str], input: &str) -> Run {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A command that refuses its arguments reads nothing.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        finish(child, &arguments.join(" ")).await
    }

    /// A file in the user's home.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.home.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn contexts(&self) -> PathBuf {
        self.home.path().join(".config/abide/contexts.json")
    }
}

/// Waits for a command's end.
pub(crate) async fn finish(child: Child, what: &str) -> Run {
    let output = within(what, child.wait_with_output()).await.unwrap();
    Run {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// One node with the demo agent, and a user of it.
pub(crate) async fn demo() -> (Site, Node, Shell) {
    let site = Site::new(ABIDE);
    let node = site.start().await;
    let shell = Shell::of([&site.client].into_iter());
    (site, node, shell)
}

/// A definition of a scripted agent as a file.
pub(crate) fn write_agent(directory: &Path, name: &str, text: &str) {
    std::fs::create_dir_all(directory).unwrap();
    let definition = format!(
        "name: {name}\ndescription: Says one thing.\nmodel:\n  provider: scripted\n  \
         script: [{{text: \"{text}\"}}]\n"
    );
    std::fs::write(directory.join(format!("{name}.yaml")), definition).unwrap();
}
