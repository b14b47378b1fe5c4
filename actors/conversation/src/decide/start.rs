//! A queued turn starts.

use super::Rejection;
use super::draft::Draft;
use super::settle::{end, settle};
use crate::command::{Start, TurnSettings};
use crate::event::{EventData, TurnOutcome, TurnStarted};
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
            begin(
                draft,
                start.turn,
                TurnSettings {
                    agent,
                    revision,
                    max_steps: 0,
                    budget: Default::default(),
                    summarize_over: None,
                },
            );
            end(draft, TurnOutcome::Failed, Some("agent-missing".to_owned()));
        }
    }
    Ok(())
}

/// Starts a turn whose message is journalled.
pub(super) fn begin(draft: &mut Draft, turn: TurnId, basis: TurnSettings) {
    let TurnSettings { agent, revision, max_steps, budget, summarize_over } = basis;
    let budget = match &draft.state.parent {
        Some(parent) => budget.within(&parent.budget),
        None => budget,
    };
    let started = TurnStarted { agent, revision, max_steps, budget, summarize_over };
    draft.push_of(Some(turn), EventData::TurnStarted(started));
    // What the turns before it have spent may leave nothing.
    if max_steps > 0 {
        settle(draft);
    }
}
