//! How events change what the model reads.

use crate::context::Summary;
use crate::event::{AssistantMsg, ContextReduced, ReductionReason, Summarized};
use crate::message::Usage;
use crate::state::State;

/// A model call, or a child, has cost this.
pub(super) fn spend(state: &mut State, usage: Usage) {
    state.usage += usage;
    if let Some(turn) = &mut state.turn {
        turn.usage += usage;
    }
}

pub(super) fn count(state: &mut State, seq: u64, spoken: &AssistantMsg) {
    if let Some(tokens) = spoken.context_tokens {
        (state.context.tokens, state.context.counted) = (tokens, seq);
    }
}

pub(super) fn reduce(state: &mut State, seq: u64, reduced: &ContextReduced) {
    let context = &mut state.context;
    context.marks = reduced.marks;
    (context.tokens, context.counted) = (reduced.tokens_after, seq);
    if let (ReductionReason::TooLong, Some(turn)) = (reduced.why, &mut state.turn) {
        turn.too_long = reduced.step;
    }
}

pub(super) fn summarize(state: &mut State, seq: u64, summarized: &Summarized) {
    if let Some(usage) = summarized.usage {
        state.usage += usage;
    }
    let context = &mut state.context;
    let Summarized { upto, marks, tokens_before, tokens_after, .. } = *summarized;
    // A reduction may have gone further meanwhile.
    if context.marks.since <= upto {
        let saved = tokens_before.saturating_sub(tokens_after);
        context.tokens = context.tokens.saturating_sub(saved);
    }
    context.marks = context.marks.and(marks);
    context.summary = Some(Summary { seq, upto });
    context.summarize = None;
}

/// A turn has ended: if too much is read by now, or turns were dropped, the oldest part is to be
/// summarized, one summary at a time.
pub(super) fn turn_ended(state: &mut State, seq: u64, over: Option<u64>) {
    let context = &mut state.context;
    let is_due = |over| context.tokens > over || context.has_dropped();
    if over.is_some_and(is_due) && context.summarize.is_none() {
        context.summarize = Some(seq);
    }
}
