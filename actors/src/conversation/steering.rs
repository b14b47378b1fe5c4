//! What people do about turns: those that wait or run, and those that are taken back.

use std::sync::Arc;

use abide_conversation::command::IfBusy;
use abide_conversation::event::{EventData, UserMsg};
use abide_conversation::identity::Identity;
use abide_conversation::ids::TurnId;
use abide_conversation::{Action, Rejection, command};

use super::requests::{Proposal, propose, sent_reply};
use super::{LiveConversation, seq_of};
use crate::access::Access;
use crate::request::{RegenerateRequest, Reply, RequestError, RewindRequest, WithdrawRequest};
use crate::tools::NEW_TURN;

impl LiveConversation {
    /// Withdraws a turn that waits in the queue.
    pub(super) fn withdraw(&self, request: WithdrawRequest, access: &Access) -> Proposal {
        propose(withdrawal(request, access, None), |_| Reply::Withdrawn)
    }

    /// Ends a turn wherever it is, and no other: it may start or end while the request is on its way.
    pub(super) fn cancel_turn(&self, request: WithdrawRequest, access: &Access) -> Proposal {
        let partial = self.activities.stream.partial();
        let action = withdrawal(request, access, Some(command::Cancel { partial }));
        propose(action, |events| Reply::Cancelled { cancelled: !events.is_empty() })
    }

    /// Goes on from an earlier event.
    pub(super) fn rewind(&self, request: RewindRequest, access: &Access) -> Proposal {
        propose(Action::Rewind(rewind(request, access)), |events| {
            let is_it = |data: &EventData| matches!(data, EventData::Rewound(_));
            Reply::Rewound { seq: seq_of(events, |event| is_it(&event.data)) }
        })
    }

    /// Begins a turn anew, as the caller's.
    pub(super) async fn regenerate(
        &mut self,
        request: RegenerateRequest,
        access: &Access,
    ) -> Result<Proposal, RequestError> {
        let RegenerateRequest { rewind: to, tip, message, steering } = request;
        let agent = self.state.agent.clone().ok_or(Rejection::NotFound)?;
        let definition = self.next_definition(&agent).await?;
        self.check_tool_names(&definition, &message.tools)?;
        let identity = access.identity().cloned().map(Arc::new);
        // What a sender gave for their own calls is not for those of somebody else.
        let sender = message.identity.as_deref().map(subject_of);
        let is_same = message.principal == to.by && sender == identity.as_deref().map(subject_of);
        let UserMsg { message, message_id, assigns, answer_format, tools, context, .. } = message;
        let turn_id = TurnId::new(self.services.clock.id(NEW_TURN));
        let send = command::Send {
            create: None,
            settings: definition.basis(),
            turn_id: turn_id.clone(),
            id: message.id,
            content: message.content,
            message_id,
            principal: to.by.clone(),
            identity,
            assigns: if is_same { assigns } else { Default::default() },
            answer_format,
            tools,
            context,
            if_busy: IfBusy::Reject,
            partial: None,
        };
        let regenerate = command::Regenerate { rewind: rewind(to, access), tip, send, steering };
        let reply = sent_reply(self.id.local(), turn_id);
        Ok(propose(Action::Regenerate(Box::new(regenerate)), reply))
    }
}

fn rewind(request: RewindRequest, access: &Access) -> command::Rewind {
    let RewindRequest { to_seq, point, by } = request;
    let identity = access.identity().cloned().map(Arc::new);
    command::Rewind { to_seq, point, by, identity }
}

/// Whoever acts with an identity.
fn subject_of(identity: &Identity) -> (&str, &str) {
    let acting = identity.acting();
    (&acting.iss, &acting.sub)
}

fn withdrawal(
    request: WithdrawRequest,
    access: &Access,
    cancel: Option<command::Cancel>,
) -> Action {
    let WithdrawRequest { turn, by } = request;
    let identity = access.identity().cloned().map(Arc::new);
    Action::Withdraw(command::Withdraw { turn, cancel, by, identity })
}
