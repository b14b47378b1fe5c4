//! How the node starts its launcher.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::{env, io};

use tokio::process::{Child, Command};

/// The hidden subcommand of the program that is [`launch`](super::launcher_process).
pub const LAUNCH: &str = "launch-command";
/// The hidden subcommand of the program that is [`confine`](super::confine).
pub const CONFINE: &str = "confine-command";

/// The program that runs commands for the node: one whose `launch-command` is
/// [`launch`](super::launcher_process) and whose `confine-command` is [`confine`](super::confine).
#[derive(Clone, Debug)]
pub struct Launcher {
    pub program: PathBuf,
    pub args: Vec<OsString>,
}

impl Launcher {
    /// This very program, also after its file was replaced or removed.
    pub fn this_program() -> Self {
        // The kernel's link to what runs, and the child that follows it is still this program.
        Self::of("/proc/self/exe")
    }

    /// No program: every command fails to start, and says so.
    pub fn missing() -> Self {
        Self { program: PathBuf::new(), args: Vec::new() }
    }

    /// A program like this one.
    pub fn of(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into(), args: vec![LAUNCH.into()] }
    }

    /// A child with pipes to its input and output. Dropping it does not end it.
    pub(super) fn start(&self, directory: &Path) -> io::Result<Child> {
        if self.program.as_os_str().is_empty() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "this program has no launcher"));
        }
        Command::new(&self.program)
            .args(&self.args)
            .current_dir(directory)
            .env_clear()
            .envs(env::vars_os().filter(|(name, _)| is_harmless(name)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
    }
}

/// What a command may know of the node's environment: where programs are, and the language and
/// the time zone of the place. All else may be a secret.
fn is_harmless(name: &OsStr) -> bool {
    name == "PATH"
        || name == "LANG"
        || name == "TZ"
        || name.to_str().is_some_and(|name| name.starts_with("LC_"))
}
