//! Decisions that hold for later calls: made with an approval, given to the agent, revoked.

use super::Rejection;
use super::draft::Draft;
use super::settle::after;
use crate::command::RememberDecision;
use crate::event::{DecisionPublished, DecisionRemembered, DecisionRevoked, EventData};
use crate::ids::{CallId, DecisionId, Principal};
use crate::remembered::RememberedDecision;

/// Journals that a decision about the call is to hold, right after the decision itself.
pub(super) fn remember(
    draft: &mut Draft,
    call_id: &CallId,
    approved: bool,
    by: Principal,
    wish: RememberDecision,
) {
    let Some(agent) = draft.state.turn.as_ref().map(|turn| turn.agent.clone()) else { return };
    let Some(call) = draft.state.call(call_id) else { return };
    let decision = RememberedDecision {
        id: wish.id,
        tool: call.tool.clone(),
        does: wish.does,
        approved,
        matching: wish.matching,
        fingerprint: wish.fingerprint,
        by,
        expires_at: after(draft.at, wish.for_ms),
    };
    let (call_id, scope) = (call_id.clone(), wish.scope);
    draft.push(EventData::DecisionRemembered(DecisionRemembered {
        call_id,
        scope,
        agent,
        decision,
    }));
}

/// The agent has it.
pub(super) fn kept(draft: &mut Draft, decision_id: DecisionId) -> Result<(), Rejection> {
    if !draft.state.unkept.contains_key(&decision_id) {
        return Err(Rejection::Stale);
    }
    draft.push_of(None, EventData::DecisionKept(DecisionPublished { decision_id }));
    Ok(())
}

/// It holds no more. One that the agent is about to get is the agent's already.
pub(super) fn revoke(draft: &mut Draft, decision_id: DecisionId) -> Result<(), Rejection> {
    let live = draft.state.decisions.get(&decision_id);
    let live = live.filter(|decision| draft.at < decision.expires_at);
    if live.is_none() || draft.state.unkept.contains_key(&decision_id) {
        return Err(Rejection::DecisionNotFound);
    }
    draft.push_of(None, EventData::DecisionRevoked(DecisionRevoked { decision_id }));
    Ok(())
}
