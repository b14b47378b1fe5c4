//! The way from the conversations of a node, whose calls go into queues, to the brokers of the queues.

use abide_conversation::state::QueueEntry;
use abide_conversation::{ConversationId, Scoped};

use crate::announcements::Announcements;

/// A call that has begun to wait for a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueArrival {
    pub conversation: Scoped<ConversationId>,
    pub entry: QueueEntry,
}

/// The calls that began to wait lately.
pub type QueueArrivals = Announcements<QueueArrival>;
