//! Removes what deletions left, a little with each commit.

use redb::{Error, ReadableTable};

use super::OpenTables;

/// Events of deleted conversations that one commit removes, and their bytes: some milliseconds of
/// work, so that the deletion of a long journal does not hold up other writes.
const MAX_REMOVED_EVENTS: usize = 1_000;
const MAX_REMOVED_BYTES: usize = 4 << 20;

impl OpenTables<'_> {
    /// Removes some of the events that deletions left, beginning with those of `first`. Returns
    /// whether there were any.
    pub(in super::super) fn sweep(&mut self, first: Option<&str>) -> Result<bool, Error> {
        let mut rows = MAX_REMOVED_EVENTS;
        let mut bytes = MAX_REMOVED_BYTES;
        let mut swept = self.audit.sweep_hidden()?;
        let mut first = first.map(str::to_owned);
        while rows > 0 && bytes > 0 {
            let next = self.unswept.first()?.map(|row| row.0.value().to_owned());
            let Some(id) = first.take().or(next) else { break };
            swept = true;
            let mut last = 0;
            let mut is_complete = true;
            for row in self.journal.range((id.as_str(), 0)..=(id.as_str(), u64::MAX))? {
                if rows == 0 || bytes == 0 {
                    is_complete = false;
                    break;
                }
                let (key, json) = row?;
                last = key.value().1;
                rows -= 1;
                bytes = bytes.saturating_sub(json.value().len());
            }
            self.journal.retain_in((id.as_str(), 0)..=(id.as_str(), last), |_, _| false)?;
            if is_complete {
                self.unswept.remove(id.as_str())?;
            }
        }
        Ok(swept)
    }

    /// Whether deletions left events to remove.
    pub(in super::super) fn has_unswept(&self) -> Result<bool, Error> {
        Ok(self.unswept.first()?.is_some() || self.audit.has_hidden()?)
    }
}
