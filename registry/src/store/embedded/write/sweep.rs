//! Removes what deletions left, a little with each commit.

use redb::{Error, ReadableTable};

use super::super::super::StagedJournal;
use super::{OpenTables, Precondition};

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
        let mut first = first.filter(|id| !self.promoted.contains(id)).map(str::to_owned);
        while rows > 0 && bytes > 0 {
            let next = self.next_unswept()?;
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
        Ok(self.next_unswept()?.is_some() || self.audit.has_hidden()?)
    }

    /// A conversation whose events are to be removed: it was deleted, or an import of it died.
    fn next_unswept(&self) -> Result<Option<String>, Error> {
        for row in self.unswept.range::<&str>(..)? {
            let id = row?.0;
            if !self.promoted.contains(id.value()) {
                return Ok(Some(id.value().to_owned()));
            }
        }
        Ok(None)
    }

    /// Whether there are events under the id that are to be removed, and are not those of this import.
    fn is_unswept(&self, id: &str, of: Option<&StagedJournal>) -> Result<bool, Error> {
        let is_own = of.is_some_and(|staged| self.promoted.is_of(id, staged));
        Ok(!is_own && self.unswept.get(id)?.is_some())
    }

    /// Whether a write must wait until what deletions left is removed.
    pub(in super::super) fn must_wait(&self, before: Precondition<'_>) -> Result<bool, Error> {
        match before {
            Precondition::HeldAndEmpty { id, import, .. } => self.is_unswept(id.as_str(), import),
            Precondition::Swept => self.has_unswept(),
            Precondition::None | Precondition::Held { .. } => Ok(false),
        }
    }
}
