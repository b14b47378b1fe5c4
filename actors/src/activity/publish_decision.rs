//! Publishes a remembered decision to the agent, for all of its conversations.

use abide_conversation::{Action, DecisionId};

use super::ActivityContext;
use crate::journal::StoreError;

pub(super) async fn publish_decision(
    ctx: &ActivityContext,
    id: &DecisionId,
) -> Result<Action, StoreError> {
    let state = &ctx.state;
    if let (Some(agent), Some(decision)) = (state.unpublished.get(id), state.decisions.get(id)) {
        ctx.services.agents.remember(&ctx.id.sibling(agent), decision).await?;
    }
    Ok(Action::DecisionPublished(id.clone()))
}
