//! An agent is given a decision that is to hold for all of its conversations.

use abide_conversation::{Action, DecisionId};

use super::ActivityContext;
use crate::journal::StoreError;

pub(super) async fn keep(around: &ActivityContext, id: &DecisionId) -> Result<Action, StoreError> {
    let state = &around.state;
    if let (Some(agent), Some(decision)) = (state.unpublished.get(id), state.decisions.get(id)) {
        around.deps.agents.remember(agent, decision).await?;
    }
    Ok(Action::DecisionPublished(id.clone()))
}
