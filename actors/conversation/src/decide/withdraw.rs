//! A queued turn is withdrawn. It never starts, and no other turn is concerned.

use super::Rejection;
use super::cancel::cancel;
use super::draft::Draft;
use crate::command::Withdraw;
use crate::event::{EventData, TurnWithdrawn};

pub(super) fn withdraw(draft: &mut Draft, withdraw: Withdraw) -> Result<(), Rejection> {
    let Withdraw { turn, cancel: cancels, by, identity } = withdraw;
    let is_open = draft.state.turn.as_ref().is_some_and(|open| open.id == turn);
    let is_queued = draft.state.queue.iter().any(|queued| queued.id == turn);
    match (is_open, is_queued, cancels) {
        (true, _, Some(it)) => cancel(draft, it.partial),
        (true, _, None) => return Err(Rejection::TurnInFlight),
        (false, true, _) => {
            draft.push_in(Some(turn), EventData::TurnWithdrawn(TurnWithdrawn { by, identity }));
        }
        (false, false, Some(_)) => {}
        (false, false, None) => return Err(Rejection::TurnNotFound),
    }
    Ok(())
}
