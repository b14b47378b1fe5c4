//! The calls that wait in queues for workers, as an index that commits write.

use abide_actors::journal::StoreError;
use abide_conversation::ids::QueueName;
use abide_conversation::state::QueueEntry;
use abide_conversation::{ConversationId, Scoped, Tenant, Timestamp};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// No more queues of a tenant are listed than this; definitions name few.
pub const MAX_QUEUES: usize = 1_000;

/// Some of the calls of one tool that wait in a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueHeads {
    pub calls: Vec<(Scoped<ConversationId>, QueueEntry)>,
    /// Whether more of them may wait.
    pub has_more: bool,
}

/// How many calls of a tool wait in a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueDepth {
    pub queue: QueueName,
    pub tool: String,
    pub depth: u64,
    /// Since when the first of them waits.
    pub oldest: Option<Timestamp>,
}

/// What waits in queues. It is a view: a call that is found here may wait no more, which its
/// conversation knows.
#[async_trait]
pub trait QueueIndex: Send + Sync + 'static {
    /// Calls of a tool that wait in a queue of a tenant, of all partitions: about `limit`, each
    /// partition's own that wait longest.
    async fn queue_heads(
        &self,
        tenant: &Tenant,
        queue: &QueueName,
        tool: &str,
        limit: usize,
    ) -> Result<QueueHeads, StoreError>;

    /// The queues of a tenant in which calls wait, or this one only, sorted by queue and tool.
    async fn queue_depths(
        &self,
        tenant: &Tenant,
        queue: Option<&QueueName>,
    ) -> Result<Vec<QueueDepth>, StoreError>;
}

/// Counts one more call, in the order of queue, tool and time. Returns whether there was room.
pub(super) fn count(
    depths: &mut Vec<QueueDepth>,
    queue: &str,
    tool: &str,
    since: Timestamp,
) -> bool {
    if let Some(last) = depths.last_mut()
        && last.queue.as_str() == queue
        && last.tool == tool
    {
        last.depth += 1;
        return true;
    }
    let has_room = depths.len() < MAX_QUEUES;
    if has_room {
        let (queue, tool) = (QueueName::new(queue), tool.to_owned());
        depths.push(QueueDepth { queue, tool, depth: 1, oldest: Some(since) });
    }
    has_room
}
