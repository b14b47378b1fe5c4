//! The file under redb: it counts its fsyncs, and omits them where durability does not need them.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};

use super::Durability;
use super::store_dir::DirLock;

type Io<T> = Result<T, std::io::Error>;
type Lock<T> = Result<T, BackendError>;

/// One open file.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) file: FileBackend,
    pub(super) durability: Durability,
    pub(super) probe: Arc<Probe>,
    /// Dropped after the file: whoever has the directory can open the file.
    pub(super) _lock: Arc<DirLock>,
}

/// Counters of the file, which survive its reopening.
#[derive(Debug, Default)]
pub(super) struct Probe {
    fsyncs: AtomicU64,
    bytes: AtomicU64,
    has_lost_writes: AtomicBool,
    #[cfg(test)]
    pub(super) fault: std::sync::Mutex<super::tests::Fault>,
}

impl Probe {
    /// The number of fsyncs.
    pub(super) fn fsyncs(&self) -> u64 {
        self.fsyncs.load(Ordering::Relaxed)
    }

    /// The size of the file.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether an fsync has failed. The system then counts what it could not write as written and
    /// goes on serving it from memory: nothing that is read from now on is known to be on the disk.
    pub(super) fn has_lost_writes(&self) -> bool {
        self.has_lost_writes.load(Ordering::Relaxed)
    }

    fn sync(&self, file: &FileBackend) -> Io<()> {
        let synced = self.before_sync().and_then(|()| file.sync_data());
        if synced.is_err() {
            self.has_lost_writes.store(true, Ordering::Relaxed);
        }
        synced
    }

    #[cfg(test)]
    fn before_sync(&self) -> Io<()> {
        self.fault.lock().unwrap_or_else(std::sync::PoisonError::into_inner).apply_to_sync()
    }

    #[cfg(not(test))]
    fn before_sync(&self) -> Io<()> {
        Ok(())
    }

    #[cfg(test)]
    fn before_write(&self, bytes: usize) -> Io<()> {
        self.fault.lock().unwrap_or_else(std::sync::PoisonError::into_inner).apply(bytes)
    }

    #[cfg(not(test))]
    fn before_write(&self, _bytes: usize) -> Io<()> {
        Ok(())
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> Io<u64> {
        let bytes = self.file.len()?;
        self.probe.bytes.store(bytes, Ordering::Relaxed);
        Ok(bytes)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Io<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> Io<()> {
        self.probe.before_write(0)?;
        self.file.set_len(len)?;
        self.probe.bytes.store(len, Ordering::Relaxed);
        Ok(())
    }

    fn sync_data(&self) -> Io<()> {
        match self.durability {
            Durability::Os => Ok(()),
            Durability::Fsync => {
                self.probe.before_write(0)?;
                self.probe.sync(&self.file)?;
                self.probe.fsyncs.fetch_add(1, Ordering::Relaxed);
                metrics::counter!("abide_store_fsyncs_total").increment(1);
                Ok(())
            }
        }
    }

    fn write(&self, offset: u64, data: &[u8]) -> Io<()> {
        self.probe.before_write(data.len())?;
        self.file.write(offset, data)
    }

    fn close(&self) -> Io<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Lock<bool> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Lock<bool> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Lock<()> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Lock<()> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Lock<()> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Lock<bool> {
        self.file.query_lock_range(start, end)
    }
}
