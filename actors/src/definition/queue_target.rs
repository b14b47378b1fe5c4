//! Tools that workers run.

use abide_conversation::ids::QueueName;

use crate::expressions::schema::Schema;

/// The queue that workers take the calls of a tool from.
#[derive(Clone, Debug)]
pub struct QueueTarget {
    pub queue: QueueName,
    /// What a worker's result must satisfy.
    pub result_schema: Option<Schema>,
}
