//! Overwrites the pages of the file that deletions have freed: redb leaves their bytes where they are.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use abide_actors::journal::StoreError;
use redb::{Error, TableDefinition, WriteTransaction};

use super::Embedded;
use super::erasures::ErasureWrite;
use super::write::Write;
use super::writer::Job;

/// Rows of zeros, which are there only for a moment.
const FILLER: TableDefinition<u64, &[u8]> = TableDefinition::new("filler");
/// A row that takes a page for itself.
const ROW: [u8; 3_500] = [0; 3_500];
/// Rows of one transaction: some milliseconds of work.
const ROWS_PER_WRITE: u64 = 512;
/// The smallest page of the file.
const PAGE_BYTES: u64 = 4_096;
/// Transactions after which the pages that they have freed themselves are free for others.
const SETTLING_WRITES: u64 = 4;
/// Transactions in pairs that give back the end of the file. What is in use there is written to its
/// beginning by the first ones.
const GIVING_WRITES: u64 = 16;

/// How long a read that keeps a page from being overwritten may take: many times as long as any should.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// How often it is looked whether such reads have ended.
const READ_INTERVAL: Duration = Duration::from_millis(5);
/// How long a write may wait until what deletions left is removed: some gigabytes of journals.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(120);

impl Embedded {
    /// Fills the file with zeros until no page of it is free, and then frees them again. The file grows
    /// for that, to twice its size, and is given back as far as it was empty; if it has grown much in
    /// several such times, it is compacted.
    ///
    /// Fails if a read that began before has not ended in time, or if deletions leave more than can be
    /// removed: pages may be left then, and it is to be repeated.
    pub(super) async fn overwrite_free_pages(&self) -> Result<(), StoreError> {
        self.overwrite_within(READ_TIMEOUT).await
    }

    pub(super) async fn overwrite_within(&self, read_timeout: Duration) -> Result<(), StoreError> {
        // Two at once would free each other's rows.
        let _alone = self.shared.overwriting.lock().await;
        let bytes = self.shared.probe.bytes();
        let filled = self.fill_free_pages(read_timeout).await;
        let ended = self.end_filling().await;
        filled.and(ended)?;
        self.give_back(bytes).await?;
        self.submit(Job::Compact).await?
    }

    async fn end_filling(&self) -> Result<(), StoreError> {
        self.write(Write::Erasure(Box::new(ErasureWrite::EndFilling))).await.map(drop)
    }

    /// Has redb give back what the file has grown by: each commit gives back half of what is free at
    /// its end. Otherwise the next one of several erasures would fill a file twice as large, and so on.
    async fn give_back(&self, bytes: u64) -> Result<(), StoreError> {
        for _ in 0..GIVING_WRITES {
            if self.shared.probe.bytes() <= bytes {
                break;
            }
            self.fill(0..1).await?;
            self.end_filling().await?;
        }
        Ok(())
    }

    async fn fill_free_pages(&self, read_timeout: Duration) -> Result<(), StoreError> {
        // The first row is written when nothing is left to remove.
        self.fill(0..1).await?;
        self.wait_for_readers(read_timeout).await?;
        // What the last transactions have freed is free only after others have followed them.
        for row in 1..SETTLING_WRITES {
            self.fill(row..row + 1).await?;
        }
        let bytes = self.shared.probe.bytes();
        let most_rows = bytes / PAGE_BYTES + ROWS_PER_WRITE * SETTLING_WRITES;
        let mut first = SETTLING_WRITES;
        while first < most_rows && self.shared.probe.bytes() <= bytes {
            self.fill(first..first + ROWS_PER_WRITE).await?;
            first += ROWS_PER_WRITE;
        }
        Ok(())
    }

    async fn fill(&self, rows: Range<u64>) -> Result<(), StoreError> {
        let write = self.write(Write::Erasure(Box::new(ErasureWrite::Fill { rows })));
        let late = |_| StoreError::Unavailable("deletions leave more than is removed".to_owned());
        tokio::time::timeout(SWEEP_TIMEOUT, write).await.map_err(late)?.map(drop)
    }

    /// Waits until those have ended who read now: the pages that they see are not free, even if nothing
    /// else refers to them. Whoever reads later sees nothing of what was removed by now.
    async fn wait_for_readers(&self, read_timeout: Duration) -> Result<(), StoreError> {
        let readers = self.shared.present_readers();
        let all_ended = async {
            while Arc::strong_count(&readers) > 1 {
                tokio::time::sleep(READ_INTERVAL).await;
            }
        };
        let late = |_| StoreError::Unavailable("a read has not ended in time".to_owned());
        tokio::time::timeout(read_timeout, all_ended).await.map_err(late)
    }
}

/// Writes the next rows of zeros.
pub(super) fn fill(to: &WriteTransaction, rows: Range<u64>) -> Result<bool, Error> {
    let mut filler = to.open_table(FILLER)?;
    for row in rows {
        filler.insert(row, ROW.as_slice())?;
    }
    Ok(true)
}

/// Frees the pages again.
pub(super) fn end_filling(to: &WriteTransaction) -> Result<bool, Error> {
    Ok(to.delete_table(FILLER)?)
}
