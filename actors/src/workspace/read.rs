//! Reads a regular file of limited size.

use std::io::{Error, Read};
use std::path::Path;

use cap_std::fs::{OpenOptions, OpenOptionsExt};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::{FileError, Workspace};

/// The largest file that is read.
pub(crate) const MAX_FILE_BYTES: u64 = 2_000_000;

impl Workspace {
    /// Reads the content of a file of at most 2 MB.
    ///
    /// Anything else, such as a directory, a FIFO or a device, is `not_a_regular_file` and never
    /// blocks.
    pub(crate) fn read(&self, path: &Path) -> Result<Vec<u8>, FileError> {
        let mut options = OpenOptions::new();
        // Without NONBLOCK, opening a FIFO would wait for its writer.
        options.read(true).custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32);
        let file = self.dir().open_with(path, &options).map_err(open_error)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(FileError::not_a_file());
        }
        let mut bytes = Vec::new();
        if metadata.len() <= MAX_FILE_BYTES {
            // The file may grow meanwhile.
            file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
        }
        if metadata.len().max(bytes.len() as u64) > MAX_FILE_BYTES {
            Err(FileError::new("file_too_large"))
        } else {
            Ok(bytes)
        }
    }
}

/// `ENXIO` means a socket, or a device that does not exist.
fn open_error(error: Error) -> FileError {
    if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) {
        FileError::not_a_file()
    } else {
        error.into()
    }
}
