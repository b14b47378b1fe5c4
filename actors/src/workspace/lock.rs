//! Locks a directory, so that writers of one file take turns across nodes.

use std::io::ErrorKind;
use std::path::Path;
use std::thread;
use std::time::Duration;

use cap_std::fs::File;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::{CancelFlag, FileError, Workspace};

/// How often a taken lock is retried; a write takes about as long.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// Locks a file's directory against other writers until it is dropped.
pub(crate) struct DirectoryLock {
    _directory: Option<File>,
}

impl Workspace {
    /// Waits until nobody writes in the file's directory, on this node or another.
    ///
    /// The lock is a file-system lock on the directory and ends with the process. On a file system
    /// without such locks, as on some networks, only the writers of one node take turns.
    pub(crate) fn lock(
        &self,
        path: &Path,
        cancelled: &CancelFlag,
    ) -> Result<DirectoryLock, FileError> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = match self.dir().open(parent.unwrap_or(Path::new("."))) {
            // There are no other writers in a directory that does not exist.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(DirectoryLock { _directory: None });
            }
            opened => opened?,
        };
        loop {
            match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => {
                    cancelled.check()?;
                    thread::sleep(RETRY_INTERVAL);
                }
                Ok(()) | Err(_) => return Ok(DirectoryLock { _directory: Some(directory) }),
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::super::{WorkspaceRef, Workspaces};
    use super::*;
    use crate::workspace::fixtures::CountingClock;

    /// Opens the workspace as another process would.
    fn another(base: &Path) -> Workspace {
        let workspaces = Workspaces::new(base.to_owned(), Arc::new(CountingClock::default()));
        workspaces
            .open(&WorkspaceRef { owner: "c1".to_owned(), ..WorkspaceRef::default() }, None)
            .unwrap()
    }

    #[test]
    fn a_writer_on_another_node_waits_until_the_first_is_done() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (another(dir.path()), another(dir.path()));
        let released = Arc::new(AtomicBool::new(false));
        let held = first.lock(Path::new("a"), &CancelFlag::default()).unwrap();
        let seen = released.clone();
        let waits = thread::spawn(move || {
            let _lock = second.lock(Path::new("a"), &CancelFlag::default()).unwrap();
            seen.load(Ordering::SeqCst)
        });
        released.store(true, Ordering::SeqCst);
        drop(held);
        assert!(waits.join().unwrap(), "the second writer had the lock too early");
    }

    #[test]
    fn a_cancelled_writer_stops_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (another(dir.path()), another(dir.path()));
        let _held = first.lock(Path::new("a"), &CancelFlag::default()).unwrap();
        let cancelled = CancelFlag::default();
        cancelled.set();
        assert!(second.lock(Path::new("a"), &cancelled).is_err());
    }
}
