//! A real browser, without a window, on a profile of its own.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::deadline::POLL_INTERVAL;

/// Debian's package of this name has it; `.ci/run` installs it.
pub const PROGRAM: &str = "/usr/bin/chromium";

/// How long its start may take: it reads 300 MB, on a machine that builds and tests beside it.
pub const START_TIMEOUT: Duration = Duration::from_secs(90);

/// A browser that shows one page; it ends with this value, its profile too.
pub struct Browser {
    child: Child,
    _profile: TempDir,
}

impl Browser {
    /// Opens a page; returns when the browser runs.
    pub async fn open(url: &str) -> Self {
        assert_installed();
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"]);
        command.args(["--no-first-run", "--disable-background-networking", "--disable-sync"]);
        // What a container has in /dev/shm may be too little.
        command.args(["--disable-component-update", "--disable-dev-shm-usage"]);
        // It notes in its profile that it listens, and then it runs.
        command.args(["--remote-debugging-port=0"]);
        command.arg(format!("--user-data-dir={}", profile.path().display())).arg(url);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Its helpers are to end with it.
        let child = command.process_group(0).kill_on_drop(true).spawn().unwrap();
        let runs = profile.path().join("DevToolsActivePort");
        let started = timeout(START_TIMEOUT, async {
            while !runs.exists() {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        });
        assert!(started.await.is_ok(), "the browser did not run after {START_TIMEOUT:?}");
        Self { child, _profile: profile }
    }
}

/// Fails with one clear line when there is no browser.
pub fn assert_installed() {
    assert!(Path::new(PROGRAM).exists(), "{PROGRAM} is missing: .ci/run installs it");
}

impl Drop for Browser {
    fn drop(&mut self) {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(pid as i32));
        if let Some(group) = pid {
            // It may have ended by itself.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}
