//! Copies a fork's prefix event by event. What was open at its end is cancelled here, and goes on
//! in the original.

use super::Rejection;
use super::close::finish_dispatch;
use super::draft::Draft;
use super::settle::end_turn;
use super::start::begin_turn;
use crate::command::{CopiedEvents, TurnSettings};
use crate::event::{EventData, TurnOutcome};
use crate::fork::Fork;
use crate::message::{ErrorType, Outcome};

/// The reason of a turn that ended because it was open where the prefix ends.
const FORKED: &str = "forked";

pub(super) fn events_copied(draft: &mut Draft, copied: CopiedEvents) -> Result<(), Rejection> {
    let Some(fork) = draft.state.forking.clone() else { return Err(Rejection::Stale) };
    if copied.after != draft.state.seq {
        return Err(Rejection::Stale);
    }
    for event in copied.events {
        if event.seq != draft.state.seq.next() || event.seq > fork.at_seq {
            return Err(Rejection::Stale);
        }
        draft.push_copy(event);
    }
    if copied.is_last {
        // The prefix is shorter than asked for if the original was deleted meanwhile.
        let fork = Fork { at_seq: draft.state.seq, ..fork };
        end_open_work(draft);
        draft.push_in(None, EventData::Forked(fork));
    }
    Ok(())
}

/// Cancels the open turn, the queued turns and the dispatches.
fn end_open_work(draft: &mut Draft) {
    if draft.state.turn.is_some() {
        end_turn(draft, TurnOutcome::Cancelled, Some(FORKED.to_owned()));
    }
    while let (Some(queued), Some(agent)) = (draft.state.queue.front(), &draft.state.agent) {
        let turn = queued.id.clone();
        let settings = TurnSettings::without_steps(agent.clone());
        begin_turn(draft, turn, settings);
        end_turn(draft, TurnOutcome::Cancelled, Some(FORKED.to_owned()));
    }
    for (call, run) in draft.state.dispatches.clone() {
        let outcome = Outcome::Err("[cancelled]".to_owned(), ErrorType::Cancelled);
        finish_dispatch(draft, call, run, outcome, None, None);
    }
}
