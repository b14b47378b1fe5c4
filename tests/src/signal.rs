//! Signals to processes that the tests started.

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;

/// Sends a signal to a process that was not waited for yet.
pub(crate) fn signal(child: &Child, signal: Signal) {
    let pid = child.id().expect("a process that is waited for gets no signals");
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}
