//! The guard at the top of `main` behind which a program is its own launcher of commands and servers.

use std::env;
use std::process::{self, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};

use abide_actors::exec::{Launcher, requested_stage};

/// Whether this process can be started once more as a launcher.
static GUARDED: AtomicBool = AtomicBool::new(false);

/// Becomes the launcher of a program, if this process was started to be one; returns otherwise.
///
/// A node runs each command of the tool `bash`, and each MCP server that is a program, in a separate
/// process: it starts its own program once more, with `launch-command` (or, in turn, `confine-command`) as the only argument. Call this as the
/// first thing in `main`, before any thread is started and before arguments are read: the second
/// process must not begin to do what the program does, and the sandbox is entered by one thread. With
/// `#[tokio::main]` it would be too late; build the runtime below it.
///
/// A program that does not call it runs neither: they fail, and `/readyz` says why.
pub fn run_launcher_if_asked() {
    match requested_stage(env::args_os()) {
        Some(stage) => process::exit(i32::from(stage() != ExitCode::SUCCESS)),
        None => GUARDED.store(true, Ordering::Relaxed),
    }
}

/// The launcher that this program is; `None` if it would begin its own work instead.
pub(crate) fn own() -> Option<Launcher> {
    GUARDED.load(Ordering::Relaxed).then(Launcher::this_program)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn is_requested(arguments: &[&str]) -> bool {
        requested_stage(arguments.iter().map(OsString::from)).is_some()
    }

    #[test]
    fn only_the_lone_subcommand_asks_for_the_launcher() {
        assert!(is_requested(&["program", "launch-command"]));
        assert!(is_requested(&["program", "confine-command"]));
        assert!(!is_requested(&["program"]));
        assert!(!is_requested(&["launch-command"]));
        assert!(!is_requested(&["program", "serve"]));
        assert!(!is_requested(&["program", "launch-command", "now"]));
    }

    #[test]
    fn a_program_without_the_guard_has_no_launcher() {
        assert!(own().is_none());
    }
}
