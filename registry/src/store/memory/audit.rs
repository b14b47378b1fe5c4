//! The audit in memory.

use std::collections::BTreeMap;

use abide_actors::audit::{AuditEntry, AuditLog, MAX_ENTRIES};
use abide_actors::journal::StoreError;
use abide_conversation::{ConversationId, Scoped, Timestamp};
use async_trait::async_trait;

use super::Memory;

/// The entries by conversation and key, each with the time at which it expires.
pub(super) type Entries =
    BTreeMap<Scoped<ConversationId>, BTreeMap<String, (Timestamp, AuditEntry)>>;

#[async_trait]
impl AuditLog for Memory {
    async fn put_entry(
        &self,
        id: &Scoped<ConversationId>,
        entry: &AuditEntry,
        expires_at: Timestamp,
    ) -> Result<(), StoreError> {
        let mut tables = self.tables();
        if !tables.conversations.contains_key(id) {
            return Ok(());
        }
        let entries = tables.audit.entry(id.clone()).or_default();
        entries.retain(|_, (expires_at, _)| entry.at < *expires_at);
        entries.insert(entry.key(), (expires_at, entry.clone()));
        while entries.len() > MAX_ENTRIES {
            entries.pop_first();
        }
        Ok(())
    }

    async fn entries(
        &self,
        id: &Scoped<ConversationId>,
        before: Option<&str>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<AuditEntry>, StoreError> {
        let tables = self.tables();
        let all = tables.audit.get(id).into_iter().flatten().rev();
        let live = all.filter(|(key, (expires_at, _))| {
            now < *expires_at && before.is_none_or(|before| key.as_str() < before)
        });
        Ok(live.take(limit).map(|(_, (_, entry))| entry.clone()).collect())
    }
}
