//! Messages for later: scheduled, withdrawn, and delivered when they are due.

use super::cancel::cancel;
use super::draft::Draft;
use super::{Rejection, create};
use crate::command::{IfBusy, PartialMessage, Schedule, Send, Unschedule};
use crate::event::{EventData, MessageScheduled, ScheduleEnd, ScheduleEnded, UserMsg};
use crate::message::{Message, MessageRole};

/// Each is part of the state.
pub(crate) const MAX_SCHEDULED_MESSAGES: usize = 100;
/// Scheduled messages and queued ones together: a delivery is never refused because the queue is full.
pub(crate) const MAX_WAITING_MESSAGES: usize = 200;

pub(super) fn schedule(draft: &mut Draft, schedule: Schedule) -> Result<(), Rejection> {
    let Schedule { scheduled_id, deliver_at, mut send } = schedule;
    match (&draft.state.agent, send.create.take()) {
        (None, None) => return Err(Rejection::NotFound),
        (None, Some(create)) => create::create(draft, create)?,
        (Some(agent), Some(create)) if *agent != create.agent => {
            return Err(Rejection::AgentMismatch(agent.to_string()));
        }
        (Some(_), _) => {}
    }
    let scheduled = draft.state.scheduled.count();
    // To ask again soon would be of no use.
    if scheduled >= MAX_SCHEDULED_MESSAGES {
        let rule = "100 messages of the conversation are scheduled already, the most that may be";
        return Err(Rejection::Invalid { field: "deliver_at".into(), rule: rule.into() });
    }
    if scheduled.saturating_add(draft.state.queue.len()) >= MAX_WAITING_MESSAGES {
        return Err(Rejection::QueueFull);
    }
    let (turn, if_busy) = (send.turn_id.clone(), send.if_busy);
    let mut user_msg = user_msg(send);
    user_msg.scheduled_id = Some(scheduled_id.clone());
    let scheduled = MessageScheduled { scheduled_id, deliver_at, turn, if_busy, user_msg };
    draft.push_in(None, EventData::MessageScheduled(scheduled));
    Ok(())
}

/// The event of a message.
pub(super) fn user_msg(send: Send) -> UserMsg {
    UserMsg {
        message: Message::new(send.id, MessageRole::User, send.content),
        message_id: send.message_id,
        scheduled_id: None,
        principal: send.principal,
        identity: send.identity,
        assigns: send.assigns,
        answer_format: send.answer_format,
        tools: send.tools,
        context: send.context,
    }
}

pub(super) fn unschedule(draft: &mut Draft, unschedule: Unschedule) -> Result<(), Rejection> {
    let Unschedule { scheduled_id, by, identity } = unschedule;
    if draft.state.scheduled.was_delivered(&scheduled_id) {
        return Err(Rejection::AlreadyDelivered);
    }
    if !draft.state.scheduled.has(&scheduled_id) {
        return Err(Rejection::ScheduledNotFound);
    }
    let reason = ScheduleEnd::Withdrawn;
    let ended = ScheduleEnded { scheduled_id, reason, by: Some(by), identity };
    draft.push_in(None, EventData::ScheduleEnded(ended));
    Ok(())
}

/// Delivers what is due, the earliest first. A message that interrupts still waits for the turns that
/// were queued before it.
pub(super) fn deliver_due(draft: &mut Draft, mut partial: Option<PartialMessage>) {
    for due in draft.state.scheduled.due(draft.at) {
        let is_busy = draft.state.turn.is_some() || !draft.state.queue.is_empty();
        match due.if_busy {
            IfBusy::Reject if is_busy => {
                draft.push_in(
                    None,
                    EventData::ScheduleEnded(ScheduleEnded {
                        scheduled_id: due.scheduled_id.clone(),
                        reason: ScheduleEnd::Busy,
                        by: None,
                        identity: None,
                    }),
                );
                continue;
            }
            IfBusy::Interrupt => cancel(draft, partial.take()),
            // A message for later steers nothing: whoever schedules it does not know what will run.
            IfBusy::Reject | IfBusy::Queue | IfBusy::Steer => {}
        }
        draft.push_in(Some(due.turn.clone()), EventData::UserMsg(due.user_msg.clone()));
    }
}
