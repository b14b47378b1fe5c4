//! Starts the launcher process from the node.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::{env, io};

use tokio::net::UnixStream;
use tokio::process::{Child, Command};

use super::{confine, launch};

/// The hidden subcommand of the program that runs [`launch`](super::launch).
pub const LAUNCH_SUBCOMMAND: &str = "launch-command";
/// The hidden subcommand of the program that runs [`confine`](super::confine()).
pub const CONFINE_SUBCOMMAND: &str = "confine-command";

/// The program that the node starts as launcher: its subcommand `launch-command` must run
/// [`launch`](super::launch), and `confine-command` must run [`confine`](super::confine()).
#[derive(Clone, Debug)]
pub struct Launcher {
    pub program: PathBuf,
    pub args: Vec<OsString>,
}

impl Launcher {
    /// This program itself, even after its file was replaced or removed.
    pub fn this_program() -> Self {
        // The kernel's link to the running program; the child that follows it is still this
        // program.
        Self::of("/proc/self/exe")
    }

    /// No program: every command fails to start, and says so.
    pub fn missing() -> Self {
        Self { program: PathBuf::new(), args: Vec::new() }
    }

    /// A program that has the same subcommands.
    pub fn of(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), args: vec![LAUNCH_SUBCOMMAND.into()] }
    }

    /// Starts a launcher, and opens the socket to it, which is its leash, too. Dropping the child does
    /// not end it.
    pub(super) fn start(
        &self,
        directory: &Path,
        stdio: fn() -> Stdio,
    ) -> io::Result<LauncherProcess> {
        if self.program.as_os_str().is_empty() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "this program has no launcher"));
        }
        let (control, theirs) = UnixStream::pair()?;
        let theirs = theirs.into_std()?;
        theirs.set_nonblocking(false)?;
        let child = Command::new(&self.program)
            .args(&self.args)
            .current_dir(directory)
            .env_clear()
            .envs(env::vars_os().filter(|(name, _)| is_harmless(name)))
            .stdin(stdio())
            .stdout(stdio())
            .stderr(OwnedFd::from(theirs))
            .spawn()?;
        Ok(LauncherProcess { child, control })
    }
}

/// A launcher that waits for its request.
pub(super) struct LauncherProcess {
    pub(super) child: Child,
    /// Takes the request and gives the reply. When its writing half is closed, the launcher ends
    /// everything.
    pub(super) control: UnixStream,
}

/// The stage of the launcher that the arguments of a process ask for, its own name included.
pub fn requested_stage(arguments: impl IntoIterator<Item = OsString>) -> Option<fn() -> ExitCode> {
    let mut arguments = arguments.into_iter().skip(1);
    let stage: fn() -> ExitCode = match arguments.next()?.to_str()? {
        LAUNCH_SUBCOMMAND => launch,
        CONFINE_SUBCOMMAND => confine,
        _ => return None,
    };
    arguments.next().is_none().then_some(stage)
}

/// The environment variables that every program may see: where programs are, the language and the time
/// zone. Any other may hold a secret.
fn is_harmless(name: &OsStr) -> bool {
    name == "PATH"
        || name == "LANG"
        || name == "TZ"
        || name.to_str().is_some_and(|name| name.starts_with("LC_"))
}
