//! Keeps writers of one file apart, those of other nodes too.

use std::io::ErrorKind;
use std::path::Path;
use std::thread;
use std::time::Duration;

use cap_std::fs::File;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::{Cancelled, FileError, Workspace};

/// How soon the end of another's write is seen; a write takes about as long.
const SOON: Duration = Duration::from_millis(5);

/// Holds the directory of a file against other writers until it is dropped.
pub(crate) struct Lock {
    _directory: Option<File>,
}

impl Workspace {
    /// Waits until nobody writes in the directory of the file, on this node or another.
    ///
    /// The lock is the file system's, of the directory, and ends with the process. A file system
    /// that has no such locks, as some on the network, keeps only the writers of one node apart.
    pub(crate) fn lock(&self, path: &Path, cancelled: &Cancelled) -> Result<Lock, FileError> {
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        let directory = match self.dir().open(above.unwrap_or(Path::new("."))) {
            // Whoever makes it writes the first file in it.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Lock { _directory: None });
            }
            opened => opened?,
        };
        loop {
            match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => {
                    cancelled.check()?;
                    thread::sleep(SOON);
                }
                Ok(()) | Err(_) => return Ok(Lock { _directory: Some(directory) }),
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
    use crate::workspace::fixtures::Counting;

    /// Another program that has the same directory.
    fn another(base: &Path) -> Workspace {
        let workspaces = Workspaces::new(base.to_owned(), Arc::new(Counting::default()));
        workspaces
            .open(&WorkspaceRef { owner: "c1".to_owned(), ..WorkspaceRef::default() }, None)
            .unwrap()
    }

    #[test]
    fn whoever_writes_elsewhere_waits_until_the_first_is_done() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (another(dir.path()), another(dir.path()));
        let released = Arc::new(AtomicBool::new(false));
        let held = first.lock(Path::new("a"), &Cancelled::default()).unwrap();
        let seen = released.clone();
        let waits = thread::spawn(move || {
            let _lock = second.lock(Path::new("a"), &Cancelled::default()).unwrap();
            seen.load(Ordering::SeqCst)
        });
        released.store(true, Ordering::SeqCst);
        drop(held);
        assert!(waits.join().unwrap(), "it had the lock too early");
    }

    #[test]
    fn whoever_is_not_waited_for_stops_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (another(dir.path()), another(dir.path()));
        let _held = first.lock(Path::new("a"), &Cancelled::default()).unwrap();
        let cancelled = Cancelled::default();
        cancelled.set();
        assert!(second.lock(Path::new("a"), &cancelled).is_err());
    }
}
