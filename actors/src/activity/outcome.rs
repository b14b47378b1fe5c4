//! The end of a tool run as an action for the core.

use abide_conversation::command::ToolReturned;
use abide_conversation::{Action, CallId};

use crate::tools::ToolReturn;

/// The action that reports the end of one attempt of a call.
pub(super) fn tool_outcome(call: &CallId, attempt: u32, returned: ToolReturn) -> Action {
    let ToolReturn { outcome, ui, halt, changes, asks, ran } = returned;
    let call = call.clone();
    Action::ToolReturned(ToolReturned { call, attempt, outcome, ui, halt, changes, asks, ran })
}
