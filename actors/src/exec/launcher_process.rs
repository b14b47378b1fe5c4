//! The launcher: a separate process for each program, which exits after all its descendants.

use std::fs::{self, DirBuilder};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};

use rustix::process::{Pid, getpid, set_child_subreaper, setpriority_process, setsid};
use serde::Serialize;

use super::request::{Program, Reply, Request, StartReply};
use super::watch::{EndReason, Watch};

/// Far more than any request: the command is bounded, and JSON makes it at most six times as long.
const MAX_REQUEST_BYTES: u64 = 8 << 20;
/// Attempts to find a free name for a directory; more collisions are no accident.
const MAX_NAME_ATTEMPTS: u32 = 100;

/// Runs the program that the first line of a socket describes, writes the outcome to the socket, and
/// exits when no process that came from the program is left. The socket takes the place of standard
/// error; standard input and output are the program's, if it is a server.
///
/// The end of the socket means that nobody waits any more; everything is ended then.
pub fn launch() -> ExitCode {
    // File descriptors that the node inherited must not reach programs.
    close_fds::set_fds_cloexec(3, &[]);
    let Ok(control) = io::stderr().as_fd().try_clone_to_owned() else { return ExitCode::FAILURE };
    let control = UnixStream::from(control);
    let Some(mut request) = read_request(&control) else { return ExitCode::FAILURE };
    let outcome = run(&mut request, &control).unwrap_or_else(|error| Some(Err(error.to_string())));
    // Fails if the node has gone.
    let written = outcome.map(|reply| write_line(&control, &reply));
    if matches!(written, None | Some(Ok(()))) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Reads the request; `None` if the node closed the leash first.
fn read_request(control: &UnixStream) -> Option<Request> {
    let mut line = String::new();
    // The node sends nothing else.
    BufReader::new(control.take(MAX_REQUEST_BYTES)).read_line(&mut line).ok()?;
    serde_json::from_str(&line).ok()
}

fn write_line(mut control: &UnixStream, reply: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    control.write_all(&line)
}

/// Runs the program; `None` if there is nothing to reply, since the node closed the leash or has the
/// reply already.
fn run(request: &mut Request, control: &UnixStream) -> io::Result<Option<Reply>> {
    // Signals to the node's group or terminal must not reach the launcher.
    setsid()?;
    set_child_subreaper(Some(getpid()))?;
    // Only root may raise its priority; and only root's commands need it, since the kernel does not
    // limit their processes.
    let _ = setpriority_process(None::<Pid>, -10);
    request.temporary = private_directory(&request.temporary)?;
    let reply = run_watched(request, control);
    // The program may have left files that cannot be removed, such as an immutable one.
    let _ = fs::remove_dir_all(&request.temporary);
    reply
}

fn run_watched(request: &Request, control: &UnixStream) -> io::Result<Option<Reply>> {
    let mut watch = match Watch::start(request, control)? {
        Ok(watch) => watch,
        Err(refusal) => return Ok(Some(Err(refusal))),
    };
    let is_server = matches!(request.program, Program::Server { .. });
    if is_server {
        write_line(control, &StartReply::Ok(()))?;
    }
    let reason = watch.wait();
    let all_ended = watch.end_descendants(&reason);
    Ok(match reason {
        _ if is_server => None,
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
