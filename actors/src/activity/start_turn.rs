//! A queued turn starts with the newest revision of its agent, or that of a rollout.

use abide_conversation::command::Start;
use abide_conversation::{Action, TurnId};

use super::ActivityContext;
use crate::journal::StoreError;

pub(super) async fn start_turn(ctx: &ActivityContext, turn: &TurnId) -> Result<Action, StoreError> {
    let choice = match &ctx.state.agent {
        Some(agent) => ctx.services.agents.choose(agent, &ctx.id).await?,
        None => None,
    };
    let basis = choice.map(|choice| choice.definition.basis());
    Ok(Action::Start(Start { turn: turn.clone(), settings: basis }))
}
