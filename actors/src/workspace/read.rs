//! Reads a file that is a file, and no larger than it may be.

use std::io::{Error, Read};
use std::path::Path;

use cap_std::fs::{OpenOptions, OpenOptionsExt};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::{FileError, Workspace};

/// The largest file that is read whole.
pub(crate) const LARGEST_FILE: u64 = 2_000_000;

impl Workspace {
    /// What is in the file, at most 2 MB.
    ///
    /// Whatever else has the name, be it a directory, a FIFO or a device, is `not_a_regular_file`,
    /// and is never waited for.
    pub(crate) fn read(&self, path: &Path) -> Result<Vec<u8>, FileError> {
        let mut options = OpenOptions::new();
        // Opening a FIFO would wait for its writer.
        options.read(true).custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32);
        let file = self.dir().open_with(path, &options).map_err(not_opened)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(FileError::not_a_file());
        }
        let mut bytes = Vec::new();
        if metadata.len() <= LARGEST_FILE {
            // It may grow meanwhile.
            file.take(LARGEST_FILE + 1).read_to_end(&mut bytes)?;
        }
        match metadata.len().max(bytes.len() as u64) > LARGEST_FILE {
            true => Err(FileError::new("file_too_large")),
            false => Ok(bytes),
        }
    }
}

/// A socket, or a device that is not there.
fn not_opened(error: Error) -> FileError {
    match error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) {
        true => FileError::not_a_file(),
        false => error.into(),
    }
}
