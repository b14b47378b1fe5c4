//! Visits all files of a workspace on several threads, only through open directories.
//!
//! A directory is opened from its parent's handle and never through a link, so that nothing that is
//! swapped meanwhile leads outside.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use cap_std::fs::Dir;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, RawDirEntry, openat, statat};
use rustix::io::Errno;

use super::path::is_reserved;
use super::{CancelFlag, FileError};

/// Bounded, so that one walk does not take the whole machine.
const MAX_THREADS: usize = 4;
/// Deeper directories are skipped: each level may keep a directory open.
const MAX_DEPTH: usize = 100;
/// The buffer of a thread for one piece of a directory listing: some thousand names.
const LISTING_BUFFER_BYTES: usize = 32 * 1024;

/// A file or a symbolic link that a walk visits.
pub(crate) struct WalkEntry<'a> {
    /// The path relative to the root; not always UTF-8.
    pub(crate) path: &'a Path,
    pub(crate) is_link: bool,
    folder: BorrowedFd<'a>,
    name: &'a CStr,
}

impl WalkEntry<'_> {
    /// Opens the file for reading, but never a link in its place. It may have been replaced by
    /// anything: check the handle.
    pub(crate) fn open(&self) -> Result<File, Errno> {
        // NONBLOCK: opening a FIFO must not wait for its writer.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        openat(self.folder, self.name, flags | OFlags::CLOEXEC, Mode::empty()).map(File::from)
    }
}

/// Shows every regular file and every symbolic link to one of several visitors, in no particular
/// order, except for those below a directory `.git`. Ends soon after it is cancelled. What cannot
/// be read, or disappears meanwhile, is skipped.
pub(crate) fn walk<V: FnMut(&WalkEntry<'_>)>(
    dir: &Dir,
    cancelled: &CancelFlag,
    visitor: impl Fn() -> V + Sync,
) -> Result<(), FileError> {
    let fd =
        openat(dir, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let root = Folder { fd, path: Vec::new(), level: 0 };
    let tasks = Tasks::default();
    tasks.add(Task { folder: Arc::new(root), child: None });
    let work = || {
        let mut visit = visitor();
        let mut listed = vec![MaybeUninit::uninit(); LISTING_BUFFER_BYTES];
        while let Some(busy) = tasks.next() {
            if !cancelled.is_set() {
                busy.list(&mut listed, cancelled, &mut visit);
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    thread::scope(|scope| {
        for _ in 1..threads {
            // If no thread can be started, the walk only takes longer.
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    Ok(())
}

struct Folder {
    fd: OwnedFd,
    /// Empty for the root, else it ends with a slash.
    path: Vec<u8>,
    level: usize,
}

/// The rest of a directory's listing, or a directory in it that is not open yet.
struct Task {
    folder: Arc<Folder>,
    child: Option<CString>,
}

/// The tasks to do, last in first out, so that only the directories above the current ones are
/// open, however many there are.
#[derive(Default)]
struct Tasks {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Task>,
    busy: usize,
    idle: usize,
}

/// A task that a thread works on, which may add more.
struct ActiveTask<'a> {
    tasks: &'a Tasks,
    task: Task,
}

impl Tasks {
    fn add(&self, task: Task) {
        let mut queue = self.lock();
        queue.waiting.push(task);
        if queue.idle > 0 {
            self.changed.notify_one();
        }
    }

    /// Waits for the next task; `None` when there are none and no thread can add one.
    fn next(&self) -> Option<ActiveTask<'_>> {
        let mut queue = self.lock();
        loop {
            if let Some(task) = queue.waiting.pop() {
                queue.busy += 1;
                return Some(ActiveTask { tasks: self, task });
            }
            if queue.busy == 0 {
                return None;
            }
            queue.idle += 1;
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Must also happen when a visitor panics, or the other threads would wait for ever.
impl Drop for ActiveTask<'_> {
    fn drop(&mut self) {
        let mut queue = self.tasks.lock();
        queue.busy -= 1;
        if queue.busy == 0 {
            self.tasks.changed.notify_all();
        }
    }
}

impl ActiveTask<'_> {
    /// Reads one piece of the directory's listing, queues the rest for another thread, and visits
    /// the piece.
    fn list(
        &self,
        listed: &mut [MaybeUninit<u8>],
        cancelled: &CancelFlag,
        visit: &mut impl FnMut(&WalkEntry<'_>),
    ) {
        let Some(folder) = self.task.open_folder() else { return };
        let mut entries = RawDir::new(&folder.fd, listed);
        let mut path = folder.path.clone();
        let mut is_first = true;
        while let Some(Ok(entry)) = entries.next() {
            if is_first {
                self.tasks.add(Task { folder: Arc::clone(&folder), child: None });
                is_first = false;
            }
            if cancelled.is_set() {
                return;
            }
            self.visit_entry(&folder, &entry, &mut path, visit);
            if entries.is_buffer_empty() {
                return;
            }
        }
    }

    fn visit_entry(
        &self,
        folder: &Arc<Folder>,
        entry: &RawDirEntry<'_>,
        path: &mut Vec<u8>,
        visit: &mut impl FnMut(&WalkEntry<'_>),
    ) {
        let name = entry.file_name();
        if [c".", c".."].contains(&name) || is_reserved(OsStr::from_bytes(name.to_bytes())) {
            return;
        }
        let kind = match entry.file_type() {
            // Some file systems do not report the type.
            FileType::Unknown => statat(&folder.fd, name, AtFlags::SYMLINK_NOFOLLOW)
                .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
            kind => kind,
        };
        match kind {
            FileType::Directory if name != c".git" && folder.level < MAX_DEPTH => {
                let child = Some(name.to_owned());
                self.tasks.add(Task { folder: Arc::clone(folder), child });
            }
            FileType::RegularFile | FileType::Symlink => {
                path.truncate(folder.path.len());
                path.extend_from_slice(name.to_bytes());
                visit(&WalkEntry {
                    path: Path::new(OsStr::from_bytes(path)),
                    is_link: kind == FileType::Symlink,
                    folder: folder.fd.as_fd(),
                    name,
                });
            }
            _ => {}
        }
    }
}

impl Task {
    /// Opens the directory; `None` if it cannot be opened, or is no longer a directory.
    fn open_folder(&self) -> Option<Arc<Folder>> {
        let Some(name) = &self.child else { return Some(Arc::clone(&self.folder)) };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(&self.folder.fd, name, flags, Mode::empty()).ok()?;
        let path = [self.folder.path.as_slice(), name.to_bytes(), b"/"].concat();
        Some(Arc::new(Folder { fd, path, level: self.folder.level + 1 }))
    }
}

#[cfg(test)]
mod tests;
