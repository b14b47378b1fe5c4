//! A remembered decision also answers the calls that wait already.

use std::sync::Arc;

use super::draft::Draft;
use super::resolve::start_tool;
use crate::event::{EventData, Resolution, SuspensionKind};
use crate::identity::Identity;
use crate::ids::{CallId, DecisionId};
use crate::message::ErrorType;
use crate::remembered_decision::{Match, RememberedDecision};
use crate::state::{Call, State};

/// Answers every open approval that the decision holds for, as its gate would have been answered.
pub(super) fn answer(
    draft: &mut Draft,
    decided: &CallId,
    id: &DecisionId,
    by: Option<&Arc<Identity>>,
) {
    let Some(decision) = draft.state.decisions.get(id).cloned() else { return };
    let Some(decided) = draft.state.call(decided).cloned() else { return };
    for call in draft.open_calls() {
        if call.id != decided.id && holds_for(&draft.state, &decision, &decided, &call) {
            close(draft, &call, &decision, by);
        }
    }
}

/// Whether the decision holds for a call that waits: the tool itself asked for the approval, nobody
/// has edited the arguments, and the voters are enough for this call, too.
fn holds_for(state: &State, decision: &RememberedDecision, decided: &Call, call: &Call) -> bool {
    let Some(open) = call.open_suspension().filter(|open| open.kind == SuspensionKind::Approval)
    else {
        return false;
    };
    let is_asked_by_tool =
        call.gate.as_ref().is_some_and(|verdict| verdict.rule.starts_with("approval"));
    let is_alike = match decision.matching {
        Match::Tool => true,
        Match::Exact => call.args == decided.args,
    };
    let quorum = open.approval.as_ref().map_or(0, |approval| approval.policy.quorum);
    call.tool == decision.tool
        && is_alike
        && is_asked_by_tool
        && call.edited_args().is_none()
        && decision.covers(&state.requesters(), quorum)
}

fn close(
    draft: &mut Draft,
    call: &Call,
    decision: &RememberedDecision,
    by: Option<&Arc<Identity>>,
) {
    let Some(open) = call.open_suspension() else { return };
    let reason = format!("remembered: {}", decision.id);
    let approvals = if decision.approved { decision.voters.clone() } else { Vec::new() };
    draft.push(EventData::Resolution(Resolution {
        call_id: call.id.clone(),
        kind: open.kind,
        suspension: open.suspension,
        by: decision.by.clone(),
        identity: by.cloned(),
        approved: Some(decision.approved),
        reason: Some(reason.clone()),
        args: None,
        verdict: None,
        input: None,
        approvals,
        retry: false,
    }));
    if decision.approved {
        start_tool(draft, &call.id);
    } else {
        let error = format!("denied by approver: {reason}");
        draft.push_error(call.id.clone(), error, ErrorType::Denied);
    }
}
