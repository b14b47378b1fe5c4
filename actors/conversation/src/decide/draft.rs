//! The events of one decision, each folded in at once, so that the next one sees the new state.

use std::sync::Arc;

use super::Transition;
use crate::Timestamp;
use crate::event::{Event, EventData, ToolResult};
use crate::evolve::evolve;
use crate::ids::{CallId, TurnId};
use crate::message::{ErrorType, Outcome};
use crate::state::{Call, CallPhase, State};

pub(super) struct Draft {
    pub(super) state: Arc<State>,
    pub(super) at: Timestamp,
    events: Vec<Event>,
}

impl Draft {
    /// The state is copied with the first event only.
    pub(super) fn new(state: &Arc<State>, at: Timestamp) -> Self {
        Self { state: state.clone(), at, events: Vec::new() }
    }

    /// Adds an event of the open turn; of no turn if none is open.
    pub(super) fn push(&mut self, data: EventData) {
        let turn = self.state.turn.as_ref().map(|turn| turn.id.clone());
        self.push_in(turn, data);
    }

    /// Adds an event of the call's turn; of no turn for a dispatch.
    pub(super) fn push_for(&mut self, call: &CallId, data: EventData) {
        match self.state.call(call) {
            Some(_) => self.push(data),
            None => self.push_in(None, data),
        }
    }

    pub(super) fn push_in(&mut self, turn_id: Option<TurnId>, data: EventData) {
        let event = Event { seq: self.state.seq.next(), at: self.at, turn_id, data };
        evolve(Arc::make_mut(&mut self.state), &event);
        self.events.push(event);
    }

    /// Adds an event of the original unchanged. Its `seq` must be the next one.
    pub(super) fn push_copy(&mut self, event: Event) {
        evolve(Arc::make_mut(&mut self.state), &event);
        self.events.push(event);
    }

    pub(super) fn push_result(&mut self, call_id: CallId, outcome: Outcome) {
        self.push(EventData::ToolResult(ToolResult {
            call_id,
            outcome,
            ui: None,
            effective_args: None,
        }));
    }

    pub(super) fn push_error(
        &mut self,
        call_id: CallId,
        error: impl Into<String>,
        kind: ErrorType,
    ) {
        self.push_result(call_id, Outcome::Err(error.into(), kind));
    }

    /// The calls without a result, in call order.
    pub(super) fn open_calls(&self) -> Vec<Call> {
        let calls = self.state.turn.iter().flat_map(|turn| &turn.calls);
        calls.filter(|call| call.phase != CallPhase::Done).cloned().collect()
    }

    pub(super) fn into_transition(self) -> Transition {
        Transition { events: self.events, state: self.state }
    }
}
