//! Folds events into the context and the usage.

use crate::context::Summary;
use crate::event::{AssistantMsg, ContextReduced, ReductionReason, Summarized};
use crate::numbers::Seq;
use crate::state::State;
use crate::usage::Usage;

/// Adds the usage of a model call or of a child to the conversation and to the open turn.
pub(super) fn add_usage(state: &mut State, usage: Usage) {
    state.usage += usage;
    if let Some(turn) = &mut state.turn {
        turn.usage += usage;
    }
}

pub(super) fn count_tokens(state: &mut State, seq: Seq, message: &AssistantMsg) {
    if let Some(tokens) = message.context_tokens {
        state.context.tokens = tokens;
        state.context.counted_upto = seq;
    }
}

pub(super) fn reduce(state: &mut State, seq: Seq, reduced: &ContextReduced) {
    let context = &mut state.context;
    context.marks = reduced.marks;
    context.tokens = reduced.tokens_after;
    context.counted_upto = seq;
    if let (ReductionReason::TooLong, Some(turn)) = (reduced.reason, &mut state.turn) {
        turn.overflowed_step = reduced.step;
    }
}

pub(super) fn summarize(state: &mut State, seq: Seq, summarized: &Summarized) {
    if let Some(usage) = summarized.usage {
        state.usage += usage;
    }
    let context = &mut state.context;
    let Summarized { upto, marks, tokens_before, tokens_after, .. } = *summarized;
    // A reduction that happened meanwhile may have left out more than the summary covers.
    if context.marks.shown_from <= upto {
        let saved = tokens_before.saturating_sub(tokens_after);
        context.tokens = context.tokens.saturating_sub(saved);
    }
    context.marks = context.marks.union(marks);
    context.summary = Some(Summary { seq, upto });
    context.summarize_upto = None;
}

/// Asks for a summary after a turn if the context is too large or turns were dropped. One summary
/// is wanted at a time.
pub(super) fn turn_ended(state: &mut State, seq: Seq, summarize_over: Option<u64>) {
    let context = &mut state.context;
    let is_wanted = |limit| context.tokens > limit || context.has_uncovered_drop();
    if summarize_over.is_some_and(is_wanted) && context.summarize_upto.is_none() {
        context.summarize_upto = Some(seq);
    }
}
