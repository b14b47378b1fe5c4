//! A user's message starts a turn, is queued, or interrupts or steers the open turn.

use super::draft::Draft;
use super::schedule::user_msg;
use super::{Rejection, cancel, create, start, steer};
use crate::command::{IfBusy, Send};
use crate::event::EventData;

/// A client that queues more messages is out of control.
const MAX_QUEUED_MESSAGES: usize = 100;

pub(super) fn send(draft: &mut Draft, mut send: Send) -> Result<(), Rejection> {
    match (&draft.state.agent, send.create.take()) {
        (None, None) => return Err(Rejection::NotFound),
        (None, Some(create)) => create::create(draft, create)?,
        (Some(agent), Some(create)) if *agent != create.agent => {
            return Err(Rejection::AgentMismatch(agent.to_string()));
        }
        (Some(_), _) => {}
    }
    if send.if_busy == IfBusy::Steer && draft.state.turn.is_some() {
        return steer::steer(draft, send);
    }
    let is_busy = draft.state.turn.is_some() || !draft.state.queue.is_empty();
    let starts_now = match (is_busy, send.if_busy) {
        (false, _) => true,
        (true, IfBusy::Reject) => return Err(Rejection::TurnInFlight),
        // No turn runs yet that could be steered.
        (true, IfBusy::Queue | IfBusy::Steer) => false,
        (true, IfBusy::Interrupt) => {
            cancel::cancel(draft, send.partial.take());
            true
        }
    };
    if !starts_now && draft.state.queue.len() >= MAX_QUEUED_MESSAGES {
        return Err(Rejection::QueueFull);
    }
    let (turn_id, settings) = (send.turn_id.clone(), send.settings.clone());
    let user_msg = user_msg(send);
    draft.push_in(Some(turn_id.clone()), EventData::UserMsg(user_msg));
    if starts_now {
        start::begin_turn(draft, turn_id, settings);
    }
    Ok(())
}
