//! The context is reduced before a step, or summarized between turns.

use super::Rejection;
use super::draft::Draft;
use super::model_replied::awaits;
use crate::event::{ContextReduced, EventData, ReductionReason, Summarized, SummaryFailed};
use crate::ids::TurnId;

/// Marks only grow; for a context that the provider found too long, once a step.
pub(super) fn context_reduced(
    draft: &mut Draft,
    turn: &TurnId,
    reduced: ContextReduced,
) -> Result<(), Rejection> {
    let marks = &draft.state.context.marks;
    let grows = reduced.marks != *marks && reduced.marks.includes(marks);
    let again = reduced.why == ReductionReason::TooLong
        && draft.state.turn.as_ref().is_some_and(|open| open.too_long >= reduced.step);
    if !grows || again || !awaits(&draft.state, turn, reduced.step) {
        return Err(Rejection::Stale);
    }
    draft.push(EventData::ContextReduced(reduced));
    Ok(())
}

/// A compare-and-set on the last event that the summary before it covers.
pub(super) fn summarized(
    draft: &mut Draft,
    after: u64,
    summarized: Summarized,
) -> Result<(), Rejection> {
    let context = &draft.state.context;
    let covered = context.summary.map_or(0, |summary| summary.upto);
    let wanted = context.summarize.is_some_and(|upto| summarized.upto <= upto);
    if covered != after || summarized.upto <= covered || !wanted {
        return Err(Rejection::Stale);
    }
    draft.push_of(None, EventData::Summarized(summarized));
    Ok(())
}

/// It is wanted no more until another turn has ended.
pub(super) fn summary_failed(draft: &mut Draft, reason: String) -> Result<(), Rejection> {
    if draft.state.context.summarize.is_none() {
        return Err(Rejection::Stale);
    }
    draft.push_of(None, EventData::SummaryFailed(SummaryFailed { reason }));
    Ok(())
}
