//! A prefix is copied event by event; what was open at its end is cancelled, here and not there.

use super::Rejection;
use super::draft::Draft;
use super::settle::end;
use super::start::begin;
use super::tool_returned::finish_dispatch;
use crate::command::{CopiedEvents, TurnSettings};
use crate::event::{EventData, TurnOutcome};
use crate::fork::Fork;
use crate::ids::Revision;
use crate::message::{ErrorType, Outcome};

/// Why a turn ended that was open where the journal was cut.
const FORKED: &str = "forked";

pub(super) fn copied(draft: &mut Draft, copied: CopiedEvents) -> Result<(), Rejection> {
    let Some(fork) = draft.state.forking.clone() else { return Err(Rejection::Stale) };
    if copied.after != draft.state.seq {
        return Err(Rejection::Stale);
    }
    for event in copied.events {
        if event.seq != draft.state.seq.saturating_add(1) || event.seq > fork.at_seq {
            return Err(Rejection::Stale);
        }
        draft.copy(event);
    }
    if copied.whole {
        // Of a conversation that was deleted meanwhile there is no more.
        let fork = Fork { at_seq: draft.state.seq, ..fork };
        close(draft);
        draft.push_of(None, EventData::Forked(fork));
    }
    Ok(())
}

/// Ends what was under way: it goes on in the other conversation.
fn close(draft: &mut Draft) {
    if draft.state.turn.is_some() {
        end(draft, TurnOutcome::Cancelled, Some(FORKED.to_owned()));
    }
    while let (Some(queued), Some(agent)) = (draft.state.queue.front(), &draft.state.agent) {
        let (turn, agent) = (queued.id.clone(), agent.clone());
        let revision = Revision::new("");
        let (budget, summarize_over) = Default::default();
        begin(draft, turn, TurnSettings { agent, revision, max_steps: 0, budget, summarize_over });
        end(draft, TurnOutcome::Cancelled, Some(FORKED.to_owned()));
    }
    for (call, run) in draft.state.dispatches.clone() {
        let outcome = Outcome::Err("[cancelled]".to_owned(), ErrorType::Cancelled);
        finish_dispatch(draft, call, run, outcome, None, None);
    }
}
