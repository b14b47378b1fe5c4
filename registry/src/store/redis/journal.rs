//! Redis as a journal.

use abide_actors::journal::{
    Claim, ClaimedConversation, Commit, Holder, Journal, StoreError, StoredConversation,
    StoredResponse,
};
use abide_conversation::{ConversationId, Event, Seq, State, Timestamp};
use async_trait::async_trait;
use redis::cmd;

use super::super::commit_rules;
use super::Redis;
use super::decode;
use super::error::refused;
use super::keys::Tag;
use super::scripts::StoredRow;

#[async_trait]
impl Journal for Redis {
    async fn claim(
        &self,
        id: &ConversationId,
        me: &Holder,
        dead: Option<&Holder>,
    ) -> Result<Claim, StoreError> {
        self.claim_by_script(id, me, dead).await
    }

    async fn release(&self, id: &ConversationId, held: &Claim) -> Result<(), StoreError> {
        self.release_by_script(id, held).await
    }

    async fn delete(
        &self,
        id: &ConversationId,
        held: &Claim,
        response: Option<StoredResponse>,
    ) -> Result<(), StoreError> {
        self.delete_by_script(id, held, response).await
    }

    async fn append(
        &self,
        id: &ConversationId,
        held: &Claim,
        commit: Commit,
    ) -> Result<(), StoreError> {
        // The script checks whether the journal ends there.
        let before = commit.summary.last_seq.get().checked_sub(commit.events.len() as u64);
        if before.is_some_and(|before| commit_rules::follows(&commit, Some(Seq::new(before)))) {
            self.append_by_script(id, held, &commit).await
        } else {
            Err(StoreError::Conflict)
        }
    }

    async fn load(&self, id: &ConversationId) -> Result<Option<StoredConversation>, StoreError> {
        match self.load_by_script(id, true).await? {
            Some(stored) => self.read(id, stored).await,
            None => Ok(None),
        }
    }

    async fn claim_and_load(
        &self,
        id: &ConversationId,
        me: &Holder,
        dead: Option<&Holder>,
    ) -> Result<ClaimedConversation, StoreError> {
        let (claim, row, deaths) = self.claim_and_load_by_script(id, me, dead).await?;
        let stored = match row {
            Some(row) => self.read(id, row).await?,
            None => None,
        };
        Ok(ClaimedConversation { claim, deaths, stored })
    }

    async fn reset_deaths(&self, id: &ConversationId) -> Result<(), StoreError> {
        self.reset_deaths_by_script(id).await
    }

    async fn events(
        &self,
        id: &ConversationId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let last = after.saturating_add(limit as u64);
        self.range(id, after, last).await
    }

    async fn events_before(
        &self,
        id: &ConversationId,
        before: Seq,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        // Nothing is read past the end, so that the limit counts back from the last event.
        let seq =
            decode::seq(id, self.query_row(decode::query_seq(id)).await?)?.unwrap_or_default();
        let last = before.saturating_sub(1).min(seq);
        let mut events = self.range(id, last.saturating_sub(limit as u64), last).await?;
        events.reverse();
        Ok(events)
    }

    async fn stored_response(
        &self,
        scope: &str,
        key: &str,
        now: Timestamp,
    ) -> Result<Option<StoredResponse>, StoreError> {
        let tag = Tag::of_scope(scope);
        let mut command = cmd("HGET");
        command.arg(tag.key_of("a", scope)).arg(key);
        let Some(value) = self.query::<Option<Vec<u8>>>(tag, command).await? else {
            return Ok(None);
        };
        let response = decode::response(scope, &value)?;
        Ok((now < response.expires_at).then_some(response))
    }
}

impl Redis {
    /// Decodes a stored conversation; if its cached state cannot be read, reads all its events
    /// instead.
    async fn read(
        &self,
        id: &ConversationId,
        stored: StoredRow,
    ) -> Result<Option<StoredConversation>, StoreError> {
        let (_, state, events) = stored;
        let cached = match state.as_slice() {
            [] => Some(State::default()),
            json => abide_conversation::from_json(json).ok(),
        };
        if let Some(state) = cached {
            return Ok(Some(StoredConversation { state, events: parse(id, events)? }));
        }
        let whole = self.load_by_script(id, false).await?;
        let loaded = whole.map(|(_, _, events)| {
            Ok(StoredConversation { state: State::default(), events: parse(id, events)? })
        });
        loaded.transpose()
    }

    /// The events `after + 1 ..= last`, as far as they exist.
    async fn range(
        &self,
        id: &ConversationId,
        after: Seq,
        last: Seq,
    ) -> Result<Vec<Event>, StoreError> {
        // Redis counts from 0, in signed numbers, and includes the last index.
        let first = i64::try_from(after.get()).unwrap_or(i64::MAX);
        let last = i64::try_from(last.get()).unwrap_or(i64::MAX);
        if last <= first {
            return Ok(Vec::new());
        }
        let tag = Tag::of(id);
        let mut command = cmd("LRANGE");
        command.arg(tag.key_of("j", id.as_str())).arg(first).arg(last - 1);
        parse(id, self.query(tag, command).await?)
    }
}

fn parse(id: &ConversationId, events: Vec<Vec<u8>>) -> Result<Vec<Event>, StoreError> {
    let events = events.iter().map(|json| abide_conversation::from_json(json));
    let unreadable = |error| refused(format!("{}: {error}", Tag::of(id).key_of("j", id.as_str())));
    events.collect::<Result<_, _>>().map_err(unreadable)
}
