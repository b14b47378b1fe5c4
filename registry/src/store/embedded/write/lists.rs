//! Writes to the index of lists that are no commits of a conversation.

use redb::{Error, ReadableTable};

use super::super::super::listing::is_as_read;
use super::super::listing::{self, ListWrite};
use super::super::tables::{self, Record};
use super::OpenTables;

impl OpenTables<'_> {
    /// Returns whether there still was what the write was made for.
    pub(super) fn list(&mut self, write: &ListWrite) -> Result<bool, Error> {
        let (id, summary, sealed, entry) = match write {
            ListWrite::ReplaceProgress { of, present, next } => {
                return listing::replace_progress(self.transaction, of, present, next);
            }
            ListWrite::Relist { id, summary, sealed, entry } => (id, summary, sealed, entry),
        };
        let heads = &mut self.of(id)?.heads;
        let Some(json) = heads.get(id.as_str())?.map(|json| json.value().to_vec()) else {
            return Ok(false);
        };
        let mut record: Record = tables::parse("head", &json)?;
        if !is_as_read(&record.summary, summary) {
            return Ok(false);
        }
        record.summary.listing = summary.listing.clone();
        if sealed.is_some() {
            record.summary.metadata = summary.metadata.clone();
            record.sealed = sealed.clone();
        }
        let json = serde_json::to_vec(&record).map_err(|it| Error::Corrupted(it.to_string()))?;
        heads.insert(id.as_str(), json.as_slice())?;
        self.lists.replace(id, Some(entry))?;
        Ok(true)
    }
}
