//! Finds a workspace's directory, and tells one storage from another.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::Arc;

use cap_fs_ext::DirExt;
use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use rustix::fs::OFlags;

use super::{Open, Workspace, WorkspaceError, WorkspaceRef, Workspaces};
use crate::clock::Clock;

/// Says in each root which storage it is.
const MARKER: &str = ".abide-storage";
/// An id is some tens of bytes; whatever is longer is not one.
const LONGEST_ID: u64 = 256;

/// The workspace, and the root as the site names it.
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
    let canonical = root.canonicalize().map_err(failed)?;
    let dir = Dir::open_ambient_dir(&canonical, ambient_authority()).map_err(failed)?;
    let storage = match recorded {
        Some(recorded) => Some(expected(root, &dir, recorded)?),
        None => found_or_made(&dir, workspaces.clock.as_ref())
            .map_err(|error| unavailable(root, format!("cannot be marked: {error}")))?,
    };
    let (path, dir) = match site.root.is_some() && site.shared {
        true => (canonical, dir),
        false => {
            let name = directory_name(&site.owner);
            let path = canonical.join(&name);
            let own = own_directory(&dir, &name, recorded.is_some());
            let own = own.map_err(|error| unavailable(&path, error))?;
            (path, own)
        }
    };
    let clock = Arc::clone(&workspaces.clock);
    let turns = Arc::clone(&workspaces.turns);
    let searches = Arc::clone(&workspaces.searches);
    let open = Open { root: path, storage, dir, clock, turns, searches };
    Ok((root, Workspace(Arc::new(open))))
}

/// A directory that belongs to nobody any more, under a name that no owner has.
pub struct Discarded {
    root: Dir,
    name: String,
}

impl Discarded {
    /// Removes what is in it; blocks, as long as there is much.
    pub fn remove(self) {
        if let Err(error) = self.root.remove_dir_all(&self.name) {
            tracing::warn!(%error, directory = self.name, "a workspace could not be removed");
        }
    }
}

/// Takes a conversation's own directory away from its name, if it is there.
pub(super) fn discard(
    workspaces: &Workspaces,
    site: &WorkspaceRef,
    recorded: Option<&str>,
) -> Result<Option<Discarded>, WorkspaceError> {
    let root = site.root.as_deref().unwrap_or(&workspaces.base);
    let failed = |error: io::Error| unavailable(root, format!("cannot be opened: {error}"));
    let dir = match Dir::open_ambient_dir(root, ambient_authority()) {
        // Nothing was ever made here.
        Err(error) if error.kind() == ErrorKind::NotFound && recorded.is_none() => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    if let Some(recorded) = recorded {
        expected(root, &dir, recorded)?;
    }
    let name = format!("{MARKER}.{}", workspaces.clock.id("deleted"));
    match dir.rename(directory_name(&site.owner), &dir, &name) {
        Ok(()) => Ok(Some(Discarded { root: dir, name })),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unavailable(root, format!("cannot be changed: {error}"))),
    }
}

/// The recorded storage, if it is the one that is here.
fn expected(root: &Path, dir: &Dir, recorded: &str) -> Result<String, WorkspaceError> {
    let why = match marker(dir) {
        Ok(Some(id)) if id == recorded => return Ok(id),
        Ok(Some(id)) => format!("is storage {id}; the conversation's files are on {recorded}"),
        Ok(None) => format!("has no {MARKER}; the conversation's files are on {recorded}"),
        Err(error) => format!("has no {MARKER} that can be read: {error}"),
    };
    Err(WorkspaceError { sought: Some(recorded.to_owned()), ..unavailable(root, why) })
}

/// The id that is in the directory now; makes one if there is none and may be one.
fn found_or_made(dir: &Dir, clock: &dyn Clock) -> io::Result<Option<String>> {
    if let Some(id) = marker(dir)? {
        return Ok(Some(id));
    }
    let id = clock.id("storage");
    match make_marker(dir, &id) {
        Err(error) if is_read_only(&error) => Ok(None),
        Err(error) => Err(error),
        // Whoever came first has made the marker, so its id counts, not ours.
        Ok(()) => marker(dir),
    }
}

/// Appears whole or not at all: a process that dies on the way leaves no half of an id.
fn make_marker(dir: &Dir, id: &str) -> io::Result<()> {
    let temporary = format!("{MARKER}.{id}");
    let made = write_new(dir, &temporary, id).and_then(|()| {
        match dir.hard_link(&temporary, dir, MARKER) {
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

/// The id in the marker; `None` if there is no marker.
fn marker(dir: &Dir) -> io::Result<Option<String>> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags((OFlags::NONBLOCK | OFlags::NOFOLLOW).bits() as i32);
    let file = match dir.open_with(MARKER, &options) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut id = String::new();
    if file.metadata()?.is_file() {
        file.take(LONGEST_ID + 1).read_to_string(&mut id)?;
    }
    let is_id = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    match id.is_empty() || id.len() as u64 > LONGEST_ID || !id.chars().all(is_id) {
        true => Err(io::Error::new(ErrorKind::InvalidData, format!("{MARKER} holds no id"))),
        false => Ok(Some(id)),
    }
}

fn is_read_only(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied)
}

/// Never follows a link, which could be another conversation's directory.
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
            "is missing, and the conversation has files in it; no empty one is made".to_owned()
        }
        _ => format!("cannot be opened: {error}"),
    })
}

/// The owner, with every byte escaped that is not of its alphabet, and a dot at the beginning, so
/// that no two owners share a name, and none is `.`, `..` or the marker's.
fn directory_name(owner: &str) -> String {
    let mut name = String::with_capacity(owner.len());
    for (at, byte) in owner.bytes().enumerate() {
        match byte {
            b'.' if at > 0 => name.push('.'),
            b'_' | b':' | b'-' => name.push(byte.into()),
            _ if byte.is_ascii_alphanumeric() => name.push(byte.into()),
            // Writing to a string never fails.
            _ => drop(write!(name, "%{byte:02X}")),
        }
    }
    name
}

fn unavailable(directory: &Path, why: impl Into<String>) -> WorkspaceError {
    WorkspaceError { directory: directory.display().to_string(), why: why.into(), sought: None }
}

#[cfg(test)]
mod tests;
