//! The launcher: a process of its own for each command, which ends last.

use std::fs::{self, DirBuilder};
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};

use rustix::process::{Pid, getpid, set_child_subreaper, setpriority_process, setsid};

use super::request::{Reply, Request};
use super::watch::{Watch, Why};

/// Far more than a request may be: a command is bounded, JSON makes it six times as long at most.
const LONGEST_REQUEST: u64 = 8 << 20;
/// More names taken than this is no accident.
const NAMES_TRIED: u32 = 100;

/// Runs the command that the first line of standard input describes, writes how it ended to
/// standard output, and ends when no process that came from the command is left.
///
/// The end of standard input means that nobody waits any more: everything is ended then.
pub fn launch() -> ExitCode {
    // Whatever the node's own parent left open is not for commands.
    close_fds::set_fds_cloexec(3, &[]);
    let Some(mut request) = asked() else { return ExitCode::FAILURE };
    let Some(reply) = run(&mut request).unwrap_or_else(|error| Some(Err(error.to_string()))) else {
        return ExitCode::SUCCESS;
    };
    let written = serde_json::to_vec(&reply).map(|reply| io::stdout().write_all(&reply));
    // A node that is gone reads nothing.
    if matches!(written, Ok(Ok(()))) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// `None` if the node let go before it said what it wants.
fn asked() -> Option<Request> {
    let mut line = String::new();
    io::stdin().lock().take(LONGEST_REQUEST).read_line(&mut line).ok()?;
    serde_json::from_str(&line).ok()
}

/// `None` if the node let go.
fn run(request: &mut Request) -> io::Result<Option<Reply>> {
    // What is sent to the node's group or terminal is not for us.
    setsid()?;
    set_child_subreaper(Some(getpid()))?;
    // Only root may, and only root's commands may start processes without the kernel's bound.
    let _ = setpriority_process(None::<Pid>, -10);
    request.temporary = private_directory(&request.temporary)?;
    let reply = watched(request);
    // The command may have left what cannot be removed, such as a file that never changes.
    let _ = fs::remove_dir_all(&request.temporary);
    reply
}

fn watched(request: &Request) -> io::Result<Option<Reply>> {
    let mut watch = match Watch::start(request)? {
        Ok(watch) => watch,
        Err(refusal) => return Ok(Some(Err(refusal))),
    };
    let why = watch.until_it_ends();
    let gone = watch.end_all(&why);
    Ok(match why {
        Why::LetGo => None,
        Why::Broken(error) => Some(Err(error.to_string())),
        Why::Ended(_) if !gone => Some(Err("processes of the command do not end".to_owned())),
        Why::Ended(how) => Some(Ok(watch.ended(how))),
    })
}

/// A new directory that only this user may enter.
fn private_directory(parent: &Path) -> io::Result<PathBuf> {
    for number in 0..NAMES_TRIED {
        let path = parent.join(format!("abide-{}-{number}", process::id()));
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => return made.map(|()| path),
        }
    }
    Err(io::Error::other("no name is free for a temporary directory"))
}
