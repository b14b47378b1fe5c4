//! Claims of conversations in the file.

use abide_actors::journal::{Claim, Holder, StoreError};
use abide_conversation::{ConversationId, Scoped, Seq};

use super::state::ClaimStep;
use super::writer::Job;
use super::{Embedded, read};

impl Embedded {
    /// Claims a conversation. Returns the claim after that, and whether it replaces that of a dead
    /// holder.
    pub(super) async fn claim_over(
        &self,
        id: &Scoped<ConversationId>,
        me: &Holder,
        dead: Option<&Holder>,
    ) -> Result<(Claim, bool), StoreError> {
        match self.shared.claim(id, me, dead).map_err(|error| self.report(error))? {
            ClaimStep::Held(claim) => Ok((claim, false)),
            ClaimStep::TakeOver(dead) => {
                let is_other = dead != *me;
                let (id, me) = (id.clone(), me.clone());
                let claim = self.submit(|done| Job::TakeOver { id, me, dead, done }).await??;
                Ok((claim, is_other))
            }
        }
    }

    /// How many events follow `after`.
    pub(super) fn count_events_after(
        &self,
        id: &Scoped<ConversationId>,
        after: Seq,
    ) -> Result<u64, StoreError> {
        let record = self.read_row(|from| read::sealed_record(from, id))?;
        Ok(record.map_or(0, |record| record.summary.last_seq.since(after)))
    }
}
