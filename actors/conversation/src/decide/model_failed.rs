//! The model call failed: the turn fails with a reason, and never ends as cancelled.

use super::Rejection;
use super::draft::Draft;
use super::settle::{end_turn, keep_partial};
use crate::command::ModelFailed;
use crate::event::TurnOutcome;
use crate::message::MessageStatus;

pub(super) fn model_failed(draft: &mut Draft, failure: ModelFailed) -> Result<(), Rejection> {
    if !draft.state.awaits_step(&failure.turn, failure.step) {
        return Err(Rejection::Stale);
    }
    keep_partial(draft, failure.partial, MessageStatus::Error);
    end_turn(draft, TurnOutcome::Failed, Some(failure.reason));
    Ok(())
}
