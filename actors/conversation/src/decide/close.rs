//! Ends what runs outside of the draft: a dispatch, or a call's child.

use std::collections::BTreeMap;

use super::draft::Draft;
use crate::event::{ChildEnded, DispatchFinished, EffectiveArgs, EventData};
use crate::ids::{CallId, ConversationId};
use crate::message::{Outcome, Ui};
use crate::state::RunningDispatch;
use crate::usage::Usage;

/// Journals the result of a dispatch.
pub(super) fn finish_dispatch(
    draft: &mut Draft,
    call_id: CallId,
    run: RunningDispatch,
    result: Outcome,
    ui: Option<Ui>,
    effective_args: Option<EffectiveArgs>,
) {
    let RunningDispatch { tool, input, principal, .. } = run;
    let verdict = None;
    let finished =
        DispatchFinished { call_id, tool, input, principal, result, ui, verdict, effective_args };
    draft.push_in(None, EventData::DispatchFinished(finished));
}

/// Journals that a child needs no further attention.
pub(super) fn end_child(
    draft: &mut Draft,
    call: &CallId,
    child: ConversationId,
    usage: Usage,
    storages: BTreeMap<String, String>,
) {
    let ended = ChildEnded { call_id: call.clone(), conversation_id: child, usage, storages };
    draft.push_for(call, EventData::ChildEnded(ended));
}
