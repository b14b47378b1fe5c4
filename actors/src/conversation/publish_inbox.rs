//! Tells the live inboxes of the tenant what a conversation waits for.

use std::sync::Arc;

use abide_conversation::event::{Event, EventData};
use abide_conversation::state::PendingCall;
use abide_conversation::{CallId, ConversationId, Scoped, State};

use super::LiveConversation;
use crate::child_calls::{ChildCalls, ClosedCall};
use crate::live::{LiveSink, Signal, inbox_channel};

impl LiveConversation {
    /// Publishes what the conversation waits for now, if that `has_changed` or these events are about it.
    pub(super) fn publish_to_inboxes(&self, before: &State, events: &[Event], has_changed: bool) {
        let expiring: Vec<_> = events.iter().filter_map(expiring).collect();
        let is_same = !has_changed && before.participants == self.state.participants;
        if is_same && expiring.is_empty() {
            return;
        }
        let channel = self.id.sibling(&inbox_channel());
        if !self.services.live.may_be_heard(&channel) {
            return;
        }
        let (was_open, is_open) = (before.pending_calls(), self.state.pending_calls());
        let is_gone = |call: &&PendingCall| {
            let same = |other: &PendingCall| {
                (&other.call_id, other.suspension) == (&call.call_id, call.suspension)
            };
            !is_open.iter().any(same)
        };
        let closed = was_open.iter().filter(is_gone).map(|call| ClosedCall {
            call_id: call.call_id.clone(),
            suspension: call.suspension,
            by: events.iter().find_map(|event| match &event.data {
                EventData::Resolution(it) if it.call_id == call.call_id => Some(it.by.clone()),
                _ => None,
            }),
        });
        let closed = closed.collect();
        let calls =
            ChildCalls { closed, expiring, ..ChildCalls::new(self.id.local(), &self.state) };
        self.services.live.publish(&channel, Signal::Child(Arc::new(calls)));
    }
}

fn expiring(event: &Event) -> Option<(CallId, u32)> {
    match &event.data {
        EventData::SuspensionExpiring(it) => Some((it.call_id.clone(), it.suspension)),
        _ => None,
    }
}

/// Publishes that a conversation that was deleted in this state waits for nothing any more.
pub(super) fn publish_deletion_to_inboxes(
    live: &dyn LiveSink,
    id: &Scoped<ConversationId>,
    deleted: &State,
) {
    let open = deleted.pending_calls();
    if open.is_empty() {
        return;
    }
    let closed = open.into_iter().map(|call| ClosedCall {
        call_id: call.call_id,
        suspension: call.suspension,
        by: None,
    });
    let calls = ChildCalls {
        seq: deleted.seq.next(),
        pending: Vec::new(),
        closed: closed.collect(),
        ..ChildCalls::new(id.local(), deleted)
    };
    live.publish(&id.sibling(&inbox_channel()), Signal::Child(Arc::new(calls)));
}
