//! Overwrites the pages of the file that deletions have freed: redb leaves their bytes where they are.

use std::ops::Range;

use abide_actors::journal::StoreError;
use redb::{Error, TableDefinition, WriteTransaction};

use super::Embedded;
use super::erasures::ErasureWrite;
use super::write::Write;

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

impl Embedded {
    /// Fills the file with zeros until no page of it is free, and then frees them again. The file grows
    /// for that, and redb gives back later what it does not need.
    pub(super) async fn overwrite_free_pages(&self) -> Result<(), StoreError> {
        let filled = self.fill_free_pages().await;
        let ended = self.write(Write::Erasure(Box::new(ErasureWrite::EndFilling))).await;
        filled.and(ended.map(drop))
    }

    async fn fill_free_pages(&self) -> Result<(), StoreError> {
        let fill = |rows| Write::Erasure(Box::new(ErasureWrite::Fill { rows }));
        // What the last transactions have freed is free only after others have followed them.
        for row in 0..SETTLING_WRITES {
            self.write(fill(row..row + 1)).await?;
        }
        let bytes = self.shared.probe.bytes();
        let most_rows = bytes / PAGE_BYTES + ROWS_PER_WRITE * SETTLING_WRITES;
        let mut first = SETTLING_WRITES;
        while first < most_rows && self.shared.probe.bytes() <= bytes {
            self.write(fill(first..first + ROWS_PER_WRITE)).await?;
            first += ROWS_PER_WRITE;
        }
        Ok(())
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
