//! Remembered decisions: made with an approval, published to the agent, revoked.

use super::Rejection;
use super::draft::Draft;
use super::settle::add_millis;
use crate::approval::Approver;
use crate::command::RememberDecision;
use crate::event::{DecisionPublished, DecisionRemembered, DecisionRevoked, EventData};
use crate::ids::{CallId, DecisionId, Principal};
use crate::remembered_decision::RememberedDecision;

/// Journals that a decision holds for later calls, right after the resolution of the call.
pub(super) fn remember(
    draft: &mut Draft,
    call_id: &CallId,
    (approved, fingerprint): (bool, String),
    (by, voters): (Principal, Vec<Approver>),
    remember: RememberDecision,
) {
    let Some(agent) = draft.state.turn.as_ref().map(|turn| turn.agent.clone()) else { return };
    let Some(call) = draft.state.call(call_id) else { return };
    let RememberDecision { id, extent, tool_digest } = remember;
    let decision = RememberedDecision {
        id,
        tool: call.tool.clone(),
        tool_digest,
        approved,
        matching: extent.matching,
        fingerprint,
        by,
        voters,
        expires_at: add_millis(draft.at, extent.for_ms),
    };
    let call_id = call_id.clone();
    let scope = extent.scope;
    draft.push(EventData::DecisionRemembered(DecisionRemembered {
        call_id,
        scope,
        agent,
        decision,
    }));
}

/// The agent has the decision.
pub(super) fn decision_published(
    draft: &mut Draft,
    decision_id: DecisionId,
) -> Result<(), Rejection> {
    if !draft.state.unpublished.contains_key(&decision_id) {
        return Err(Rejection::Stale);
    }
    draft.push_in(None, EventData::DecisionPublished(DecisionPublished { decision_id }));
    Ok(())
}

/// A decision that is about to be published counts as the agent's, and is not found here.
pub(super) fn revoke(draft: &mut Draft, decision_id: DecisionId) -> Result<(), Rejection> {
    let decision = draft.state.decisions.get(&decision_id);
    let is_in_force = decision.is_some_and(|decision| draft.at < decision.expires_at);
    if !is_in_force || draft.state.unpublished.contains_key(&decision_id) {
        return Err(Rejection::DecisionNotFound);
    }
    draft.push_in(None, EventData::DecisionRevoked(DecisionRevoked { decision_id }));
    Ok(())
}
