//! Replaces whole files atomically, so that no reader sees a half-written file.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt, Permissions, PermissionsExt};
use rustix::fs::{Access, AtFlags, accessat};

use super::path::is_reserved;
use super::{CancelFlag, FileError, Workspace};

/// As many symbolic links as the operating system follows.
const MAX_SYMLINKS: usize = 40;

/// The place of a file to replace or to create.
struct ReplaceTarget {
    parent: Dir,
    name: OsString,
    /// The permissions of the existing file.
    mode: Option<u32>,
}

impl Workspace {
    /// Replaces the file's content, creating the directories above it. Readers see the old file or
    /// the new one; after success the new one survives a crash.
    ///
    /// A file keeps its permissions, without set-user-id and set-group-id. A symbolic link stays:
    /// its target is replaced. Anything but a regular file is refused.
    pub(crate) fn replace(
        &self,
        path: &Path,
        content: &[u8],
        cancelled: &CancelFlag,
    ) -> Result<(), FileError> {
        let ReplaceTarget { parent, name, mode } = self.replace_target(path)?;
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

    /// Follows symbolic links at the end of the path to find the file's actual directory.
    fn replace_target(&self, path: &Path) -> Result<ReplaceTarget, FileError> {
        let mut path = path.to_owned();
        for _ in 0..MAX_SYMLINKS {
            let name = path.file_name().ok_or_else(FileError::not_a_file)?.to_owned();
            if is_reserved(&name) {
                return Err(FileError::outside());
            }
            let parent_path = path.parent().unwrap_or(Path::new(""));
            let parent = self.open_or_create_dir(parent_path)?;
            let metadata = match parent.symlink_metadata(&name) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return Ok(ReplaceTarget { parent, name, mode: None });
                }
                metadata => metadata?,
            };
            if metadata.is_symlink() {
                path = follow_link(parent_path, &parent.read_link_contents(&name)?)?;
            } else if metadata.is_file() {
                // A rename does not check whether the file is writable.
                accessat(&parent, &name, Access::WRITE_OK, AtFlags::EACCESS)?;
                let mode = Some(metadata.permissions().mode() & 0o777);
                return Ok(ReplaceTarget { parent, name, mode });
            } else {
                return Err(FileError::not_a_file());
            }
        }
        Err(FileError::with_detail("io_error", "too many symbolic links"))
    }

    fn open_or_create_dir(&self, path: &Path) -> io::Result<Dir> {
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

fn follow_link(parent_path: &Path, target: &Path) -> Result<PathBuf, FileError> {
    if target.is_absolute() { Err(FileError::outside()) } else { Ok(parent_path.join(target)) }
}

fn write_new(parent: &Dir, name: &str, content: &[u8], mode: Option<u32>) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode.unwrap_or(0o666));
    let mut file = parent.open_with(name, &options)?;
    if let Some(mode) = mode {
        // Restores the permissions that the process's umask removed.
        file.set_permissions(Permissions::from_mode(mode))?;
    }
    file.write_all(content)?;
    file.sync_all()
}
