//! Opens and discards workspace directories, and identifies their storage.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_fs_ext::DirExt;
use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use rustix::fs::OFlags;

use super::{OpenWorkspace, Workspace, WorkspaceError, WorkspaceRef, Workspaces};
use crate::clock::Clock;

/// The file in each root that identifies the storage.
const MARKER_FILE: &str = ".abide-storage";
/// An id is some tens of bytes long; longer text is not an id.
const MAX_ID_BYTES: u64 = 256;

/// Opens the workspace. Also returns the root as the reference names it.
pub(super) fn open<'a>(
    workspaces: &'a Workspaces,
    site: &'a WorkspaceRef,
    recorded: Option<&str>,
) -> Result<(&'a Path, Workspace), WorkspaceError> {
    let root = site.root.as_deref().unwrap_or(&workspaces.base);
    let failed = |error: io::Error| unavailable(root, format!("cannot be opened: {error}"));
    if site.root.is_none() && recorded.is_none() {
        std::fs::create_dir_all(root).map_err(failed)?;
    }
    let dir = Dir::open_ambient_dir(root, ambient_authority()).map_err(failed)?;
    let canonical = real_path(&dir).map_err(failed)?;
    check_permission(workspaces, site, &canonical)?;
    let storage = match recorded {
        Some(recorded) => Some(check_storage(root, &dir, recorded)?),
        None => find_or_make_marker(&dir, workspaces.clock.as_ref())
            .map_err(|error| unavailable(root, format!("cannot be marked: {error}")))?,
    };
    let (path, dir) = if site.root.is_some() && site.shared {
        (canonical, dir)
    } else {
        let name = own_name(&dir, &site.owner, recorded.is_some());
        let path = canonical.join(&name);
        let own = own_directory(&dir, &name, recorded.is_some());
        let own = own.map_err(|error| unavailable(&path, error))?;
        (path, own)
    };
    let clock = Arc::clone(&workspaces.clock);
    let turns = Arc::clone(&workspaces.write_queue);
    let searches = Arc::clone(&workspaces.searches);
    let open = OpenWorkspace { root: path, storage, dir, clock, write_queue: turns, searches };
    Ok((root, Workspace(Arc::new(open))))
}

/// A discarded directory, under a name that no owner can have.
pub struct Discarded {
    root: Dir,
    name: String,
}

impl Discarded {
    /// Removes the directory with its content; blocks.
    pub fn remove(self) {
        if let Err(error) = self.root.remove_dir_all(&self.name) {
            tracing::warn!(%error, directory = self.name, "workspace not removed");
        }
    }
}

/// Renames a conversation's own directory, if it exists, so that it can be removed.
pub(super) fn discard(
    workspaces: &Workspaces,
    site: &WorkspaceRef,
    recorded: Option<&str>,
) -> Result<Option<Discarded>, WorkspaceError> {
    let root = site.root.as_deref().unwrap_or(&workspaces.base);
    let failed = |error: io::Error| unavailable(root, format!("cannot be opened: {error}"));
    let dir = match Dir::open_ambient_dir(root, ambient_authority()) {
        // Nothing was ever created here.
        Err(error) if error.kind() == ErrorKind::NotFound && recorded.is_none() => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    check_permission(workspaces, site, &real_path(&dir).map_err(failed)?)?;
    if let Some(recorded) = recorded {
        check_storage(root, &dir, recorded)?;
    }
    let name = format!("{MARKER_FILE}.{}", workspaces.clock.id("deleted"));
    match dir.rename(own_name(&dir, &site.owner, recorded.is_some()), &dir, &name) {
        Ok(()) => Ok(Some(Discarded { root: dir, name })),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unavailable(root, format!("cannot be changed: {error}"))),
    }
}

/// The path of an open directory, without links.
fn real_path(dir: &Dir) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", dir.as_raw_fd()))
}

/// Checks that an agent may have the root that it names. The directory is open already, so that no
/// link can be swapped between the check and its use.
fn check_permission(
    workspaces: &Workspaces,
    site: &WorkspaceRef,
    real: &Path,
) -> Result<(), WorkspaceError> {
    let Some(root) = &site.root else { return Ok(()) };
    let is_below =
        |dir: &PathBuf| dir.canonicalize().is_ok_and(|permitted| real.starts_with(permitted));
    if workspaces.permitted_roots.iter().any(is_below) {
        Ok(())
    } else {
        Err(unavailable(root, "is below no directory of --workspace-roots"))
    }
}

/// Checks that the recorded storage is the one found here.
fn check_storage(root: &Path, dir: &Dir, recorded: &str) -> Result<String, WorkspaceError> {
    let why = match read_marker(dir) {
        Ok(Some(id)) if id == recorded => return Ok(id),
        Ok(Some(id)) => format!("is storage {id}; the conversation's files are on {recorded}"),
        Ok(None) => format!("has no {MARKER_FILE}; the conversation's files are on {recorded}"),
        Err(error) => format!("has no {MARKER_FILE} that can be read: {error}"),
    };
    Err(WorkspaceError { expected_storage: Some(recorded.to_owned()), ..unavailable(root, why) })
}

/// The id of the directory's storage; creates the marker if it is missing and the directory is
/// writable.
fn find_or_make_marker(dir: &Dir, clock: &dyn Clock) -> io::Result<Option<String>> {
    if let Some(id) = read_marker(dir)? {
        return Ok(Some(id));
    }
    let id = clock.id("storage");
    match make_marker(dir, &id) {
        Err(error) if is_read_only(&error) => Ok(None),
        Err(error) => Err(error),
        // Another writer may have made the marker first; its id counts.
        Ok(()) => read_marker(dir),
    }
}

/// Creates the marker atomically: a process that dies meanwhile leaves no half-written id.
fn make_marker(dir: &Dir, id: &str) -> io::Result<()> {
    let temporary = format!("{MARKER_FILE}.{id}");
    let made = write_new(dir, &temporary, id).and_then(|()| {
        match dir.hard_link(&temporary, dir, MARKER_FILE) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            linked => linked,
        }
    });
    let _ = dir.remove_file(&temporary);
    made?;
    dir.open(".")?.sync_all()
}

fn write_new(dir: &Dir, name: &str, text: &str) -> io::Result<()> {
    let mut file = dir.open_with(name, OpenOptions::new().write(true).create_new(true))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Reads the id in the marker; `None` if there is no marker.
fn read_marker(dir: &Dir) -> io::Result<Option<String>> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags((OFlags::NONBLOCK | OFlags::NOFOLLOW).bits() as i32);
    let file = match dir.open_with(MARKER_FILE, &options) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut id = String::new();
    if file.metadata()?.is_file() {
        file.take(MAX_ID_BYTES + 1).read_to_string(&mut id)?;
    }
    let is_id = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    if id.is_empty() || id.len() as u64 > MAX_ID_BYTES || !id.chars().all(is_id) {
        Err(io::Error::new(ErrorKind::InvalidData, format!("{MARKER_FILE} holds no id")))
    } else {
        Ok(Some(id))
    }
}

fn is_read_only(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied)
}

/// Opens the conversation's own directory. Never follows a link, which could lead to another
/// conversation's directory.
fn own_directory(root: &Dir, name: &str, must_exist: bool) -> Result<Dir, String> {
    if !must_exist {
        match root.create_dir(name) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(format!("cannot be made: {error}"));
            }
            _ => {}
        }
    }
    root.open_dir_nofollow(name).map_err(|error| match error.kind() {
        ErrorKind::NotFound => {
            "is missing, and the conversation has files in it; no empty one is created".to_owned()
        }
        _ => format!("cannot be opened: {error}"),
    })
}

/// The name of the owner's directory. On storage that takes `Trip` and `trip` for one name, capital
/// letters are escaped, too; but what was made there before they were keeps its name.
fn own_name(root: &Dir, owner: &str, exists: bool) -> String {
    let (plain, escaped) = (directory_name(owner, false), directory_name(owner, true));
    if plain == escaped || !folds_case(root) {
        return plain;
    }
    let is_old = exists && !root.exists(&escaped) && root.exists(&plain);
    if is_old { plain } else { escaped }
}

/// Whether the storage finds the marker under a name in capital letters, too.
fn folds_case(root: &Dir) -> bool {
    root.symlink_metadata(MARKER_FILE.to_ascii_uppercase()).is_ok()
}

/// The owner with escaped special bytes and an escaped leading dot, so that no two owners share a
/// name, and none is `.`, `..` or the marker's.
fn directory_name(owner: &str, escapes_capitals: bool) -> String {
    let mut name = String::with_capacity(owner.len());
    for (at, byte) in owner.bytes().enumerate() {
        // Writing to a string never fails.
        match byte {
            b'.' if at > 0 => name.push('.'),
            b'_' | b':' | b'-' => name.push(byte.into()),
            b'A'..=b'Z' if escapes_capitals => drop(write!(name, "%{byte:02X}")),
            _ if byte.is_ascii_alphanumeric() => name.push(byte.into()),
            _ => drop(write!(name, "%{byte:02X}")),
        }
    }
    name
}

fn unavailable(directory: &Path, why: impl Into<String>) -> WorkspaceError {
    WorkspaceError {
        directory: directory.display().to_string(),
        reason: why.into(),
        expected_storage: None,
    }
}

#[cfg(test)]
mod tests;
