//! Reduces the context before a step, or summarizes it between turns.

use super::Rejection;
use super::draft::Draft;
use crate::event::{ContextReduced, EventData, ReductionReason, Summarized, SummaryFailed};
use crate::ids::TurnId;
use crate::numbers::Seq;

/// Marks only grow. A context that the provider found too long is reduced once per step.
pub(super) fn context_reduced(
    draft: &mut Draft,
    turn: &TurnId,
    reduced: ContextReduced,
) -> Result<(), Rejection> {
    let marks = &draft.state.context.marks;
    let grows = reduced.marks != *marks && reduced.marks.includes(marks);
    let was_reduced = reduced.reason == ReductionReason::TooLong
        && draft.state.turn.as_ref().is_some_and(|open| open.overflowed_step >= reduced.step);
    if !grows || was_reduced || !draft.state.awaits_step(turn, reduced.step) {
        return Err(Rejection::Stale);
    }
    draft.push(EventData::ContextReduced(reduced));
    Ok(())
}

/// A compare-and-set on the last event that the previous summary covers.
pub(super) fn summarized(
    draft: &mut Draft,
    after: Seq,
    summarized: Summarized,
) -> Result<(), Rejection> {
    let context = &draft.state.context;
    let covered = context.summary.map_or(Seq::ZERO, |summary| summary.upto);
    let is_wanted = context.summarize_upto.is_some_and(|upto| summarized.upto <= upto);
    if covered != after || summarized.upto <= covered || !is_wanted {
        return Err(Rejection::Stale);
    }
    draft.push_in(None, EventData::Summarized(summarized));
    Ok(())
}

/// No summary is wanted again until another turn has ended.
pub(super) fn summary_failed(draft: &mut Draft, reason: String) -> Result<(), Rejection> {
    if draft.state.context.summarize_upto.is_none() {
        return Err(Rejection::Stale);
    }
    draft.push_in(None, EventData::SummaryFailed(SummaryFailed { reason }));
    Ok(())
}
