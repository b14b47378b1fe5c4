//! What follows the last result of a step, and how a turn ends.

use super::draft::Draft;
use crate::Timestamp;
use crate::command::PartialMessage;
use crate::event::{AssistantMsg, EventData, TurnEnded, TurnOutcome};
use crate::message::{ErrorType, Message, MessageRole, MessageStatus};

/// Halts the turn if no call is open and either no step is left or the budget is spent. Otherwise
/// the next step is wanted.
pub(super) fn settle(draft: &mut Draft) {
    let Some(turn) = draft.state.turn.as_ref().filter(|turn| turn.is_settled()) else { return };
    let reason = if turn.step.get() >= turn.max_steps {
        Some("max_steps")
    } else {
        turn.budget.reached_limit(&turn.usage, &draft.state.usage)
    };
    if let Some(reason) = reason {
        end_turn(draft, TurnOutcome::Halted, Some(reason.to_owned()));
    }
}

/// Ends every open call as cancelled, then the turn.
pub(super) fn end_turn(draft: &mut Draft, outcome: TurnOutcome, reason: Option<String>) {
    for call in draft.open_calls() {
        draft.push_error(call.id, "[cancelled]", ErrorType::Cancelled);
    }
    let usage = draft.state.turn.as_ref().map(|turn| turn.usage);
    draft.push(EventData::TurnEnded(TurnEnded { outcome, reason, usage }));
}

/// Journals the output of a cut stream, marked with `status`. Does so only once, because a step
/// that is done has no partial message.
pub(super) fn keep_partial(
    draft: &mut Draft,
    partial: Option<PartialMessage>,
    status: MessageStatus,
) {
    let Some(turn) = &draft.state.turn else { return };
    let is_current = |partial: &PartialMessage| {
        turn.is_settled() && partial.step == turn.next_step() && !partial.content.is_empty()
    };
    let Some(partial) = partial.filter(is_current) else { return };
    let step = partial.step;
    let mut message = Message::new(partial.id, MessageRole::Assistant, partial.content);
    message.status = Some(status);
    draft.push(EventData::AssistantMsg(AssistantMsg {
        message,
        status,
        step,
        usage: None,
        stop: None,
        verbatim: None,
        fallback: None,
        context_tokens: None,
        read_upto: None,
    }));
}

/// `ms` after `at`, at most the end of time.
pub(super) fn add_millis(at: Timestamp, ms: u64) -> Timestamp {
    let span = jiff::SignedDuration::from_millis(i64::try_from(ms).unwrap_or(i64::MAX));
    at.checked_add(span).unwrap_or(Timestamp::MAX)
}
