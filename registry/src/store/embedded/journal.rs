//! The file as a journal.

use abide_actors::journal::{
    Claim, ClaimedConversation, Commit, ConversationSummary, Holder, Journal, ResponseScope,
    Rewrite, StoreError, StoredConversation, StoredResponse,
};
use abide_actors::notices::OwedNotice;
use abide_conversation::{ConversationId, Event, Scoped, Seq, Timestamp};
use async_trait::async_trait;

use super::super::{Occupancy, Store, commit_rules, sealing};
use super::encode::Append;
use super::encryption::{self, Snapshot};
use super::erasures::EncodedRewrite;
use super::write::Write;
use super::writer::Job;
use super::{Embedded, MAX_INLINE_BYTES, MAX_INLINE_EVENTS, encode, read};

#[async_trait]
impl Journal for Embedded {
    async fn append(
        &self,
        id: &Scoped<ConversationId>,
        held: &Claim,
        commit: Commit,
    ) -> Result<(), StoreError> {
        let is_first = commit.summary.last_seq.get() == commit.events.len() as u64;
        let key = self.commit_key(id, held, is_first)?;
        let append = Append::new(id, held, commit, self.sealer(), key.as_ref())?;
        let done = self.write(Write::Append(Box::new(append))).await.map(|_| ());
        if let (Some(sealer), Some(key)) = (self.sealer(), &key) {
            sealer.committed(held.epoch, key, done.is_ok());
        }
        done
    }

    async fn rewrite(
        &self,
        id: &Scoped<ConversationId>,
        held: &Claim,
        rewrite: Rewrite,
    ) -> Result<(), StoreError> {
        let sealer = self.sealer();
        let record = self.read_row(|from| read::sealed_record(from, id))?;
        let own = record.map(|record| record.own_key(sealer, id)).transpose()?.flatten();
        let write = EncodedRewrite::new(id, held, rewrite, (sealer, own.as_ref()))?;
        self.write(Write::Rewrite(Box::new(write))).await.map(drop)
    }

    async fn load(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<Option<StoredConversation>, StoreError> {
        if self.count_events_after(id, Seq::ZERO)? <= MAX_INLINE_EVENTS
            && let Some(short) = self.read_row(|from| read::load(from, id, MAX_INLINE_BYTES))?
        {
            return Ok(short);
        }
        let id = id.clone();
        let whole = self.read(move |from| read::load(from, &id, usize::MAX)).await?;
        Ok(whole.flatten())
    }

    async fn events(
        &self,
        id: &Scoped<ConversationId>,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let read = move |id: &Scoped<ConversationId>, from: &Snapshot<'_>, max_bytes| {
            read::events(from, id, after, limit, max_bytes)
        };
        if self.count_events_after(id, after)? <= MAX_INLINE_EVENTS
            && let Some(short) = self.read_row(|from| read(id, from, MAX_INLINE_BYTES))?
        {
            return Ok(short);
        }
        let id = id.clone();
        let whole = self.read(move |from| read(&id, from, usize::MAX)).await?;
        Ok(whole.unwrap_or_default())
    }

    async fn events_before(
        &self,
        id: &Scoped<ConversationId>,
        before: Seq,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let id = id.clone();
        self.read(move |from| read::events_before(from, &id, before, limit)).await
    }

    async fn summary(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<Option<ConversationSummary>, StoreError> {
        let record = self.read_row(|from| read::record(from, id))?;
        Ok(record.map(|record| record.summary))
    }

    async fn stored_response(
        &self,
        scope: &ResponseScope,
        key: &str,
        now: Timestamp,
    ) -> Result<Option<StoredResponse>, StoreError> {
        let stored = self.read_row(|from| read::response(from, scope, key, now))?;
        stored.map(|it| sealing::open_response(self.sealer(), scope, it)).transpose()
    }

    async fn claim(
        &self,
        id: &Scoped<ConversationId>,
        me: &Holder,
        dead: Option<&Holder>,
    ) -> Result<Claim, StoreError> {
        Ok(self.claim_over(id, me, dead).await?.0)
    }

    async fn claim_and_load(
        &self,
        id: &Scoped<ConversationId>,
        me: &Holder,
        dead: Option<&Holder>,
    ) -> Result<ClaimedConversation, StoreError> {
        let (claim, is_successor) = self.claim_over(id, me, dead).await?;
        if claim.holder != *me {
            return Ok(ClaimedConversation { claim, deaths: 0, alarm: None, stored: None });
        }
        let was_interrupted = self.shared.interrupted().contains(id);
        if is_successor || was_interrupted {
            let (id, held) = (id.clone(), claim.clone());
            self.write(Write::CountDeath { id, held }).await?;
        }
        if was_interrupted {
            self.shared.interrupted().remove(id);
        }
        let (deaths, alarm) = self.read_row(|from| {
            let record = read::sealed_record(from, id)?;
            Ok((read::deaths(from, id.as_str())?, record.and_then(|it| it.summary.alarm)))
        })?;
        let stored = self.load(id).await?;
        Ok(ClaimedConversation { claim, deaths, alarm, stored })
    }

    async fn claim_and_append(
        &self,
        id: &Scoped<ConversationId>,
        me: &Holder,
        commit: Commit,
    ) -> Result<Claim, StoreError> {
        let is_first = commit_rules::follows(&commit, None);
        if !is_first || self.occupancy(id).await? != Occupancy::New {
            return Err(StoreError::Conflict);
        }
        let (claim, _) = self.claim_over(id, me, None).await?;
        self.append(id, &claim, commit).await.map(|()| claim)
    }

    async fn reset_deaths(&self, id: &Scoped<ConversationId>) -> Result<(), StoreError> {
        self.write(Write::ResetDeaths { id: id.clone() }).await.map(|_| ())
    }

    async fn release(&self, id: &Scoped<ConversationId>, held: &Claim) -> Result<(), StoreError> {
        let (id, held) = (id.clone(), held.clone());
        self.submit(|done| Job::Release { id, held, done }).await
    }

    async fn delete(
        &self,
        id: &Scoped<ConversationId>,
        held: &Claim,
        response: Option<StoredResponse>,
        owed: Vec<OwedNotice>,
    ) -> Result<(), StoreError> {
        let sealer = self.sealer();
        let scope = ResponseScope::Conversation(id.clone());
        let response = encode::response(&scope, response, sealer)?;
        let owed = encryption::seal_owed(sealer, id, owed)?;
        self.shared.interrupted().remove(id);
        if let Some(sealer) = sealer {
            sealer.forget(id);
        }
        let (id, held) = (id.clone(), held.clone());
        self.write(Write::Delete { id, held, response, owed }).await.map(|_| ())
    }
}
