//! A queued turn starts.

use super::Rejection;
use super::draft::Draft;
use super::settle::end;
use crate::command::{Basis, Start};
use crate::event::{Data, Ending, TurnStarted};
use crate::ids::{Revision, TurnId};

pub(super) fn start(draft: &mut Draft, start: Start) -> Result<(), Rejection> {
    let next = draft.state.queue.front().map(|queued| &queued.id);
    if draft.state.turn.is_some() || next != Some(&start.turn) {
        return Err(Rejection::Stale);
    }
    match (start.basis, draft.state.agent.clone()) {
        (Some(basis), _) => begin(draft, start.turn, basis),
        (None, agent) => {
            let agent = agent.ok_or(Rejection::NotFound)?;
            let revision = Revision::new("");
            begin(draft, start.turn, Basis { agent, revision, max_steps: 0 });
            end(draft, Ending::Failed, Some("agent-missing".to_owned()));
        }
    }
    Ok(())
}

/// Starts a turn whose message is journalled.
pub(super) fn begin(draft: &mut Draft, turn: TurnId, basis: Basis) {
    let Basis { agent, revision, max_steps } = basis;
    draft.push_of(Some(turn), Data::TurnStarted(TurnStarted { agent, revision, max_steps }));
}
