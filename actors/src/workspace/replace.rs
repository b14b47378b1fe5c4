//! Puts a whole file in the place of another, so that nobody ever sees a part of it.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt, Permissions, PermissionsExt};
use rustix::fs::{Access, AtFlags, accessat};

use super::path::is_reserved;
use super::{Cancelled, FileError, Workspace};

/// As many links as the system itself follows.
const MOST_LINKS: usize = 40;

/// Where a file is, or is to be.
struct Place {
    parent: Dir,
    name: OsString,
    /// The permissions of the file that is there.
    mode: Option<u32>,
}

impl Workspace {
    /// Makes `content` the file's content, and the directories above it. Readers see the old file
    /// or the new one; after success the new one survives a crash.
    ///
    /// A file keeps its permissions, without those to run as its owner or group. A symbolic link
    /// stays: what it leads to is replaced. What is not a regular file is left alone.
    pub(crate) fn replace(
        &self,
        path: &Path,
        content: &[u8],
        cancelled: &Cancelled,
    ) -> Result<(), FileError> {
        let Place { parent, name, mode } = self.place(path)?;
        let temporary = format!(".abide-{}", self.0.clock.id("write"));
        let written = write_new(&parent, &temporary, content, mode)
            .map_err(FileError::from)
            .and_then(|()| cancelled.check())
            .and_then(|()| Ok(parent.rename(&temporary, &parent, &name)?));
        if written.is_err() {
            let _ = parent.remove_file(&temporary);
        }
        written?;
        Ok(parent.open(".")?.sync_all()?)
    }

    /// Follows the links at the end of the path, so that the file's own directory is known.
    fn place(&self, path: &Path) -> Result<Place, FileError> {
        let mut path = path.to_owned();
        for _ in 0..MOST_LINKS {
            let name = path.file_name().ok_or_else(FileError::not_a_file)?.to_owned();
            if is_reserved(&name) {
                return Err(FileError::outside());
            }
            let above = path.parent().unwrap_or(Path::new(""));
            let parent = self.directory(above)?;
            let metadata = match parent.symlink_metadata(&name) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return Ok(Place { parent, name, mode: None });
                }
                metadata => metadata?,
            };
            if metadata.is_symlink() {
                path = followed(above, &parent.read_link_contents(&name)?)?;
            } else if metadata.is_file() {
                // A rename would not ask whether the file may be written to.
                accessat(&parent, &name, Access::WRITE_OK, AtFlags::EACCESS)?;
                let mode = Some(metadata.permissions().mode() & 0o777);
                return Ok(Place { parent, name, mode });
            } else {
                return Err(FileError::not_a_file());
            }
        }
        Err(FileError::with("io_error", "too many symbolic links"))
    }

    fn directory(&self, path: &Path) -> io::Result<Dir> {
        if path.as_os_str().is_empty() {
            return self.dir().try_clone();
        }
        match self.dir().open_dir(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.dir().create_dir_all(path)?;
                self.dir().open_dir(path)
            }
            opened => opened,
        }
    }
}

fn followed(above: &Path, target: &Path) -> Result<PathBuf, FileError> {
    match target.is_absolute() {
        true => Err(FileError::outside()),
        false => Ok(above.join(target)),
    }
}

fn write_new(parent: &Dir, name: &str, content: &[u8], mode: Option<u32>) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode.unwrap_or(0o666));
    let mut file = parent.open_with(name, &options)?;
    if let Some(mode) = mode {
        // What the process's mask took away.
        file.set_permissions(Permissions::from_mode(mode))?;
    }
    file.write_all(content)?;
    file.sync_all()
}
