//! The running turn is cancelled, whatever it was doing.

use super::draft::Draft;
use super::settle::{end, keep_partial};
use crate::command::Partial;
use crate::event::Ending;
use crate::message::Status;

pub(super) fn cancel(draft: &mut Draft, partial: Option<Partial>) {
    if draft.state.turn.is_none() {
        return;
    }
    keep_partial(draft, partial, Status::Cancelled);
    end(draft, Ending::Cancelled, None);
}
