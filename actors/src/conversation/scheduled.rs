//! What happens later: messages that are scheduled, and suspensions that wait longer.

use std::sync::Arc;

use abide_conversation::command::{self, IfBusy};
use abide_conversation::event::EventData;
use abide_conversation::{Action, ScheduledId};

use super::requests::{Proposal, propose};
use super::{LiveConversation, seq_of};
use crate::access::Access;
use crate::limits::encoded_len;
use crate::request::{ExtendRequest, Reply, RequestError, ScheduleRequest, UnscheduleRequest};

/// The scheduled messages of a conversation together: they are part of its state.
const MAX_SCHEDULED_BYTES: usize = 1 << 20;

impl LiveConversation {
    /// Schedules a message. A time that has passed counts as now.
    pub(super) async fn schedule(
        &mut self,
        request: ScheduleRequest,
        access: &Access,
    ) -> Result<Proposal, RequestError> {
        let ScheduleRequest { deliver_at, message } = request;
        let mut send = self.compose_send(message, access).await?;
        send.partial = None;
        let new = encoded_len(&(&send.content, &send.context, &send.assigns, &send.tools));
        let bytes = encoded_len(&self.state.scheduled).saturating_add(new);
        if bytes > MAX_SCHEDULED_BYTES {
            let rule = "would make the scheduled messages larger than 1 MiB together";
            return Err(RequestError::invalid("content", rule));
        }
        let scheduled_id = ScheduledId::new(self.services.clock.id("sch"));
        let deliver_at = deliver_at.max(self.services.clock.now());
        let conversation_id = self.id.local();
        let reply =
            Reply::Scheduled { conversation_id, scheduled_id: scheduled_id.clone(), deliver_at };
        let schedule = command::Schedule { scheduled_id, deliver_at, send };
        Ok(propose(Action::Schedule(schedule), |_| reply))
    }

    pub(super) fn unschedule(&self, request: UnscheduleRequest, access: &Access) -> Proposal {
        let UnscheduleRequest { scheduled_id, by } = request;
        let identity = access.identity().cloned().map(Arc::new);
        let unschedule = command::Unschedule { scheduled_id, by, identity };
        propose(Action::Unschedule(unschedule), |_| Reply::Unscheduled)
    }

    /// Lets a suspension wait longer, for whoever may answer it.
    pub(super) fn extend(
        &self,
        request: ExtendRequest,
        access: &Access,
    ) -> Result<Proposal, RequestError> {
        let ExtendRequest { call, suspension, extension, by } = request;
        self.check_answer(&call, access)?;
        let identity = access.identity().cloned().map(Arc::new);
        let extend = command::Extend { call, suspension, extension, by, identity };
        Ok(propose(Action::Extend(extend), |events| {
            let expires_at = events.iter().find_map(|event| match &event.data {
                EventData::SuspensionExtended(extended) => Some(extended.expires_at),
                _ => None,
            });
            let is_it = |data: &EventData| matches!(data, EventData::SuspensionExtended(_));
            let seq = seq_of(events, |event| is_it(&event.data));
            Reply::Extended { expires_at: expires_at.unwrap_or_default(), seq }
        }))
    }

    /// What the alarm is for. A message that interrupts the open turn keeps what was streamed.
    pub(super) fn wake(&self) -> Proposal {
        let due = self.state.scheduled.due(self.services.clock.now());
        let interrupts = due.iter().any(|scheduled| scheduled.if_busy == IfBusy::Interrupt);
        let partial = interrupts.then(|| self.activities.stream.partial()).flatten();
        let action = match partial {
            Some(partial) => Action::WakeToInterrupt(command::Cancel { partial: Some(partial) }),
            None => Action::Wake,
        };
        propose(action, |_| Reply::Woken)
    }
}
