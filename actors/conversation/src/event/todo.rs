//! The to-do list that a model keeps.

use serde::{Deserialize, Serialize};

use crate::ids::CallId;

/// The progress of one item of the to-do list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    Pending,
    InProgress,
    Completed,
}

/// One item of the to-do list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Todo {
    pub content: String,
    pub status: TodoStatus,
}

/// A call of `todo_write` replaced the to-do list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TodosChanged {
    pub call_id: CallId,
    pub todos: Vec<Todo>,
}
