//! Finds processes of the machine by a mark among their arguments.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::deadline::poll;

/// An argument that no other process has, and that `sleep` takes for some hours.
#[derive(Clone, Debug)]
pub struct Mark(String);

impl Default for Mark {
    fn default() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(format!("9999.{}{number:03}", std::process::id()))
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Mark {
    /// Waits until exactly `count` processes have the mark; a dead process has no arguments.
    pub async fn wait_for_count(&self, count: usize) {
        let what = format!("{count} processes with {self}");
        poll(&what, async || (self.count() == count).then_some(())).await;
    }

    fn count(&self) -> usize {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        // A process may end while it is being read.
        let arguments = processes.filter_map(|it| std::fs::read(it.path().join("cmdline")).ok());
        arguments.filter(|line| String::from_utf8_lossy(line).contains(&self.0)).count()
    }
}
