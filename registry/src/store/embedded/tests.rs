//! What only the embedded store promises.

use std::io;

/// What is wrong with the disk.
#[derive(Debug, Default)]
pub(super) enum Fault {
    #[default]
    None,
    /// It takes so many more bytes.
    Room(usize),
    /// Nothing can be written.
    Broken,
}

impl Fault {
    pub(super) fn strike(&mut self, bytes: usize) -> io::Result<()> {
        match self {
            Fault::None => Ok(()),
            Fault::Room(room) if *room >= bytes => {
                *room -= bytes;
                Ok(())
            }
            Fault::Room(_) => Err(io::Error::from(io::ErrorKind::StorageFull)),
            Fault::Broken => Err(io::Error::other("injected")),
        }
    }
}
