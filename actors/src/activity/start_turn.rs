//! A queued turn starts with the newest revision of its agent.

use abide_conversation::command::Start;
use abide_conversation::{Action, TurnId};

use super::ActivityContext;
use crate::journal::StoreError;

pub(super) async fn start_turn(ctx: &ActivityContext, turn: &TurnId) -> Result<Action, StoreError> {
    let newest = match &ctx.state.agent {
        Some(agent) => ctx.services.agents.newest(&ctx.id.sibling(agent)).await?,
        None => None,
    };
    let basis = newest.map(|definition| definition.basis());
    Ok(Action::Start(Start { turn: turn.clone(), settings: basis }))
}
