//! The directory of a store: locked for one process, with a file that is created completely or not
//! at all.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::backends::FileBackend;
use redb::{Database, DatabaseError, Error, ReadableDatabase};
use rustix::fs::{Advice, fadvise};
use tokio::sync::watch;

use super::Durability;
use super::disk::{Disk, Probe};
use super::tables;

/// The memory that redb may use, half of it for what a commit writes.
const CACHE_BYTES: usize = 64 << 20;

/// The permissions of the directory, and of the files in it: they hold what people said.
const DIR_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

const FILE_NAME: &str = "abide.redb";

/// Whether the directory has a store.
pub fn exists(dir: &Path) -> bool {
    dir.join(FILE_NAME).exists()
}

/// Why this process cannot open the store in a directory.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Only one process may have the store open.
    #[error("the store in {dir} is in use by another process")]
    InUse { dir: PathBuf },
    /// Another version of the program wrote the store.
    #[error("the store in {dir} has format {found}; this program reads format {expected}")]
    Format { dir: PathBuf, found: String, expected: u64 },
    /// The directory is not writable, or the file in it is damaged.
    #[error("the store in {dir} cannot be opened: {reason}")]
    Unusable { dir: PathBuf, reason: String },
    /// The keys are not those of the store.
    #[error("--encrypt-key-file: the store in {dir}: {reason}")]
    Encryption { dir: PathBuf, reason: String },
}

/// The lock of a store's directory. The file in it shares the lock for as long as it is open.
#[derive(Debug)]
pub(super) struct DirLock {
    _file: File,
    /// Dropped after the file, because fields are dropped in their order.
    _watched: watch::Receiver<()>,
}

/// Tells when a store has closed its file and unlocked its directory. It keeps neither.
#[derive(Clone, Debug)]
pub struct CloseWatch(watch::Sender<()>);

impl CloseWatch {
    /// Waits until nobody uses the store any more, and its directory can be opened again.
    pub async fn closed(&self) {
        self.0.closed().await;
    }
}

/// A store's directory, locked for this process until this value is dropped and its file is closed.
#[derive(Debug)]
pub(super) struct StoreDir {
    dir: PathBuf,
    durability: Durability,
    lock: Arc<DirLock>,
}

impl StoreDir {
    /// Locks the directory, creating it if there is none.
    pub(super) fn lock(
        dir: &Path,
        durability: Durability,
    ) -> Result<(Self, CloseWatch), OpenError> {
        let unusable = |error: io::Error| unusable_error(dir, &error);
        DirBuilder::new().recursive(true).mode(DIR_MODE).create(dir).map_err(unusable)?;
        let mut options = OpenOptions::new();
        options.create(true).append(true).mode(FILE_MODE);
        let lock = options.open(dir.join("lock")).map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::InUse { dir: dir.to_owned() });
            }
            Err(TryLockError::Error(error)) => return Err(unusable(error)),
        }
        let (watch, watched) = watch::channel(());
        let lock = Arc::new(DirLock { _file: lock, _watched: watched });
        Ok((Self { dir: dir.to_owned(), durability, lock }, CloseWatch(watch)))
    }

    /// Opens the file, repairing it after a crash, or creates a new one.
    pub(super) fn open(&self, probe: &Arc<Probe>) -> Result<Database, OpenError> {
        let path = self.dir.join(FILE_NAME);
        let exists = path.try_exists().map_err(|error| unusable_error(&self.dir, &error))?;
        if exists {
            // A file system without a cache has nothing to drop.
            if let Err(error) = drop_cached_pages(&path) {
                tracing::warn!(%error, "cached pages of the store not dropped");
            }
        } else {
            self.create(&path, probe)?;
        }
        let database = self.database(&path, probe)?;
        match format(&database) {
            Ok(tables::FORMAT) => Ok(database),
            Ok(found) => Err(self.format_error(found)),
            Err(error) => Err(unusable_error(&self.dir, &error)),
        }
    }

    /// A new file gets its name when it is whole, so that a crash never leaves half of one.
    fn create(&self, path: &Path, probe: &Arc<Probe>) -> Result<(), OpenError> {
        let unusable = |error: io::Error| unusable_error(&self.dir, &error);
        let draft = self.dir.join("abide.redb.new");
        match fs::remove_file(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(unusable(error)),
            Ok(()) | Err(_) => {}
        }
        let database = self.database(&draft, probe)?;
        create_tables(&database).map_err(|error| unusable_error(&self.dir, &error))?;
        database.close().map_err(|error| unusable_error(&self.dir, &error))?;
        fs::rename(&draft, path).map_err(unusable)?;
        match self.durability {
            Durability::Fsync => File::open(&self.dir).and_then(|dir| dir.sync_all()),
            Durability::Os => Ok(()),
        }
        .map_err(unusable)
    }

    fn database(&self, path: &Path, probe: &Arc<Probe>) -> Result<Database, OpenError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE);
        let file = options.open(path).map_err(|error| unusable_error(&self.dir, &error))?;
        let file = FileBackend::new(file).map_err(|error| unusable_error(&self.dir, &error))?;
        let disk = Disk {
            file,
            durability: self.durability,
            probe: Arc::clone(probe),
            _lock: Arc::clone(&self.lock),
        };
        let opened = Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(disk);
        opened.map_err(|error| match error {
            DatabaseError::DatabaseAlreadyOpen => OpenError::InUse { dir: self.dir.clone() },
            DatabaseError::UpgradeRequired(found) => self.format_error(format!("redb {found}")),
            other => unusable_error(&self.dir, &other),
        })
    }

    fn format_error(&self, found: impl ToString) -> OpenError {
        let (dir, found) = (self.dir.clone(), found.to_string());
        OpenError::Format { dir, found, expected: tables::FORMAT }
    }
}

/// Makes the next reads come from the disk. A process whose fsync failed leaves pages in memory that
/// the disk does not have and that no later fsync writes.
fn drop_cached_pages(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}

fn unusable_error(dir: &Path, reason: &impl ToString) -> OpenError {
    OpenError::Unusable { dir: dir.to_owned(), reason: reason.to_string() }
}

fn create_tables(database: &Database) -> Result<(), Error> {
    let transaction = database.begin_write()?;
    tables::create(&transaction)?;
    Ok(transaction.commit()?)
}

fn format(database: &Database) -> Result<u64, Error> {
    let meta = database.begin_read()?.open_table(tables::META)?;
    let format = meta.get("format")?.map(|format| format.value());
    format.ok_or_else(|| Error::Corrupted("meta: no format".to_owned()))
}
