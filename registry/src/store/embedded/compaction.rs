//! Gives back what the file has grown by while its free pages were overwritten.
//!
//! A file grows to twice its size for that, and redb gives back its end only as long as half of it is
//! free there. What others write meanwhile lies in the way: a file of 4 MB had 21 MB after four
//! overwritings, one of 539 MB had 2.7 GB. redb's compaction moves such pages, and needs the file for
//! itself: 13 ms for each megabyte that is in use, on two busy cores.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use redb::{Database, Error, ReadableDatabase};

use super::state::OpenFile;
use super::tables;
use super::writer::Writer;

/// How many times as large as after its last compaction a file may be: it is compacted once for each
/// doubling, however often it is overwritten.
const MAX_GROWTH: u64 = 2;
/// How often it is looked whether the reads have ended that have the file open, and how many times. If
/// one takes longer, the file is compacted after the next overwriting.
const READ_INTERVAL: Duration = Duration::from_millis(5);
const MAX_READ_LOOKS: u32 = 200;
/// The row of the table `meta` with the size of the file when it was compacted last.
const COMPACT_BYTES_ROW: &str = "compact_bytes";

impl Writer {
    /// Compacts the file if it has grown. Writes wait meanwhile, and reads are refused. `Err` says why
    /// the file cannot be used any more.
    pub(super) fn compact_if_grown(&self) -> Result<(), String> {
        let OpenFile { database, .. } = self.shared.file();
        let Ok(database) = database else { return Ok(()) };
        let bytes = self.shared.probe.bytes();
        match compact_bytes(&database).map_err(|error| error.to_string())? {
            Some(compact) if bytes <= MAX_GROWTH.saturating_mul(compact) => Ok(()),
            Some(_) => self.compact(database, bytes),
            // As large as it is after its first overwriting.
            None => set_compact_bytes(&database, bytes).map_err(|error| error.to_string()),
        }
    }

    fn compact(&self, database: Arc<Database>, bytes: u64) -> Result<(), String> {
        tracing::info!(bytes, "store file is being compacted");
        self.shared.replace(Err("the store is being compacted".to_owned()));
        let mut database = match wait_until_unshared(database) {
            Ok(database) => database,
            Err(shared) => {
                tracing::warn!(bytes, "store file not compacted: a read has not ended in time");
                self.shared.replace(Ok(shared));
                return Ok(());
            }
        };
        database.compact().map_err(|error| error.to_string())?;
        let after = self.shared.probe.bytes();
        set_compact_bytes(&database, after).map_err(|error| error.to_string())?;
        self.shared.replace(Ok(Arc::new(database)));
        tracing::info!(bytes = after, "store file compacted");
        Ok(())
    }
}

/// The database, when nobody else has it any longer.
fn wait_until_unshared(mut database: Arc<Database>) -> Result<Database, Arc<Database>> {
    for _ in 0..MAX_READ_LOOKS {
        match Arc::try_unwrap(database) {
            Ok(alone) => return Ok(alone),
            Err(shared) => database = shared,
        }
        thread::sleep(READ_INTERVAL);
    }
    Err(database)
}

fn compact_bytes(from: &Database) -> Result<Option<u64>, Error> {
    let meta = from.begin_read()?.open_table(tables::META)?;
    Ok(meta.get(COMPACT_BYTES_ROW)?.map(|bytes| bytes.value()))
}

pub(super) fn set_compact_bytes(to: &Database, bytes: u64) -> Result<(), Error> {
    let transaction = to.begin_write()?;
    transaction.open_table(tables::META)?.insert(COMPACT_BYTES_ROW, bytes)?;
    Ok(transaction.commit()?)
}
