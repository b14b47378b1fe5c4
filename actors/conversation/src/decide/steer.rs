//! A user's message steers the turn that runs: the model reads it before the turn's next step.

use super::Rejection;
use super::draft::Draft;
use crate::command::Send;
use crate::event::{EventData, Steered};
use crate::message::{Message, MessageRole};
use crate::numbers::Seq;
use crate::state::State;

/// The model reads all of them with its next step.
const MAX_STEERING_MESSAGES: u32 = 100;

/// What a message asks of its turn as a whole has no meaning for one that runs: whoever sends the
/// message has been refused it.
pub(super) fn steer(draft: &mut Draft, send: Send) -> Result<(), Rejection> {
    let count = draft.state.turn.as_ref().map_or(0, |turn| turn.steering.count);
    if count >= MAX_STEERING_MESSAGES {
        return Err(Rejection::QueueFull);
    }
    let Send { id, content, message_id, principal, identity, .. } = send;
    let message = Message::new(id, MessageRole::User, content);
    draft.push(EventData::Steered(Steered { message, message_id, principal, identity }));
    Ok(())
}

/// Whether a message steers the open turn that a reply, made of the events up to this one, could not
/// take into account.
pub(super) fn has_unread_message(state: &State, read_upto: Seq) -> bool {
    state.turn.as_ref().is_some_and(|turn| turn.steering.last > read_upto)
}
