//! Journals that are being imported, in Redis: a list for each import, which expires.

use std::borrow::Cow;
use std::sync::Arc;

use abide_actors::journal::{Claim, Commit, StoreError, event_json};
use abide_conversation::{Event, Seq};
use async_trait::async_trait;

use super::super::super::commit_rules;
use super::super::super::sealing::CommitKey;
use super::super::super::staging::{StagedJournal, Staging, lost};
use super::super::Redis;
use super::super::command::keys::Tag;
use super::super::command::script::ScriptCall;
use super::super::scripts::{STAGE, UNSTAGE};

/// The kind of the keys of imports.
pub(super) const STAGED: &str = "staged";
/// How long the events of an import that died are kept: longer than the next of a slow one take.
const STAGED_SECONDS: u64 = 86_400;

#[async_trait]
impl Staging for Redis {
    async fn stage(&self, staged: &StagedJournal, events: Arc<[Event]>) -> Result<(), StoreError> {
        let key = self.staging_key(staged)?;
        let form = self.stored_form(key.as_ref().map(|key| &key.own));
        let json = event_json(&events)?;
        let stored = events.iter().zip(json.iter());
        let stored = stored.map(|(event, json)| form.of_event(event.seq, json.into()));
        let stored = stored.collect::<Result<Vec<_>, _>>()?;
        if events.is_empty() || self.stage_by_script(staged, &stored).await? {
            return Ok(());
        }
        Err(lost())
    }

    async fn publish(
        &self,
        staged: &StagedJournal,
        held: &Claim,
        commit: Commit,
    ) -> Result<(), StoreError> {
        if !commit_rules::follows(&commit, Some(staged.last_seq)) || staged.last_seq == Seq::ZERO {
            return Err(StoreError::Conflict);
        }
        let published = self.append_by_script(&staged.id, held, &commit, Some(staged)).await;
        if published.is_ok() {
            self.end_staging(staged);
        }
        published
    }

    async fn unstage(&self, staged: &StagedJournal) -> Result<(), StoreError> {
        self.end_staging(staged);
        self.stage_by_script(staged, &[]).await.map(drop)
    }
}

impl Redis {
    /// What seals the events of an import; `None` if nothing does.
    pub(super) fn staging_key(
        &self,
        staged: &StagedJournal,
    ) -> Result<Option<CommitKey>, StoreError> {
        match &self.sealer {
            Some(sealer) => sealer.staging_key(&staged.key(), &staged.id),
            None => Ok(None),
        }
    }

    fn end_staging(&self, staged: &StagedJournal) {
        if let Some(sealer) = &self.sealer {
            sealer.end_staging(&staged.key());
        }
    }

    /// Keeps events aside, or forgets those that are if there are none. Returns whether these follow
    /// what is aside.
    async fn stage_by_script(
        &self,
        staged: &StagedJournal,
        events: &[Cow<'_, [u8]>],
    ) -> Result<bool, StoreError> {
        let (tag, key) = (Tag::of(&staged.id), staged.key());
        let script = if events.is_empty() { &UNSTAGE } else { &STAGE };
        let call = ScriptCall::new(script, tag, [tag.own(STAGED, &key)]);
        let mut call = call.arg(staged.last_seq.get()).arg(STAGED_SECONDS);
        for event in events {
            call = call.arg(&**event);
        }
        self.call_durably(call).await
    }
}
