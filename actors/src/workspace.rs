//! The directory that a conversation works in, as a capability.
//!
//! Nothing here checks a path and then uses it: every file is reached through the open directory,
//! and the system refuses what leads out of it, whatever is swapped meanwhile.

mod atomic_write;
mod cancellable;
mod error;
mod health;
mod lock;
mod path;
mod read;
mod storage;
mod truncate;
mod walk;
mod write_queue;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cap_std::fs::Dir;
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

use crate::clock::Clock;
pub(crate) use cancellable::{Cancelled, on_a_thread};
pub(crate) use error::FileError;
use health::StorageHealth;
use path::relative;
pub(crate) use read::LARGEST_FILE;
pub use storage::Discarded;
pub(crate) use truncate::{MARK, truncated};
pub(crate) use walk::{Found, walk};
use write_queue::WriteQueue;

/// Searches at one time: each has a few threads, and some megabytes for each of these.
const SEARCHES: usize = 8;

/// The workspaces of one node. Conversations that write to one file through the same `Workspaces`
/// do so one after another.
pub struct Workspaces {
    base: PathBuf,
    clock: Arc<dyn Clock>,
    turns: Arc<WriteQueue>,
    searches: Arc<Semaphore>,
    troubles: StorageHealth,
}

/// Where a conversation's workspace is.
///
/// Without a root it is `base/<owner>`; with one it is `root/<owner>`, or the root itself if that
/// is shared. A workspace whose owner begins with a dot has that dot escaped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkspaceRef {
    /// The directory that the agent names.
    pub root: Option<PathBuf>,
    pub shared: bool,
    /// The id of the conversation whose workspace it is.
    pub owner: String,
}

/// Why a conversation cannot work on its files on this node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("workspace_unavailable: {directory}: {why}")]
pub struct WorkspaceError {
    directory: String,
    why: String,
    /// The storage that was looked for and not found.
    sought: Option<String>,
}

/// An open workspace; clones share it.
#[derive(Clone)]
pub struct Workspace(Arc<Open>);

struct Open {
    root: PathBuf,
    storage: Option<String>,
    dir: Dir,
    clock: Arc<dyn Clock>,
    turns: Arc<WriteQueue>,
    searches: Arc<Semaphore>,
}

impl WorkspaceRef {
    /// What its root is called in a journal: empty for the program's own.
    pub fn root_name(&self) -> String {
        self.root.as_ref().map(|root| root.display().to_string()).unwrap_or_default()
    }
}

impl Workspaces {
    /// Those below `base`, which is made when it is first needed. The clock gives the ids of new
    /// storage and the names of temporary files.
    pub fn new(base: PathBuf, clock: Arc<dyn Clock>) -> Self {
        Self {
            base,
            clock,
            turns: Arc::default(),
            searches: Arc::new(Semaphore::new(SEARCHES)),
            troubles: StorageHealth::default(),
        }
    }

    /// Opens a workspace; blocks.
    ///
    /// `recorded` is the storage that the conversation was on when it last worked on files. With
    /// it, nothing is ever made: a directory that is missing here, or is on other storage, is
    /// `Unavailable`. Without it the conversation's own directory is made if need be; a root that
    /// an agent names never is.
    ///
    /// Storage is known by a file `.abide-storage` in the root, made at first use. A root that
    /// cannot be written to has none. Tools neither see nor touch this file.
    pub fn open(
        &self,
        site: &WorkspaceRef,
        recorded: Option<&str>,
    ) -> Result<Workspace, WorkspaceError> {
        let opened = storage::open(self, site, recorded);
        match &opened {
            Ok((root, workspace)) => self.troubles.over(root, workspace),
            Err(unavailable) => self.troubles.add(unavailable.clone()),
        }
        opened.map(|(_, workspace)| workspace)
    }

    /// Takes a conversation's own directory away for good; `None` if there is none. Blocks. What a
    /// shared root holds is not a conversation's own, and stays.
    pub fn discard(
        &self,
        site: &WorkspaceRef,
        recorded: Option<&str>,
    ) -> Result<Option<Discarded>, WorkspaceError> {
        match site.shared {
            true => Ok(None),
            false => storage::discard(self, site, recorded),
        }
    }

    /// What is wrong with storage on this node, a line each: the last opens that failed, each until
    /// its directory opens again. At most 32.
    pub fn troubles(&self) -> Vec<String> {
        self.troubles.lines()
    }
}

impl Workspace {
    /// Its directory, without symbolic links.
    pub fn root(&self) -> &Path {
        &self.0.root
    }

    /// The id of the storage that it is on, for the journal; `None` if its root is read-only.
    pub fn storage(&self) -> Option<&str> {
        self.0.storage.as_deref()
    }

    /// The directory itself, which leads to nothing outside.
    pub fn dir(&self) -> &Dir {
        &self.0.dir
    }

    /// The path that an argument means, relative to the root; see [`relative`].
    pub(crate) fn path(&self, given: &str) -> Result<PathBuf, FileError> {
        relative(self.root(), given)
    }

    /// Waits until nobody else writes to the file of that name; the turn lasts as long as what it
    /// returns. Two names of one file, by a symbolic link, are two files here.
    pub(crate) async fn turn(&self, path: &Path) -> OwnedMutexGuard<()> {
        self.0.turns.take(self.root().join(path)).await
    }

    /// Waits until a search of all files may begin; it lasts as long as what this returns.
    pub(crate) async fn search_turn(&self) -> Option<OwnedSemaphorePermit> {
        // Nobody closes it.
        Arc::clone(&self.0.searches).acquire_owned().await.ok()
    }
}

impl fmt::Debug for Workspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Workspace").field(&self.0.root).finish()
    }
}

#[cfg(test)]
pub(crate) mod fixtures;
