//! The second stage of the launcher: becomes the command, within its limits.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use rustix::process::{Signal, nice, set_parent_process_death_signal};
use rustix::thread::set_no_new_privs;

use super::request::Request;
use super::sandbox;

/// A command yields to the node and to its launcher, so that no flood of processes starves them.
const NICER: i32 = 5;

/// Becomes the command that standard input describes, a socket from the launcher; or writes the
/// reason to it why that cannot be.
pub fn confine() -> ExitCode {
    let Ok(launcher) = io::stdin().as_fd().try_clone_to_owned() else { return ExitCode::FAILURE };
    let mut launcher = UnixStream::from(launcher);
    let Err(why) = become_command(&mut launcher);
    // When the launcher is gone there is nobody to tell.
    let _ = launcher.write_all(why.as_bytes());
    ExitCode::FAILURE
}

fn become_command(launcher: &mut UnixStream) -> Result<Infallible, String> {
    let mut request = Vec::new();
    launcher.read_to_end(&mut request).map_err(said("its request"))?;
    let request: Request = serde_json::from_slice(&request).map_err(said("its request"))?;
    // Only where the launcher is killed with no time to clean up.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(said("its end"))?;
    set_no_new_privs(true).map_err(said("its privileges"))?;
    nice(NICER).map_err(said("its priority"))?;
    // When memory runs out, the kernel is to choose the command, not the node. A container may
    // forbid it.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    if request.sandboxed {
        let open = |path| File::open(path).map_err(said("its directories"));
        let writable = [open(".".as_ref())?, open(request.temporary.as_path())?];
        sandbox::enter(request.network, &writable).map_err(said("the sandbox"))?;
    }
    request.limits.take_on().map_err(said("its limits"))?;
    let mut error = shell("/bin/bash", &request.command);
    if error.kind() == ErrorKind::NotFound {
        error = shell("/bin/sh", &request.command);
    }
    Err(said("the shell")(error))
}

/// Returns only if it cannot.
fn shell(program: &str, command: &str) -> io::Error {
    // Input is a socket up to here, and what the command reads is the end of file.
    Command::new(program).args(["-c", "--", command]).stdin(Stdio::null()).exec()
}

fn said<E: ToString>(what: &str) -> impl FnOnce(E) -> String {
    move |error| format!("{what}: {}", error.to_string())
}
