//! Writes of names and holds of blobs that are no commits of a conversation.

use redb::{Error, ReadableTable};

use super::super::blob_names::{self, NameWrite};
use super::OpenTables;

impl OpenTables<'_> {
    /// Returns whether the conversation or the blob is there, or whether the blob was removed.
    pub(super) fn write_names(&mut self, write: &NameWrite) -> Result<bool, Error> {
        let exists = match write {
            NameWrite::Name { id, .. } | NameWrite::Drop { id } => {
                self.of(id)?.heads.get(id.as_str())?.is_some()
            }
            NameWrite::Hold { .. } | NameWrite::End { .. } => true,
        };
        blob_names::apply(self.transaction, write, exists)
    }
}
