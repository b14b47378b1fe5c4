//! Events as they are decided, each folded in at once, so that the next is judged on what it left.

use super::Decision;
use crate::Timestamp;
use crate::event::{Event, EventData, ToolResult};
use crate::evolve::evolve;
use crate::ids::{CallId, TurnId};
use crate::message::{ErrorType, Outcome};
use crate::state::{Call, CallPhase, State};

pub(super) struct Draft {
    pub(super) state: State,
    pub(super) at: Timestamp,
    events: Vec<Event>,
}

impl Draft {
    pub(super) fn new(state: &State, at: Timestamp) -> Self {
        Self { state: state.clone(), at, events: Vec::new() }
    }

    /// Adds an event of the open turn, or of none.
    pub(super) fn push(&mut self, data: EventData) {
        let turn = self.state.turn.as_ref().map(|turn| turn.id.clone());
        self.push_of(turn, data);
    }

    /// Adds an event of the turn that the call is of, or of none for a user's own call.
    pub(super) fn push_for(&mut self, call: &CallId, data: EventData) {
        match self.state.call(call) {
            Some(_) => self.push(data),
            None => self.push_of(None, data),
        }
    }

    pub(super) fn push_of(&mut self, turn_id: Option<TurnId>, data: EventData) {
        let event = Event { seq: self.state.seq.saturating_add(1), at: self.at, turn_id, data };
        self.state = evolve(std::mem::take(&mut self.state), &event);
        self.events.push(event);
    }

    /// Adds an event as it happened elsewhere; it must be the next one.
    pub(super) fn copy(&mut self, event: Event) {
        self.state = evolve(std::mem::take(&mut self.state), &event);
        self.events.push(event);
    }

    pub(super) fn result(&mut self, call_id: CallId, outcome: Outcome) {
        self.push(EventData::ToolResult(ToolResult { call_id, outcome, ui: None, ran: None }));
    }

    pub(super) fn error(&mut self, call_id: CallId, error: impl Into<String>, kind: ErrorType) {
        self.result(call_id, Outcome::Err(error.into(), kind));
    }

    /// The calls that have no result yet, in call order.
    pub(super) fn open_calls(&self) -> Vec<Call> {
        let calls = self.state.turn.iter().flat_map(|turn| &turn.calls);
        calls.filter(|call| call.phase != CallPhase::Done).cloned().collect()
    }

    pub(super) fn decided(self) -> Decision {
        Decision { events: self.events, state: self.state }
    }
}
