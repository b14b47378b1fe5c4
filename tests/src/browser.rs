//! A real browser, without a window, on a profile of its own.

use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// Debian's package of this name has it; `.ci/run` installs it.
const PROGRAM: &str = "/usr/bin/chromium";

/// A browser that shows one page; it ends with this value, its profile too.
pub struct Browser {
    child: Child,
    _profile: TempDir,
}

impl Browser {
    /// Opens a page.
    pub fn open(url: &str) -> Self {
        assert!(Path::new(PROGRAM).exists(), "{PROGRAM} is missing: .ci/run installs it");
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"]);
        command.args(["--no-first-run", "--disable-background-networking", "--disable-sync"]);
        // What a container has in /dev/shm may be too little.
        command.args(["--disable-component-update", "--disable-dev-shm-usage"]);
        // Without it a headless browser opens the page, prints it and leaves.
        command.args(["--remote-debugging-port=0"]);
        command.arg(format!("--user-data-dir={}", profile.path().display())).arg(url);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Its helpers are to end with it.
        let child = command.process_group(0).kill_on_drop(true).spawn().unwrap();
        Self { child, _profile: profile }
    }
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
