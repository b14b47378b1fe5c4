//! Hooks around a model call: they add to the context, end the turn, or refuse a message.

use super::Rejection;
use super::draft::Draft;
use super::model_replied::awaits;
use super::settle::{end, settle};
use crate::event::{AddedContext, ContextAdded, EventData, MessageRefused, TurnOutcome};
use crate::ids::TurnId;
use crate::message::{Message, Usage};

/// What durable hooks add is journalled before the model is asked, once a step.
pub(super) fn context_added(
    draft: &mut Draft,
    turn: &TurnId,
    step: u32,
    added: Vec<AddedContext>,
) -> Result<(), Rejection> {
    let prepared = draft.state.turn.as_ref().is_some_and(|turn| turn.prepared >= step);
    if prepared || !awaits(&draft.state, turn, step) {
        return Err(Rejection::Stale);
    }
    draft.push(EventData::ContextAdded(ContextAdded { step, added }));
    Ok(())
}

/// A hook ends the turn instead of its next step.
pub(super) fn halt(
    draft: &mut Draft,
    turn: &TurnId,
    step: u32,
    reason: String,
) -> Result<(), Rejection> {
    if !awaits(&draft.state, turn, step) {
        return Err(Rejection::Stale);
    }
    end(draft, TurnOutcome::Halted, Some(reason));
    Ok(())
}

/// The message is kept out of the conversation, and the model asked once more.
pub(super) fn refuse(
    draft: &mut Draft,
    (hook, reason): (String, String),
    (step, message, usage): (u32, Message, Option<Usage>),
) {
    let refused = draft.state.turn.as_ref().is_some_and(|turn| turn.refused);
    let again = format!("hook {hook} refused a second message: {reason}");
    draft.push(EventData::MessageRefused(MessageRefused { step, hook, reason, message, usage }));
    match refused {
        true => end(draft, TurnOutcome::Halted, Some(again)),
        false => settle(draft),
    }
}
