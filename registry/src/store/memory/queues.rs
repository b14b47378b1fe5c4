//! The calls that wait in queues, in memory.

use std::collections::{BTreeMap, BTreeSet};

use abide_actors::journal::StoreError;
use abide_conversation::ids::QueueName;
use abide_conversation::state::QueueEntry;
use abide_conversation::{ConversationId, Scoped, Tenant};
use async_trait::async_trait;

use super::super::queues::{self, QueueDepth, QueueHeads, QueueIndex};
use super::Memory;

/// Queue, tool, entry, conversation: of each tool, the longest wait first.
type Row = (QueueName, String, QueueEntry, Scoped<ConversationId>);

/// What waits, and what of each conversation does.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    rows: BTreeSet<Row>,
    of: BTreeMap<Scoped<ConversationId>, Vec<QueueEntry>>,
}

impl Waiting {
    /// Replaces what of a conversation waits.
    pub(super) fn replace(&mut self, id: &Scoped<ConversationId>, entries: &[QueueEntry]) {
        for entry in self.of.remove(id).unwrap_or_default() {
            self.rows.remove(&row(id, &entry));
        }
        self.rows.extend(entries.iter().map(|entry| row(id, entry)));
        if !entries.is_empty() {
            self.of.insert(id.clone(), entries.to_vec());
        }
    }
}

fn row(id: &Scoped<ConversationId>, entry: &QueueEntry) -> Row {
    (entry.queue.clone(), entry.tool.clone(), entry.clone(), id.clone())
}

#[async_trait]
impl QueueIndex for Memory {
    async fn queue_heads(
        &self,
        tenant: &Tenant,
        queue: &QueueName,
        tool: &str,
        limit: usize,
    ) -> Result<QueueHeads, StoreError> {
        let tables = self.tables();
        let is_wanted =
            |(one, other, _, id): &&Row| one == queue && other == tool && id.is_of(tenant);
        let mut found = tables.waiting.rows.iter().filter(is_wanted);
        let calls = found.by_ref().take(limit);
        let calls = calls.map(|(_, _, entry, id)| (id.clone(), entry.clone())).collect();
        Ok(QueueHeads { calls, has_more: found.next().is_some() })
    }

    async fn queue_depths(
        &self,
        tenant: &Tenant,
        only: Option<&QueueName>,
    ) -> Result<Vec<QueueDepth>, StoreError> {
        let tables = self.tables();
        let mut depths: Vec<QueueDepth> = Vec::new();
        for (queue, tool, entry, id) in &tables.waiting.rows {
            let is_wanted = id.is_of(tenant) && only.is_none_or(|only| only == queue);
            if is_wanted && !queues::count(&mut depths, queue.as_str(), tool, entry.since) {
                break;
            }
        }
        Ok(depths)
    }
}
