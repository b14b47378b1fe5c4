//! A user's message starts a turn, waits for its own, or takes the running one's place.

use super::draft::Draft;
use super::{Rejection, cancel, create, start};
use crate::command::{IfBusy, Send};
use crate::event::{EventData, UserMsg};
use crate::message::{Message, Role};

/// How many messages may wait. More is a client that has lost its way.
const QUEUE: usize = 100;

pub(super) fn send(draft: &mut Draft, mut send: Send) -> Result<(), Rejection> {
    match (&draft.state.agent, send.create.take()) {
        (None, None) => return Err(Rejection::NotFound),
        (None, Some(create)) => create::create(draft, create)?,
        (Some(agent), Some(create)) if *agent != create.agent => {
            return Err(Rejection::AgentMismatch(agent.to_string()));
        }
        (Some(_), _) => {}
    }
    let busy = draft.state.turn.is_some() || !draft.state.queue.is_empty();
    let starts = match (busy, send.if_busy) {
        (false, _) => true,
        (true, IfBusy::Reject) => return Err(Rejection::TurnInFlight),
        (true, IfBusy::Queue) => false,
        (true, IfBusy::Interrupt) => {
            cancel::cancel(draft, send.partial.take());
            true
        }
    };
    if !starts && draft.state.queue.len() >= QUEUE {
        return Err(Rejection::QueueFull);
    }
    let message = Message::new(send.id, Role::User, send.content);
    let said = UserMsg {
        message,
        message_id: send.message_id,
        principal: send.principal,
        assigns: send.assigns,
        schema: send.shape,
    };
    draft.push_of(Some(send.turn_id.clone()), EventData::UserMsg(said));
    if starts {
        start::begin(draft, send.turn_id, send.basis);
    }
    Ok(())
}
