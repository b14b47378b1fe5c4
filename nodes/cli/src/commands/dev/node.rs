//! The node of `dev`: this program itself, as another process.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::command::setup::DevCommand;
use crate::error::CliError;
use crate::host::ENDS_WITH_PARENT;
use crate::session::Session;

/// How long the node may take to be ready: it reads its store first.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A node that ends with this command.
pub(super) struct DevNode {
    child: Child,
    pub public: String,
    pub admin: String,
}

impl DevNode {
    /// Starts a node and waits until it is ready.
    pub(super) async fn start(given: &DevCommand) -> Result<Self, CliError> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("serve")
            .arg("--store")
            .arg(format!("embedded:{}", given.store.display()))
            .arg("--workspaces")
            .arg(given.store.join("workspaces"))
            .args(["--listen", &given.listen.to_string()])
            .args(["--admin-listen", &given.admin_listen.to_string()])
            .env(ENDS_WITH_PARENT, "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // ^C is for this command, which then stops the node.
            .process_group(0)
            .kill_on_drop(true);
        if std::env::var_os("RUST_LOG").is_none() {
            command.env("RUST_LOG", "warn");
        }
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().ok_or_else(|| io::Error::other("there is no output"))?;
        let mut lines = BufReader::new(stdout).lines();
        let line = tokio::time::timeout(START_TIMEOUT, lines.next_line()).await;
        let line = line.map_err(|_| CliError::Failed("the node is not ready".to_owned()))??;
        // It has said on standard error why.
        let line = line.ok_or_else(|| CliError::Failed("the node did not start".to_owned()))?;
        let field = |name: &str| {
            let found = line.split(' ').find_map(|field| field.strip_prefix(name));
            found.unwrap_or_default().to_owned()
        };
        Ok(Self { child, public: field("public="), admin: field("admin=") })
    }

    /// A session with this node.
    pub(super) fn session(&self, session: &Session) -> Result<Session, CliError> {
        let mut options = session.options.clone();
        options.url = vec![format!("http://{}", self.public)];
        options.admin_url = vec![format!("http://{}", self.admin)];
        Session::new(options)
    }

    /// Waits for the node's end, which nobody asked for.
    pub(super) async fn ended(&mut self) -> String {
        match self.child.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }

    /// Lets the node drain and end; an interrupt kills it.
    pub(super) async fn stop(mut self, interrupt: Option<&mut tokio::signal::unix::Signal>) {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        if let Some(pid) = pid {
            // A node that has ended already needs no signal.
            let _ = kill_process(pid, Signal::TERM);
        }
        match interrupt {
            Some(interrupt) => {
                tokio::select! {
                    _ = self.child.wait() => {}
                    _ = interrupt.recv() => {}
                }
            }
            None => {
                let _ = self.child.wait().await;
            }
        }
        // What still runs is killed when the child is dropped.
    }
}
