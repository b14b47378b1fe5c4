//! The launcher: a separate process for each command, which exits after all its descendants.

use std::fs::{self, DirBuilder};
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};

use rustix::process::{Pid, getpid, set_child_subreaper, setpriority_process, setsid};

use super::request::{Reply, Request};
use super::watch::{EndReason, Watch};

/// Far more than any request: the command is bounded, and JSON makes it at most six times as long.
const MAX_REQUEST_BYTES: u64 = 8 << 20;
/// Attempts to find a free name for a directory; more collisions are no accident.
const MAX_NAME_ATTEMPTS: u32 = 100;

/// Runs the command that the first line of standard input describes, writes the result to standard
/// output, and exits when no process that came from the command is left.
///
/// The end of standard input means that nobody waits any more; everything is ended then.
pub fn launch() -> ExitCode {
    // File descriptors that the node inherited must not reach commands.
    close_fds::set_fds_cloexec(3, &[]);
    let Some(mut request) = read_request() else { return ExitCode::FAILURE };
    let Some(reply) = run(&mut request).unwrap_or_else(|error| Some(Err(error.to_string()))) else {
        return ExitCode::SUCCESS;
    };
    let written = serde_json::to_vec(&reply).map(|reply| io::stdout().write_all(&reply));
    // Fails if the node has gone.
    if matches!(written, Ok(Ok(()))) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Reads the request; `None` if the node closed the leash first.
fn read_request() -> Option<Request> {
    let mut line = String::new();
    io::stdin().lock().take(MAX_REQUEST_BYTES).read_line(&mut line).ok()?;
    serde_json::from_str(&line).ok()
}

/// Runs the command; `None` if the node closed the leash.
fn run(request: &mut Request) -> io::Result<Option<Reply>> {
    // Signals to the node's group or terminal must not reach the launcher.
    setsid()?;
    set_child_subreaper(Some(getpid()))?;
    // Only root may raise its priority; and only root's commands need it, since the kernel does not
    // limit their processes.
    let _ = setpriority_process(None::<Pid>, -10);
    request.temporary = private_directory(&request.temporary)?;
    let reply = run_watched(request);
    // The command may have left files that cannot be removed, such as an immutable one.
    let _ = fs::remove_dir_all(&request.temporary);
    reply
}

fn run_watched(request: &Request) -> io::Result<Option<Reply>> {
    let mut watch = match Watch::start(request)? {
        Ok(watch) => watch,
        Err(refusal) => return Ok(Some(Err(refusal))),
    };
    let reason = watch.wait();
    let all_ended = watch.end_descendants(&reason);
    Ok(match reason {
        EndReason::Abandoned => None,
        EndReason::WatchFailed(error) => Some(Err(error.to_string())),
        EndReason::Ended(_) if !all_ended => {
            Some(Err("processes of the command cannot be killed".to_owned()))
        }
        EndReason::Ended(status) => Some(Ok(watch.into_output(status))),
    })
}

/// A new directory that only this user may enter.
fn private_directory(parent: &Path) -> io::Result<PathBuf> {
    for number in 0..MAX_NAME_ATTEMPTS {
        let path = parent.join(format!("abide-{}-{number}", process::id()));
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => return made.map(|()| path),
        }
    }
    Err(io::Error::other("no name is free for a temporary directory"))
}
