//! A real headless browser with its own temporary profile.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::deadline::POLL_INTERVAL;

/// The browser's program, from Debian's package `chromium`, which `.ci/run` installs.
pub const PROGRAM: &str = "/usr/bin/chromium";

/// How long a start may take: the browser reads 300 MB on a machine that also builds and tests.
pub const START_TIMEOUT: Duration = Duration::from_secs(90);

/// A browser that shows one page. Dropping the value ends the process and removes its profile.
pub struct Browser {
    child: Child,
    _profile: TempDir,
}

impl Browser {
    /// Opens a page. Returns when the browser is running.
    pub async fn open(url: &str) -> Self {
        assert_installed();
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"]);
        command.args(["--no-first-run", "--disable-background-networking", "--disable-sync"]);
        // A container's /dev/shm may be too small.
        command.args(["--disable-component-update", "--disable-dev-shm-usage"]);
        // The browser writes the file `DevToolsActivePort` into its profile once it is running.
        command.args(["--remote-debugging-port=0"]);
        command.arg(format!("--user-data-dir={}", profile.path().display())).arg(url);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // A process group of its own, so that its child processes end with it.
        let child = command.process_group(0).kill_on_drop(true).spawn().unwrap();
        let port_file = profile.path().join("DevToolsActivePort");
        let started = timeout(START_TIMEOUT, async {
            while !port_file.exists() {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        });
        assert!(started.await.is_ok(), "the browser was not running after {START_TIMEOUT:?}");
        Self { child, _profile: profile }
    }
}

/// Fails with one clear line when the browser is not installed.
pub fn assert_installed() {
    assert!(Path::new(PROGRAM).exists(), "{PROGRAM} is missing: .ci/run installs it");
}

impl Drop for Browser {
    fn drop(&mut self) {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(pid as i32));
        if let Some(group) = pid {
            // The browser may have ended by itself.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}
