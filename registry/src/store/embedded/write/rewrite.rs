//! Replaces events of a journal, and what is stored beside it.

use abide_actors::journal::StoreError;
use redb::{Error, ReadableTable};

use super::super::erasures::EncodedRewrite;
use super::super::tables::nanos;
use super::{OpenTables, Outcome};

impl OpenTables<'_> {
    pub(super) fn rewrite(&mut self, write: &EncodedRewrite) -> Result<Outcome, Error> {
        let (id, summary) = (write.id.as_str(), &write.rewrite.summary);
        let present = self.summary(&write.id)?;
        if present.map(|present| present.last_seq) != Some(summary.last_seq) {
            return Ok(Err(StoreError::Conflict));
        }
        for (event, json) in write.rewrite.events.iter().zip(&write.events) {
            self.journal.insert((id, event.seq.get()), json.as_slice())?;
        }
        self.of(&write.id)?.heads.insert(id, write.record.as_slice())?;
        self.states.remove(id)?;
        for (pending, json) in write.rewrite.open.iter().zip(&write.entries) {
            let (call, suspension) = (pending.call_id.as_str(), pending.suspension);
            let key = (nanos(pending.expires_at), id, call, suspension);
            let inbox = &mut self.of(&write.id)?.inbox;
            if inbox.get(key)?.is_some() {
                inbox.insert(key, json.as_slice())?;
            }
        }
        self.lists.replace(&write.id, Some(&write.entry))?;
        Ok(Ok(true))
    }
}
