//! Starts the next queued turn.

use super::Rejection;
use super::draft::Draft;
use super::settle::{end_turn, settle};
use crate::command::{Start, TurnSettings};
use crate::event::{EventData, TurnOutcome, TurnStarted};
use crate::ids::TurnId;

pub(super) fn start(draft: &mut Draft, start: Start) -> Result<(), Rejection> {
    let next = draft.state.queue.front().map(|queued| &queued.id);
    if draft.state.turn.is_some() || next != Some(&start.turn) {
        return Err(Rejection::Stale);
    }
    if let Some(settings) = start.settings {
        begin_turn(draft, start.turn, settings);
    } else {
        let agent = draft.state.agent.clone().ok_or(Rejection::NotFound)?;
        begin_turn(draft, start.turn, TurnSettings::without_steps(agent));
        end_turn(draft, TurnOutcome::Failed, Some("agent-missing".to_owned()));
    }
    Ok(())
}

/// Starts a turn whose message is already journalled.
pub(super) fn begin_turn(draft: &mut Draft, turn: TurnId, settings: TurnSettings) {
    let TurnSettings { agent, revision, max_steps, budget, summarize_over } = settings;
    let budget = match &draft.state.parent {
        Some(parent) => budget.tightest(&parent.budget),
        None => budget,
    };
    let started = TurnStarted { agent, revision, max_steps, budget, summarize_over };
    draft.push_in(Some(turn), EventData::TurnStarted(started));
    // Earlier turns may have spent the conversation's budget.
    if max_steps > 0 {
        settle(draft);
    }
}
