//! The launcher's second stage: it sets the limits and the sandbox, then becomes the program.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::{Signal, nice, set_parent_process_death_signal};
use rustix::thread::set_no_new_privs;

use super::request::{Program, Request};
use super::{handover, sandbox};

/// Programs run at a lower priority than the node and the launcher, so that no flood of processes
/// starves these.
const NICE_INCREMENT: i32 = 5;

/// Becomes the program that the launcher describes on standard input, which is a socket; or writes
/// the reason for the failure to the socket.
pub fn confine() -> ExitCode {
    let Ok(launcher) = io::stdin().as_fd().try_clone_to_owned() else { return ExitCode::FAILURE };
    let mut launcher = UnixStream::from(launcher);
    let Err(why) = become_program(&mut launcher);
    // If the launcher has gone, nobody reads the reason.
    let _ = launcher.write_all(why.as_bytes());
    ExitCode::FAILURE
}

fn become_program(launcher: &mut UnixStream) -> Result<Infallible, String> {
    let input = handover::receive(launcher).map_err(describe("its input"))?;
    let mut request = Vec::new();
    launcher.read_to_end(&mut request).map_err(describe("its request"))?;
    let request: Request = serde_json::from_slice(&request).map_err(describe("its request"))?;
    // Matters only if the launcher is killed and cannot clean up.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(describe("its end"))?;
    set_no_new_privs(true).map_err(describe("its privileges"))?;
    nice(NICE_INCREMENT).map_err(describe("its priority"))?;
    // When memory runs out, the kernel should kill the command, not the node. A container may
    // forbid this setting.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    if request.sandboxed {
        let open = |path| File::open(path).map_err(describe("its directories"));
        let writable = [open(".".as_ref())?, open(request.temporary.as_path())?];
        sandbox::enter(&request.ports, &writable, &request.hidden_paths)
            .map_err(describe("the sandbox"))?;
    }
    request.limits.apply().map_err(describe("its limits"))?;
    Err(match &request.program {
        Program::CommandLine(text) => describe("the shell")(exec_shell(text, &input)),
        Program::Server { program, args } => describe("the program")(exec(program, args, &input)),
    })
}

/// Replaces this process by the shell; returns only on failure.
fn exec_shell(text: &str, input: &OwnedFd) -> io::Error {
    let args = ["-c", "--", text];
    let error = exec("/bin/bash", &args, input);
    if error.kind() == ErrorKind::NotFound { exec("/bin/sh", &args, input) } else { error }
}

/// Replaces this process; returns only on failure. Standard input was the launcher's socket until here.
fn exec(program: &str, args: &[impl AsRef<OsStr>], input: &OwnedFd) -> io::Error {
    match input.try_clone() {
        Ok(input) => Command::new(program).args(args).stdin(input).exec(),
        Err(error) => error,
    }
}

fn describe<E: ToString>(what: &str) -> impl FnOnce(E) -> String {
    move |error| format!("{what}: {}", error.to_string())
}
