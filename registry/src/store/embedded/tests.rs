//! Promises of the embedded store only.
#![allow(clippy::unwrap_used)]

mod crashes;
mod decisions;
mod deletions;
mod encryption;
mod faults;
mod files;
mod lists;
mod overwrite;
mod staging;
mod usage;

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
    /// What was written does not get to the disk.
    Sync,
    /// The thread that writes panics, once.
    Panic,
}

impl Fault {
    pub(super) fn apply(&mut self, bytes: usize) -> io::Result<()> {
        match self {
            Fault::None | Fault::Sync => Ok(()),
            Fault::Room(room) if *room >= bytes => {
                *room -= bytes;
                Ok(())
            }
            Fault::Room(room) => {
                *room = 0;
                Err(io::Error::from(io::ErrorKind::StorageFull))
            }
            Fault::Broken => Err(io::Error::other("injected")),
            Fault::Panic => {
                *self = Fault::None;
                panic!("injected")
            }
        }
    }

    pub(super) fn apply_to_sync(&self) -> io::Result<()> {
        match self {
            Fault::Sync => Err(io::Error::other("injected")),
            Fault::None | Fault::Room(_) | Fault::Broken | Fault::Panic => Ok(()),
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

mod encrypted_suite {
    use std::sync::Arc;

    use super::super::super::Store;
    use super::super::super::conformance::{conformance, key_ring};
    use super::super::{Durability, Embedded};

    fn open() -> (tempfile::TempDir, Arc<dyn Store>) {
        let dir = tempfile::tempdir().unwrap();
        let keys = Some(key_ring(&[1]));
        let store = Embedded::open_encrypted(dir.path(), Durability::Os, keys).unwrap();
        (dir, Arc::new(store))
    }

    conformance!(open());
}
