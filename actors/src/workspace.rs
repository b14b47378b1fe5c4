//! The workspace of a conversation: a directory, held as a capability.
//!
//! No code here checks a path and then uses it. Every file is reached through the open directory,
//! and the operating system refuses paths that lead out of it, even if something is swapped
//! meanwhile.

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
use std::path::{Component, Path, PathBuf, absolute};
use std::sync::Arc;

use cap_std::fs::Dir;
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

use crate::clock::Clock;
pub(crate) use cancellable::{CancelFlag, run_blocking};
pub(crate) use error::FileError;
use health::StorageHealth;
use path::relative_path;
pub(crate) use read::MAX_FILE_BYTES;
pub use storage::Discarded;
pub(crate) use truncate::{TRUNCATION_MARK, truncate};
pub(crate) use walk::{WalkEntry, walk};
use write_queue::WriteQueue;

/// Concurrent searches: each has a few threads, and some megabytes for each of these.
const MAX_CONCURRENT_SEARCHES: usize = 8;

/// The workspaces of one node. Conversations that write to one file through the same `Workspaces`
/// take turns.
pub struct Workspaces {
    base: PathBuf,
    /// The directories at or below which agents may name a root.
    permitted_roots: Vec<PathBuf>,
    clock: Arc<dyn Clock>,
    write_queue: Arc<WriteQueue>,
    searches: Arc<Semaphore>,
    health: StorageHealth,
}

/// The location of a conversation's workspace.
///
/// Without a root it is `base/<owner>`; with a root it is `root/<owner>`, or the root itself if the
/// root is shared. A dot at the beginning of an owner is escaped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkspaceRef {
    /// The root directory that the agent definition names.
    pub root: Option<PathBuf>,
    pub shared: bool,
    /// The id of the conversation that owns the workspace.
    pub owner: String,
}

/// A conversation's workspace is unavailable on this node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("workspace_unavailable: {directory}: {reason}")]
pub struct WorkspaceError {
    directory: String,
    reason: String,
    /// The storage that was expected but not found.
    expected_storage: Option<String>,
}

/// An open workspace; clones share it.
#[derive(Clone)]
pub struct Workspace(Arc<OpenWorkspace>);

struct OpenWorkspace {
    root: PathBuf,
    storage: Option<String>,
    dir: Dir,
    clock: Arc<dyn Clock>,
    write_queue: Arc<WriteQueue>,
    searches: Arc<Semaphore>,
}

impl WorkspaceRef {
    /// The name of the root in the journal: empty for the node's own base directory.
    pub fn root_name(&self) -> String {
        self.root.as_ref().map(|root| root.display().to_string()).unwrap_or_default()
    }
}

/// Whether these directories permit the root, as far as its name tells.
pub fn permits_root(permitted: &[PathBuf], root: &Path) -> bool {
    let is_plain = !root.components().any(|part| matches!(part, Component::ParentDir));
    let is_below = |dir: &PathBuf| absolute(dir).is_ok_and(|dir| root.starts_with(dir));
    is_plain && permitted.iter().any(is_below)
}

impl Workspaces {
    /// Workspaces below `base`, which is created when it is first needed. The clock supplies the
    /// ids of new storage and the names of temporary files.
    pub fn new(base: PathBuf, clock: Arc<dyn Clock>) -> Self {
        Self {
            base,
            permitted_roots: Vec::new(),
            clock,
            write_queue: Arc::default(),
            searches: Arc::new(Semaphore::new(MAX_CONCURRENT_SEARCHES)),
            health: StorageHealth::default(),
        }
    }

    /// Permits agents to name these directories as roots, and whatever is below them.
    #[must_use]
    pub fn with_permitted_roots(self, permitted_roots: Vec<PathBuf>) -> Self {
        Self { permitted_roots, ..self }
    }

    /// Whether an agent may name this root, as far as its name tells; links are judged when a
    /// workspace is opened.
    pub fn permits(&self, root: &Path) -> bool {
        permits_root(&self.permitted_roots, root)
    }

    /// Opens a workspace; blocks.
    ///
    /// `recorded` is the storage that held the conversation's files when it last used them. With it
    /// nothing is created: a directory that is missing here, or is on other storage, is an error.
    /// Without it the conversation's own directory is created if necessary, but never a root that
    /// an agent names.
    ///
    /// A file `.abide-storage` in the root, created at first use, identifies the storage. A
    /// read-only root has none. Tools neither see nor touch this file.
    pub fn open(
        &self,
        site: &WorkspaceRef,
        recorded: Option<&str>,
    ) -> Result<Workspace, WorkspaceError> {
        let opened = storage::open(self, site, recorded);
        match &opened {
            Ok((root, workspace)) => self.health.clear(root, workspace),
            Err(unavailable) => self.health.record(unavailable.clone()),
        }
        opened.map(|(_, workspace)| workspace)
    }

    /// Removes a conversation's own directory; `None` if there is none. Blocks. The content of a
    /// shared root does not belong to a conversation and stays.
    pub fn discard(
        &self,
        site: &WorkspaceRef,
        recorded: Option<&str>,
    ) -> Result<Option<Discarded>, WorkspaceError> {
        if site.shared { Ok(None) } else { storage::discard(self, site, recorded) }
    }

    /// The current storage problems of this node, one line each: the last failed opens, each until
    /// its directory opens again. At most 32.
    pub fn storage_problems(&self) -> Vec<String> {
        self.health.lines()
    }
}

impl Workspace {
    /// The path of its directory, without symbolic links.
    pub fn root(&self) -> &Path {
        &self.0.root
    }

    /// The id of its storage, for the journal; `None` if its root is read-only.
    pub fn storage(&self) -> Option<&str> {
        self.0.storage.as_deref()
    }

    /// The open directory, from which nothing outside can be reached.
    pub fn dir(&self) -> &Dir {
        &self.0.dir
    }

    /// The path of an argument, relative to the root; see [`relative_path`].
    pub(crate) fn resolve_path(&self, given: &str) -> Result<PathBuf, FileError> {
        relative_path(self.root(), given)
    }

    /// Waits for the turn to write to the file of that name; it lasts until the guard is dropped.
    /// Two names of one file, by a symbolic link, count as two files.
    pub(crate) async fn write_turn(&self, path: &Path) -> OwnedMutexGuard<()> {
        self.0.write_queue.wait_turn(self.root().join(path)).await
    }

    /// Waits until a search may begin; the permit is held until it is dropped.
    pub(crate) async fn search_permit(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
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
