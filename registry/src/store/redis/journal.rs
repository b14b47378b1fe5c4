//! Redis as a journal; and beside it, what a commit writes, the pages of long journals, and journals
//! that are being imported.

mod append;
pub(super) mod commit_writes;
pub(super) mod pages;
mod staging;

use abide_actors::blobs::blobs_of_commit;
use abide_actors::journal::{
    Claim, ClaimedConversation, Commit, ConversationSummary, Holder, Journal, ResponseScope,
    Rewrite, StoreError, StoredConversation, StoredResponse,
};
use abide_actors::notices::OwedNotice;
use abide_conversation::{ConversationId, Event, Scoped, Seq, Timestamp};
use async_trait::async_trait;
use redis::cmd;

use super::super::{Occupancy, Store, commit_rules, sealing};
use super::Redis;
use super::command::keys;
use super::connection::execute::Guarantee;
use super::rows::decode;
use super::rows::indexed_row::IndexedRow;

#[async_trait]
impl Journal for Redis {
    async fn claim(
        &self,
        id: &Scoped<ConversationId>,
        me: &Holder,
        dead: Option<&Holder>,
    ) -> Result<Claim, StoreError> {
        self.claim_by_script(id, me, dead).await
    }

    async fn release(&self, id: &Scoped<ConversationId>, held: &Claim) -> Result<(), StoreError> {
        self.rows.forget(id);
        self.release_by_script(id, held).await
    }

    async fn delete(
        &self,
        id: &Scoped<ConversationId>,
        held: &Claim,
        response: Option<StoredResponse>,
        owed: Vec<OwedNotice>,
    ) -> Result<(), StoreError> {
        self.rows.forget(id);
        self.delete_by_script(id, held, response, &owed).await?;
        if let Some(sealer) = &self.sealer {
            sealer.forget(id);
        }
        Ok(())
    }

    async fn append(
        &self,
        id: &Scoped<ConversationId>,
        held: &Claim,
        commit: Commit,
    ) -> Result<(), StoreError> {
        // The script checks whether the journal ends there.
        let before = commit.summary.last_seq.get().checked_sub(commit.events.len() as u64);
        if before.is_some_and(|before| commit_rules::follows(&commit, Some(Seq::new(before)))) {
            self.append_by_script(id, held, &commit, None).await
        } else {
            Err(StoreError::Conflict)
        }
    }

    async fn rewrite(
        &self,
        id: &Scoped<ConversationId>,
        held: &Claim,
        rewrite: Rewrite,
    ) -> Result<(), StoreError> {
        self.rows.forget(id);
        self.rewrite_by_script(id, held, &rewrite).await
    }

    async fn load(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<Option<StoredConversation>, StoreError> {
        let stored = self.load_by_script(id, true).await?;
        self.read_all(id, stored).await
    }

    async fn claim_and_load(
        &self,
        id: &Scoped<ConversationId>,
        me: &Holder,
        dead: Option<&Holder>,
    ) -> Result<ClaimedConversation, StoreError> {
        let (claim, row, deaths, indexed) = self.claim_and_load_by_script(id, me, dead).await?;
        self.learn_key(id, &claim, row.as_ref())?;
        let alarm = indexed.0.parse().ok();
        if let Some((seq, ..)) = row {
            self.rows.learn(id, claim.epoch, IndexedRow::new(seq, indexed));
        }
        let stored = self.read_all(id, row).await?;
        Ok(ClaimedConversation { claim, deaths, alarm, stored })
    }

    async fn claim_and_append(
        &self,
        id: &Scoped<ConversationId>,
        me: &Holder,
        commit: Commit,
    ) -> Result<Claim, StoreError> {
        if !commit_rules::follows(&commit, None) {
            return Err(StoreError::Conflict);
        }
        if blobs_of_commit(&commit)?.is_empty() {
            return self.claim_and_append_by_script(id, me, &commit).await;
        }
        // The names of blobs are written before the commit, under the claim.
        if self.occupancy(id).await? != Occupancy::New {
            return Err(StoreError::Conflict);
        }
        let claimed = self.claim_and_load(id, me, None).await?;
        if claimed.claim.holder != *me || claimed.stored.is_some() {
            return Err(StoreError::Conflict);
        }
        self.append(id, &claimed.claim, commit).await.map(|()| claimed.claim)
    }

    async fn reset_deaths(&self, id: &Scoped<ConversationId>) -> Result<(), StoreError> {
        self.reset_deaths_by_script(id).await
    }

    async fn events(
        &self,
        id: &Scoped<ConversationId>,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let last = after.saturating_add(limit as u64);
        self.range(id, after, last, Guarantee::Confirmed).await
    }

    async fn own_events(
        &self,
        id: &Scoped<ConversationId>,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let last = after.saturating_add(limit as u64);
        self.range(id, after, last, Guarantee::Unconfirmed).await
    }

    async fn events_before(
        &self,
        id: &Scoped<ConversationId>,
        before: Seq,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        // Nothing is read past the end, so that the limit counts back from the last event.
        let (tag, command) = decode::query_seq(id);
        let seq = decode::seq(id, self.query_confirmed(tag, command).await?)?.unwrap_or_default();
        let last = before.saturating_sub(1).min(seq);
        let first = last.saturating_sub(limit as u64);
        // What precedes a confirmed event is confirmed, too.
        let mut events = self.range(id, first, last, Guarantee::Unconfirmed).await?;
        events.reverse();
        Ok(events)
    }

    async fn summary(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<Option<ConversationSummary>, StoreError> {
        let (tag, command) = decode::query_summary(id);
        let row = self.query_confirmed(tag, command).await?;
        decode::summary(self.sealer.as_deref(), id, row)
    }

    async fn stored_response(
        &self,
        scope: &ResponseScope,
        key: &str,
        now: Timestamp,
    ) -> Result<Option<StoredResponse>, StoreError> {
        let (tag, name) = keys::of_scope(scope);
        let mut command = cmd("HGET");
        command.arg(tag.key_of("a", &name)).arg(key);
        // Mostly there is none, and then the request is carried out, and waits for its own writes.
        if self.query::<Option<Vec<u8>>>(tag, command.clone()).await?.is_none() {
            return Ok(None);
        }
        let Some(value) = self.query_confirmed::<Option<Vec<u8>>>(tag, command).await? else {
            return Ok(None);
        };
        let response = decode::response(scope, &value)?;
        let response = sealing::open_response(self.sealer.as_deref(), scope, response)?;
        Ok((now < response.expires_at).then_some(response))
    }
}
