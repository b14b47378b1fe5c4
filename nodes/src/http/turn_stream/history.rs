//! A part of a turn that is over, as its caller saw it.

use std::collections::BTreeSet;

use abide_actors::access::Answerer;
use abide_conversation::event::{Event, EventData, Suspension};
use abide_conversation::state::PendingCall;
use abide_conversation::{CallId, State, Timestamp};

use super::TurnStream;
use crate::problem::Problem;
use crate::protocols::feed::Answerable;

/// What is known of the past of a turn.
#[derive(Debug, Default)]
pub(super) struct History {
    /// When the last event was journalled. The events of one commit have one time.
    committed_at: Option<Timestamp>,
    /// The suspensions that the caller may answer, or might have answered.
    answerable: BTreeSet<(CallId, u32)>,
}

impl History {
    /// Whether this event begins another commit than the one before it.
    pub(super) fn is_new_commit(&mut self, event: &Event) -> bool {
        let before = self.committed_at.replace(event.at);
        before.is_some_and(|before| before != event.at)
    }

    pub(super) fn answerable(&self) -> Answerable {
        Answerable::Only(self.answerable.clone())
    }

    /// Judges the suspensions of these events, and again those that are open.
    fn judge(&mut self, caller: &Answerer, state: &State, events: &[Event]) {
        let open = state.pending_calls();
        for event in events {
            let EventData::Suspension(suspension) = &event.data else { continue };
            let past = past_call(suspension, state);
            if caller.may_answer(&state.participants, &past) {
                self.answerable.insert((past.call_id, past.suspension));
            }
        }
        for pending in open {
            let may_answer = caller.may_answer(&state.participants, &pending);
            let place = (pending.call_id, pending.suspension);
            if may_answer {
                self.answerable.insert(place);
            } else {
                self.answerable.remove(&place);
            }
        }
    }
}

impl TurnStream {
    /// Judges the suspensions of these events, if the past is told.
    pub(super) async fn remember(&mut self, events: &[Event]) -> Result<(), Problem> {
        let Some(history) = &mut self.history else { return Ok(()) };
        if self.access.is_unrestricted() {
            return Ok(());
        }
        let state = self.api.conversations.unscoped().stored_state(&self.id).await?;
        let caller = Answerer { access: self.access.clone(), at: self.api.clock.now() };
        history.judge(&caller, &state.unwrap_or_default(), events);
        Ok(())
    }
}

/// A suspension as it was when nobody had voted. Whoever asked for the open turn counts as having asked
/// for this.
fn past_call(suspension: &Suspension, state: &State) -> PendingCall {
    PendingCall {
        call_id: suspension.call_id.clone(),
        tool: suspension.tool.clone(),
        executor: suspension.executor,
        kind: suspension.kind,
        args: Default::default(),
        message: String::new(),
        intent: suspension.intent,
        suspension: suspension.suspension,
        suspended_at: suspension.expires_at,
        expires_at: suspension.expires_at,
        requests: None,
        root_conversation_id: None,
        policy: suspension.policy.clone(),
        requesters: state.requesters(),
        votes: None,
        needed: None,
        original_args: None,
        answer_schema: None,
        doubt: None,
    }
}
