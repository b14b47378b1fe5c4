//! A task: a turn of a conversation, which is the context.

use serde_json::{Value, json};

use crate::protocols::task_id::TaskId;

/// The states of a task that a turn has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    Submitted,
    Working,
    InputRequired,
    Completed,
    Failed,
    Canceled,
}

impl TaskState {
    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Submitted => "TASK_STATE_SUBMITTED",
            Self::Working => "TASK_STATE_WORKING",
            Self::InputRequired => "TASK_STATE_INPUT_REQUIRED",
            Self::Completed => "TASK_STATE_COMPLETED",
            Self::Failed => "TASK_STATE_FAILED",
            Self::Canceled => "TASK_STATE_CANCELED",
        }
    }
}

/// A message of this role about a task.
pub fn message(task: &TaskId, role: &str, id: &str, parts: Vec<Value>) -> Value {
    json!({"messageId": id, "contextId": task.conversation, "taskId": task.to_string(),
        "role": role, "parts": parts})
}
