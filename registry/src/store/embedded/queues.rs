//! The calls that wait in queues, in the file.

use abide_actors::journal::StoreError;
use abide_conversation::ids::{CallId, QueueName};
use abide_conversation::state::QueueEntry;
use abide_conversation::{Attempt, ConversationId, Scoped, Tenant};
use async_trait::async_trait;
use redb::{Error, ReadTransaction, WriteTransaction};

use super::super::queues::{self, QueueDepth, QueueHeads, QueueIndex};
use super::Embedded;
use super::tables::{self, Nanos, QUEUED, QUEUES, nanos, timestamp};

/// Replaces what of a conversation waits; `None` leaves it as it is.
pub(super) fn replace(
    to: &WriteTransaction,
    id: &Scoped<ConversationId>,
    entries: Option<&[QueueEntry]>,
) -> Result<(), Error> {
    let Some(entries) = entries else { return Ok(()) };
    let mut queued = to.open_table(QUEUED)?;
    let before = match queued.remove(id.as_str())? {
        Some(json) => tables::parse::<Vec<QueueEntry>>("queue entries", json.value())?,
        None if entries.is_empty() => return Ok(()),
        None => Vec::new(),
    };
    let mut waiting = QUEUES.open_to_write(to, &id.tenant())?;
    for entry in &before {
        waiting.remove(key(id, entry))?;
    }
    for entry in entries {
        waiting.insert(key(id, entry), entry.attempt.get())?;
    }
    if !entries.is_empty() {
        let json = serde_json::to_vec(entries);
        let json = json.map_err(|error| Error::Corrupted(error.to_string()))?;
        queued.insert(id.as_str(), json.as_slice())?;
    }
    Ok(())
}

fn key<'a>(
    id: &'a Scoped<ConversationId>,
    entry: &'a QueueEntry,
) -> (&'a str, &'a str, Nanos, &'a str, &'a str) {
    let QueueEntry { queue, tool, since, call, .. } = entry;
    (queue.as_str(), tool, nanos(*since), id.as_str(), call.as_str())
}

#[async_trait]
impl QueueIndex for Embedded {
    async fn queue_heads(
        &self,
        tenant: &Tenant,
        queue: &QueueName,
        tool: &str,
        limit: usize,
    ) -> Result<QueueHeads, StoreError> {
        let (tenant, queue) = (tenant.clone(), queue.clone());
        let tool = tool.to_owned();
        self.read(move |from| heads(from, &tenant, (queue.as_str(), &tool), limit)).await
    }

    async fn queue_depths(
        &self,
        tenant: &Tenant,
        queue: Option<&QueueName>,
    ) -> Result<Vec<QueueDepth>, StoreError> {
        let (tenant, queue) = (tenant.clone(), queue.cloned());
        self.read(move |from| depths(from, &tenant, queue.as_ref().map(QueueName::as_str))).await
    }
}

fn heads(
    from: &ReadTransaction,
    tenant: &Tenant,
    (queue, tool): (&str, &str),
    limit: usize,
) -> Result<QueueHeads, Error> {
    let mut heads = QueueHeads::default();
    let Some(waiting) = QUEUES.open(from, tenant)? else { return Ok(heads) };
    for row in waiting.range((queue, tool, Nanos::MIN, "", "")..)? {
        let (key, attempt) = row?;
        let (its_queue, its_tool, since, id, call) = key.value();
        if (its_queue, its_tool) != (queue, tool) {
            break;
        }
        if heads.calls.len() >= limit {
            heads.has_more = true;
            break;
        }
        let entry = QueueEntry {
            queue: QueueName::new(queue),
            tool: tool.to_owned(),
            since: timestamp(since)?,
            call: CallId::new(call),
            attempt: Attempt::new(attempt.value()),
        };
        heads.calls.push((tables::id(id)?, entry));
    }
    Ok(heads)
}

fn depths(
    from: &ReadTransaction,
    tenant: &Tenant,
    only: Option<&str>,
) -> Result<Vec<QueueDepth>, Error> {
    let mut depths: Vec<QueueDepth> = Vec::new();
    let Some(waiting) = QUEUES.open(from, tenant)? else { return Ok(depths) };
    for row in waiting.range((only.unwrap_or(""), "", Nanos::MIN, "", "")..)? {
        let key = row?.0;
        let (queue, tool, since, _, _) = key.value();
        if only.is_some_and(|only| only != queue) {
            break;
        }
        if !queues::count(&mut depths, queue, tool, timestamp(since)?) {
            break;
        }
    }
    Ok(depths)
}
