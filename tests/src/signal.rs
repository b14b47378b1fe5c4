//! Sends signals to processes that the tests started.

use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::process::Child;
use tokio::task::JoinHandle;

use crate::deadline::poll;

/// How long a starved process waits for the CPU, and how long it then has it.
const STARVED_TIME: Duration = Duration::from_millis(150);
const RUNNING_TIME: Duration = Duration::from_millis(30);

/// Sends a signal to a process that has not been waited for yet.
pub fn signal(child: &Child, signal: Signal) {
    kill_process(pid(child), signal).unwrap();
}

/// Sends SIGTERM to a process that has not been waited for yet.
pub fn terminate(child: &Child) {
    signal(child, Signal::TERM);
}

/// Sends SIGSTOP. Returns when every thread of the process has stopped, which is later than the
/// signal.
pub async fn stop(child: &Child) {
    signal(child, Signal::STOP);
    // Waits for the stop only: the exit status is left to the owner of the process.
    let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
    let stopped = async || waitid(WaitId::Pid(pid(child)), options).unwrap().map(|_| ());
    poll("a process to stop", stopped).await;
}

/// A process that gets the CPU for a moment only, again and again, until `end`.
pub struct Starvation {
    pid: Pid,
    task: JoinHandle<()>,
}

impl Starvation {
    /// Starves a process that has not been waited for, and that nobody ends before `end`.
    pub(crate) fn of(child: &Child) -> Self {
        let pid = pid(child);
        let task = tokio::spawn(async move {
            // Ends early if the process has ended by itself, which its owner reports.
            while kill_process(pid, Signal::STOP).is_ok() {
                tokio::time::sleep(STARVED_TIME).await;
                let _ = kill_process(pid, Signal::CONT);
                tokio::time::sleep(RUNNING_TIME).await;
            }
        });
        Self { pid, task }
    }

    /// Lets the process run on.
    pub async fn end(self) {
        self.task.abort();
        // Only then it sends no more signals.
        let _ = self.task.await;
        let _ = kill_process(self.pid, Signal::CONT);
    }
}

fn pid(child: &Child) -> Pid {
    let pid = child.id().expect("a process that has been waited for gets no signals");
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}
