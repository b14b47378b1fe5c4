//! What nodes ask of the keeper of a queue.

use std::collections::BTreeMap;
use std::time::Duration;

use abide_actors::request::RequestError;
use abide_conversation::ids::{CallId, QueueName};
use abide_conversation::state::QueueEntry;
use abide_conversation::{Attempt, ConversationId, Scoped, Timestamp};
use serde::{Deserialize, Serialize};

/// Names a queue among those of all tenants.
pub type QueueId = Scoped<QueueName>;

/// What a node asks of another about queues.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueRequest {
    Take(TakeOffers),
    /// The worker that asked with this id has gone.
    Withdraw {
        queue: QueueId,
        id: String,
    },
    /// These calls wait now.
    Arrived {
        queue: QueueId,
        calls: Vec<(Scoped<ConversationId>, QueueEntry)>,
    },
    /// The worker has a call of the queue, and extended its lease.
    Seen {
        queue: QueueId,
        worker: String,
    },
    /// Asks for the workers of all queues that the node keeps.
    Describe,
}

/// Asks which calls a worker may try to take.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TakeOffers {
    pub queue: QueueId,
    pub id: String,
    pub tools: Option<Vec<String>>,
    pub max: usize,
    /// How long to wait for the first one.
    pub wait: Duration,
    pub worker: String,
}

/// A call that a worker may try to take; for a while nobody else is offered it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Offer {
    pub conversation: Scoped<ConversationId>,
    pub call: CallId,
    pub attempt: Attempt,
}

/// The answer to a [`QueueRequest`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueResponse {
    Offers(Vec<Offer>),
    /// The worker lost a call while it waited: its request ends, and it asks again if it lives.
    Dismissed,
    Noted,
    Workers(BTreeMap<QueueId, Vec<WorkerView>>),
    Refused(RequestError),
}

impl QueueRequest {
    /// The queue that it is about; `None` for all.
    pub(crate) fn queue(&self) -> Option<&QueueId> {
        match self {
            Self::Take(take) => Some(&take.queue),
            Self::Withdraw { queue, .. }
            | Self::Arrived { queue, .. }
            | Self::Seen { queue, .. } => Some(queue),
            Self::Describe => None,
        }
    }
}

/// A worker, as it was last seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerView {
    pub name: String,
    pub last_seen: Timestamp,
    /// The tools that it takes calls of; `None`: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// How many calls it was offered.
    pub offered: u64,
}
