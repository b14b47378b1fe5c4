//! Changes the key-value state of the conversation.

use serde_json::{Map, Value};

use super::Rejection;
use super::draft::Draft;
use crate::command::ChangeState;
use crate::event::{EventData, StateChanged};
use crate::ids::CallId;
use crate::key_value::{StateRejection, changes_of};

/// What is asked again changes nothing.
pub(super) fn change_state(draft: &mut Draft, change: ChangeState) -> Result<(), Rejection> {
    let ChangeState { changes, by, identity } = change;
    let changes = changes_of(&draft.state.key_values, changes).map_err(Rejection::State)?;
    if !changes.is_empty() {
        let by = Some(by);
        let changed = StateChanged { changes, call_id: None, by, identity };
        draft.push_in(None, EventData::StateChanged(changed));
    }
    Ok(())
}

/// Journals what a tool's result changes, right before the result.
pub(super) fn change_by_tool(draft: &mut Draft, call: &CallId, changes: Map<String, Value>) {
    if changes.is_empty() {
        return;
    }
    let call_id = Some(call.clone());
    let changed = StateChanged { changes, call_id, by: None, identity: None };
    draft.push_for(call, EventData::StateChanged(changed));
}

/// What a tool's changes differ in from the state.
pub(super) fn changes_by_tool(
    draft: &Draft,
    changes: Map<String, Value>,
) -> Result<Map<String, Value>, StateRejection> {
    changes_of(&draft.state.key_values, changes)
}
