//! Sends signals to processes that the tests started.

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::process::Child;

use crate::deadline::poll;

/// Sends a signal to a process that has not been waited for yet.
pub(crate) fn signal(child: &Child, signal: Signal) {
    kill_process(pid(child), signal).unwrap();
}

/// Sends SIGSTOP. Returns when every thread of the process has stopped, which is later than the
/// signal.
pub(crate) async fn stop(child: &Child) {
    signal(child, Signal::STOP);
    // Waits for the stop only: the exit status is left to the owner of the process.
    let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
    let stopped = async || waitid(WaitId::Pid(pid(child)), options).unwrap().map(|_| ());
    poll("a process to stop", stopped).await;
}

fn pid(child: &Child) -> Pid {
    let pid = child.id().expect("a process that has been waited for gets no signals");
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}
