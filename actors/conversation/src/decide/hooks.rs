//! Hooks around a model call: they add content to the context, halt the turn, or refuse a message.

use super::Rejection;
use super::draft::Draft;
use super::settle::{end_turn, settle};
use crate::event::{AddedContext, ContextAdded, EventData, MessageRefused, TurnOutcome};
use crate::ids::TurnId;
use crate::message::Message;
use crate::numbers::Step;
use crate::usage::Usage;

/// Content of durable hooks is journalled once per step, before the model is called.
pub(super) fn context_added(
    draft: &mut Draft,
    turn: &TurnId,
    step: Step,
    added: Vec<AddedContext>,
) -> Result<(), Rejection> {
    let is_done = draft.state.turn.as_ref().is_some_and(|turn| turn.hooks_done_for >= step);
    if is_done || !draft.state.awaits_step(turn, step) {
        return Err(Rejection::Stale);
    }
    draft.push(EventData::ContextAdded(ContextAdded { step, added }));
    Ok(())
}

/// A hook halts the turn before its next step.
pub(super) fn halt(
    draft: &mut Draft,
    turn: &TurnId,
    step: Step,
    reason: String,
) -> Result<(), Rejection> {
    if !draft.state.awaits_step(turn, step) {
        return Err(Rejection::Stale);
    }
    end_turn(draft, TurnOutcome::Halted, Some(reason));
    Ok(())
}

/// Keeps the message out of the conversation. The model is asked once more; a second refusal halts
/// the turn.
pub(super) fn refuse_message(
    draft: &mut Draft,
    (hook, reason): (String, String),
    (step, message, usage): (Step, Message, Option<Usage>),
) {
    let is_second = draft.state.turn.as_ref().is_some_and(|turn| turn.message_refused);
    let halt_reason = format!("hook {hook} refused a second message: {reason}");
    draft.push(EventData::MessageRefused(MessageRefused { step, hook, reason, message, usage }));
    if is_second {
        end_turn(draft, TurnOutcome::Halted, Some(halt_reason));
    } else {
        settle(draft);
    }
}
