//! What waits for its turn or its time: calls in queues, schedules, and the notices that are owed to
//! webhooks.

pub(super) mod notices;
pub(super) mod owed_queues;
pub(super) mod queues;
pub(super) mod schedules;
