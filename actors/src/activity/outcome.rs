//! The end of a tool run as an action for the core.

use abide_conversation::command::ToolReturned;
use abide_conversation::{Action, Attempt, CallId};

use crate::tools::ToolReturn;

/// The action that reports the end of one attempt of a call.
pub(super) fn tool_outcome(call: &CallId, attempt: Attempt, returned: ToolReturn) -> Action {
    Action::ToolReturned(ToolReturned {
        call: call.clone(),
        attempt,
        outcome: returned.outcome,
        ui: returned.ui,
        halt: returned.halt,
        changes: returned.state_changes,
        input_request: returned.input_request,
        effective_args: returned.effective_args,
    })
}
