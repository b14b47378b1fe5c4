//! The keys of an encrypted store, in Redis: which are in use is noted once for all, and each
//! conversation has its data key in its own key.

mod sealing_pass;

use std::borrow::Cow;
use std::sync::Arc;

use abide_actors::identity::Epoch;
use abide_actors::journal::{Claim, StoreError};
use abide_conversation::{ConversationId, Scoped, Seq};
use redis::cmd;

use super::super::sealing::{
    self, CommitKey, KeyRing, Label, NotedKeys, OwnKey, RewrapPass, STORE_KEY, Sealer,
};
use super::super::{ListError, Rewrapped, Store, paging};
use super::command::keys::{self, Key, Tag};
use super::command::script::ScriptCall;
use super::connection::execute::read;
use super::rows::pager::{Pager, Row};
use super::scripts::{REKEY, StoredRow};
use super::{OpenError, Redis, RedisUrl};
use crate::partition::Partition;

/// The hash of the keys in use.
const ENCRYPTION: &str = "encryption";
/// How many conversations a page of a pass has.
const CONVERSATIONS_AT_ONCE: usize = 1_000;
/// The field of a conversation with its data key.
const KEY: &str = "key";

impl Redis {
    /// Takes the keys of a key file, and notes which is in use. Refuses other keys than the store's.
    pub(super) async fn with_keys(
        mut self,
        url: &RedisUrl,
        ring: Option<KeyRing>,
    ) -> Result<Self, OpenError> {
        let failed = |error: StoreError| match error {
            StoreError::Unreadable(reason) => OpenError::Encryption(reason),
            StoreError::Unavailable(reason) => OpenError::Away { url: url.clone(), reason },
            StoreError::Fenced | StoreError::Conflict => {
                OpenError::Away { url: url.clone(), reason: error.to_string() }
            }
        };
        let noted = self.noted_keys().await.map_err(failed)?;
        let Some(ring) = ring else {
            sealing::require_none(&noted).map_err(OpenError::Encryption)?;
            return Ok(self);
        };
        let (mut sealer, new) = Sealer::new(ring, &noted).map_err(OpenError::Encryption)?;
        if let Some(new) = new {
            let stored = self.rekey(Self::encryption_key(), STORE_KEY, b"", &new).await;
            sealer.take_store_key(&stored.map_err(failed)?).map_err(OpenError::Encryption)?;
        }
        if let Some((id, wrapped)) = sealer.note().map_err(failed)?
            && !noted.contains_key(&id)
        {
            let stored = self.rekey(Self::encryption_key(), &id, b"", &wrapped).await;
            sealer.require(&id, &stored.map_err(failed)?).map_err(OpenError::Encryption)?;
        }
        self.sealer = Some(Arc::new(sealer));
        Ok(self)
    }

    fn encryption_key() -> Key<'static> {
        Tag::Agents.common(ENCRYPTION)
    }

    async fn noted_keys(&self) -> Result<NotedKeys, StoreError> {
        let mut command = cmd("HGETALL");
        command.arg(Self::encryption_key().into_string());
        self.query(Tag::Agents, command).await
    }

    /// Replaces a field of a hash, if it is as expected; nothing stands for none. Returns what the
    /// field is after that.
    pub(super) async fn rekey(
        &self,
        key: Key<'_>,
        field: &str,
        expected: &[u8],
        next: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        let call = ScriptCall::new(&REKEY, key.tag(), [key]).arg(field).arg(expected).arg(next);
        self.call_durably(call).await
    }

    /// Seals a value by the store's data key, if there is one.
    pub(super) fn seal<'v>(
        &self,
        label: Label<'_>,
        value: Cow<'v, [u8]>,
    ) -> Result<Cow<'v, [u8]>, StoreError> {
        match &self.sealer {
            Some(sealer) => sealer.seal(label, value),
            None => Ok(value),
        }
    }

    /// Opens a value that may be sealed by the store's data key.
    pub(super) fn open_value<'v>(
        &self,
        label: Label<'_>,
        value: Cow<'v, [u8]>,
    ) -> Result<Cow<'v, [u8]>, StoreError> {
        match &self.sealer {
            Some(sealer) => sealer.open(label, value),
            None => Ok(value),
        }
    }

    /// What a commit under this claim, after this `seq`, seals by; `None` if it is not sealed.
    pub(super) async fn commit_key(
        &self,
        id: &Scoped<ConversationId>,
        held: &Claim,
        before: Seq,
    ) -> Result<Option<CommitKey>, StoreError> {
        let Some(sealer) = &self.sealer else { return Ok(None) };
        // A new conversation has a new key, also where a fail-over took an earlier one back.
        if before == Seq::ZERO {
            return sealer.commit_key(id, b"");
        }
        if let Some(known) = sealer.known_key(id, held.epoch)? {
            return Ok(Some(known));
        }
        let (epoch, wrapped) = self.stored_key(id).await?;
        if epoch != Some(held.epoch) {
            return Err(StoreError::Fenced);
        }
        sealer.commit_key(id, &wrapped)
    }

    /// Notes what became of the key of a commit.
    pub(super) fn committed(&self, held: &Claim, key: Option<&CommitKey>, is_done: bool) {
        if let (Some(sealer), Some(key)) = (&self.sealer, key) {
            sealer.committed(held.epoch, key, is_done);
        }
    }

    /// The epoch of a conversation, and its data key as it is stored; empty if it has none.
    async fn stored_key(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<(Option<Epoch>, Vec<u8>), StoreError> {
        let (tag, mut command) = (Tag::of(id), cmd("HMGET"));
        command.arg(tag.key_of("c", id.as_str())).arg("epoch").arg(KEY);
        let (epoch, wrapped): (Option<u64>, Option<Vec<u8>>) = self.query(tag, command).await?;
        Ok((epoch.map(Epoch::new), wrapped.unwrap_or_default()))
    }

    /// The data key of a conversation as it is now.
    pub(super) async fn present_key(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<Option<OwnKey>, StoreError> {
        let Some(sealer) = &self.sealer else { return Ok(None) };
        let (epoch, wrapped) = self.stored_key(id).await?;
        let own = sealer.own_key_if_any(id, &wrapped)?;
        if let Some(epoch) = epoch {
            sealer.learn(id, epoch, own.as_ref());
        }
        Ok(own)
    }

    /// The data key that opens these events, of which the first follows this number of others.
    pub(super) async fn key_of_events(
        &self,
        id: &Scoped<ConversationId>,
        before: u64,
        events: &[Vec<u8>],
    ) -> Result<Option<OwnKey>, StoreError> {
        let Some(sealer) = &self.sealer else { return Ok(None) };
        let mut numbered = (before + 1..).zip(events);
        let Some((seq, sealed)) = numbered.find(|(_, event)| sealing::is_sealed(event)) else {
            return Ok(None);
        };
        let recent = sealer.recent_key(id);
        match recent.filter(|key| key.fits("event", &seq.to_string(), sealed)) {
            Some(recent) => Ok(Some(recent)),
            None => self.present_key(id).await,
        }
    }

    /// Notes the data key of a conversation that was read under this claim.
    pub(super) fn learn_key(
        &self,
        id: &Scoped<ConversationId>,
        claim: &Claim,
        row: Option<&StoredRow>,
    ) -> Result<(), StoreError> {
        if let (Some(sealer), Some((.., wrapped))) = (&self.sealer, row) {
            sealer.learn(id, claim.epoch, sealer.own_key_if_any(id, wrapped)?.as_ref());
        }
        Ok(())
    }

    /// Has all data keys wrapped by the first key of the key file.
    pub(super) async fn rewrap_all(&self) -> Result<Option<Rewrapped>, ListError> {
        let Some(sealer) = self.sealer.as_ref().filter(|sealer| sealer.seals()) else {
            return Ok(None);
        };
        let mut pass = RewrapPass::default();
        for tenant in self.tenants().await? {
            let index = format!("{}ids", keys::prefix_of(&tenant));
            let mut after: Option<String> = None;
            loop {
                let mut pager =
                    Pager::new(index.clone(), Partition::all(), after, CONVERSATIONS_AT_ONCE);
                while let Some(rows) = pager.rows(self).await? {
                    self.rewrap_rows(sealer, &mut pass, &rows).await?;
                    rows.into_iter().for_each(|row| pager.take(row, Some(())));
                }
                let page = pager.page(|member| Some(member.to_owned()));
                after = paging::decode(page.cursor.as_deref())?;
                if after.is_none() {
                    break;
                }
            }
        }
        pass.done.sealed = self.seal_plain().await?;
        let noted = self.noted_keys().await?;
        if let Some(wrapped) = noted.get(STORE_KEY)
            && let Some(next) = sealer.rewrapped(STORE_KEY, wrapped)?
        {
            self.rekey(Self::encryption_key(), STORE_KEY, wrapped, &next).await?;
        }
        for id in pass.unneeded(sealer, &noted) {
            self.rekey(Self::encryption_key(), &id, &noted[&id], b"").await?;
            pass.done.retired.push(id);
        }
        Ok(Some(pass.done))
    }

    async fn rewrap_rows(
        &self,
        sealer: &Sealer,
        pass: &mut RewrapPass,
        rows: &[Row],
    ) -> Result<(), StoreError> {
        let query = |row: &Row| {
            let (tag, mut command) = (Tag::Partition(row.partition), cmd("HGET"));
            command.arg(tag.key_of("c", &row.member)).arg(KEY);
            (tag, command)
        };
        let answers = self.query_all(rows.iter().map(query).collect()).await?;
        for (row, answer) in rows.iter().zip(answers) {
            let wrapped: Option<Vec<u8>> = read(KEY, answer)?;
            let wrapped = wrapped.unwrap_or_default();
            if let Some(next) = pass.look_at(sealer, &row.member, &wrapped)? {
                let key = Tag::Partition(row.partition).own("c", &row.member);
                let present = self.rekey(key, KEY, &wrapped, &next).await?;
                pass.done.rewrapped += u64::from(present == next);
            }
        }
        Ok(())
    }

    /// The data key of a conversation, given the field that was read with it.
    pub(super) fn key_of(
        &self,
        id: &Scoped<ConversationId>,
        wrapped: &[u8],
    ) -> Result<Option<OwnKey>, StoreError> {
        match &self.sealer {
            Some(sealer) => sealer.own_key_if_any(id, wrapped),
            None => Ok(None),
        }
    }
}
