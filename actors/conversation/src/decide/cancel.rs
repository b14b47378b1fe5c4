//! Cancels the open turn, whatever it is doing.

use super::draft::Draft;
use super::settle::{end_turn, keep_partial};
use crate::command::PartialMessage;
use crate::event::TurnOutcome;
use crate::message::MessageStatus;

pub(super) fn cancel(draft: &mut Draft, partial: Option<PartialMessage>) {
    if draft.state.turn.is_none() {
        return;
    }
    keep_partial(draft, partial, MessageStatus::Cancelled);
    end_turn(draft, TurnOutcome::Cancelled, None);
}
