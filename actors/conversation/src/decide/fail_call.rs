//! Fails a call that an operator has given up on: the call ends with an error, and the turn goes
//! on.

use super::Rejection;
use super::close::finish_dispatch;
use super::draft::Draft;
use super::settle::settle;
use super::wake::meet_deadlines;
use crate::command::FailCall;
use crate::event::{EventData, Operated, Resolution};
use crate::ids::CallId;
use crate::message::{ErrorType, Outcome};
use crate::state::{CallPhase, State};

pub(super) fn fail_call(draft: &mut Draft, fail: FailCall) -> Result<(), Rejection> {
    let FailCall { call: id, by, identity, reason, error } = fail;
    if !is_open(&draft.state, &id) {
        return Err(Rejection::CallNotOpen("no such open call".into()));
    }
    // A call that is past its deadline has expired, even if the alarm has not rung yet.
    meet_deadlines(draft);
    if !is_open(&draft.state, &id) {
        return Ok(());
    }
    draft.push_in(
        None,
        EventData::Operated(Operated {
            by: by.clone(),
            identity: identity.clone(),
            verb: "fail".to_owned(),
            reason: reason.or_else(|| Some(error.clone())),
        }),
    );
    let outcome = Outcome::Err(error.clone(), ErrorType::ToolError);
    if let Some(run) = draft.state.dispatches.get(&id).cloned() {
        finish_dispatch(draft, id, run, outcome, None, None);
        return Ok(());
    }
    let open = draft.state.call(&id).and_then(|call| call.open_suspension()).cloned();
    if let Some(open) = open {
        draft.push(EventData::Resolution(Resolution {
            call_id: id.clone(),
            kind: open.kind,
            suspension: open.suspension,
            by,
            identity,
            approved: None,
            reason: Some(error),
            args: None,
            verdict: None,
            input: None,
            approvals: Vec::new(),
            retry: false,
        }));
    }
    draft.push_result(id, outcome);
    settle(draft);
    Ok(())
}

fn is_open(state: &State, id: &CallId) -> bool {
    state.dispatches.contains_key(id)
        || state.call(id).is_some_and(|call| call.phase != CallPhase::Done)
}
