//! The model failed: the turn fails with a reason, never as a cancellation.

use super::Rejection;
use super::draft::Draft;
use super::model_replied::awaits;
use super::settle::{end, keep_partial};
use crate::command::ModelFailed;
use crate::event::TurnOutcome;
use crate::message::MessageStatus;

pub(super) fn model_failed(draft: &mut Draft, failure: ModelFailed) -> Result<(), Rejection> {
    if !awaits(&draft.state, &failure.turn, failure.step) {
        return Err(Rejection::Stale);
    }
    keep_partial(draft, failure.partial, MessageStatus::Error);
    end(draft, TurnOutcome::Failed, Some(failure.reason));
    Ok(())
}
