//! What follows when a step's last call is done, and how a turn ends.

use super::draft::Draft;
use crate::Timestamp;
use crate::command::PartialMessage;
use crate::event::{AssistantMsg, EventData, TurnEnded, TurnOutcome};
use crate::message::{ErrorType, Message, MessageStatus, Role};

/// Ends the turn if no call is open and no step is left, or nothing to pay it with; else the next
/// step is wanted.
pub(super) fn settle(draft: &mut Draft) {
    let Some(turn) = draft.state.turn.as_ref().filter(|turn| turn.settled()) else { return };
    let reason = match turn.step >= turn.max_steps {
        true => Some("max_steps"),
        false => turn.budget.reached(&turn.usage, &draft.state.usage),
    };
    if let Some(reason) = reason {
        end(draft, TurnOutcome::Halted, Some(reason.to_owned()));
    }
}

/// Closes every open call as cancelled, then the turn.
pub(super) fn end(draft: &mut Draft, outcome: TurnOutcome, reason: Option<String>) {
    for call in draft.open_calls() {
        draft.error(call.id, "[cancelled]", ErrorType::Cancelled);
    }
    draft.push(EventData::TurnEnded(TurnEnded { outcome, reason }));
}

/// Keeps what a cut stream had said, marked; once, since a step that is done has no partial text.
pub(super) fn keep_partial(
    draft: &mut Draft,
    partial: Option<PartialMessage>,
    status: MessageStatus,
) {
    let Some(turn) = &draft.state.turn else { return };
    let streams = |partial: &PartialMessage| turn.settled() && partial.step == turn.next_step();
    let Some(partial) = partial.filter(streams).filter(|partial| !partial.content.is_empty())
    else {
        return;
    };
    let said = Message::new(partial.id, Role::Assistant, partial.content);
    let message = Message { status: Some(status), ..said };
    let step = partial.step;
    draft.push(EventData::AssistantMsg(AssistantMsg {
        message,
        status,
        step,
        usage: None,
        stop: None,
        verbatim: None,
        context_tokens: None,
    }));
}

/// `ms` after `at`, or the end of time.
pub(super) fn after(at: Timestamp, ms: u64) -> Timestamp {
    let span = jiff::SignedDuration::from_millis(i64::try_from(ms).unwrap_or(i64::MAX));
    at.checked_add(span).unwrap_or(Timestamp::MAX)
}
