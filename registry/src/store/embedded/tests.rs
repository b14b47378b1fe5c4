//! Promises of the embedded store only.
#![allow(clippy::unwrap_used)]

mod crashes;
mod deletions;
mod faults;
mod files;

use std::io;

/// A fault of the disk.
#[derive(Debug, Default)]
pub(super) enum Fault {
    #[default]
    None,
    /// The disk takes this many more bytes.
    Room(usize),
    /// Nothing can be written.
    Broken,
}

impl Fault {
    pub(super) fn apply(&mut self, bytes: usize) -> io::Result<()> {
        match self {
            Fault::None => Ok(()),
            Fault::Room(room) if *room >= bytes => {
                *room -= bytes;
                Ok(())
            }
            Fault::Room(room) => {
                *room = 0;
                Err(io::Error::from(io::ErrorKind::StorageFull))
            }
            Fault::Broken => Err(io::Error::other("injected")),
        }
    }
}

mod suite {
    use std::sync::Arc;

    use super::super::super::Store;
    use super::super::super::conformance::conformance;
    use super::super::{Durability, Embedded};

    fn open() -> (tempfile::TempDir, Arc<dyn Store>) {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(dir.path(), Durability::Os).unwrap();
        (dir, Arc::new(store))
    }

    conformance!(open());
}
