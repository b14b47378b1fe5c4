//! The audit in Redis: next to its conversation, removed by the server when it expires; and beside it,
//! the audit of the operators.

pub(super) mod operations;

use abide_actors::audit::{AuditEntry, AuditLog};
use abide_actors::journal::StoreError;
use abide_conversation::{ConversationId, Scoped, Timestamp};
use async_trait::async_trait;
use redis::cmd;

use super::super::sealing::Label;
use super::Redis;
use super::command::keys::{self, Key, Tag};
use super::rows::decode;

#[async_trait]
impl AuditLog for Redis {
    async fn put_entry(
        &self,
        id: &Scoped<ConversationId>,
        entry: &AuditEntry,
        expires_at: Timestamp,
    ) -> Result<(), StoreError> {
        self.audit_by_script(id, entry, expires_at).await
    }

    async fn entries(
        &self,
        id: &Scoped<ConversationId>,
        before: Option<&str>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<AuditEntry>, StoreError> {
        let tag = Tag::of(id);
        let [entries, expiries] = keys_of(tag, id).map(|key| key.into_string());
        let mut command = cmd("ZRANGE");
        let after = format!("({}", keys::score_until(now));
        command.arg(expiries).arg(after).arg("+inf").arg("BYSCORE");
        let mut live: Vec<String> = self.query(tag, command).await?;
        live.retain(|key| before.is_none_or(|before| key.as_str() < before));
        live.sort_by(|one, other| other.cmp(one));
        live.truncate(limit);
        if live.is_empty() {
            return Ok(Vec::new());
        }
        let mut command = cmd("HMGET");
        command.arg(entries).arg(&live);
        let found: Vec<Option<Vec<u8>>> = self.query_large(tag, command).await?;
        let rows = live.iter().zip(found).filter_map(|(key, json)| Some((key, json?)));
        let entries = rows.map(|(key, json)| {
            let label = Label { kind: "audit", owner: id.as_str(), part: key };
            decode::parse("audit entry", &self.open_value(label, json.into())?)
        });
        entries.collect()
    }
}

/// The keys of a conversation's audit: the entries, and when each expires.
pub(super) fn keys_of(tag: Tag, id: &Scoped<ConversationId>) -> [Key<'_>; 2] {
    ["u", "ux"].map(|kind| tag.own(kind, id.as_str()))
}
