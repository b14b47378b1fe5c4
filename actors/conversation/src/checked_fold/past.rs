//! What earlier events rule out, and the state does not show.

use std::collections::HashSet;

use super::{IllegalEvent, ensure};
use crate::event::{Event, EventData, TurnEnded, TurnOutcome};
use crate::ids::{CallId, TurnId};
use crate::message::{ErrorType, Outcome};
use crate::numbers::Seq;
use crate::state::{CallPhase, State};

/// The reason of a turn that was open where the prefix of a fork ends.
const FORKED: &str = "forked";

/// The events of a journal so far, as far as later ones depend on them.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// The turns that had a message.
    turns: HashSet<TurnId>,
    /// The events after which no turn was open.
    rests: HashSet<Seq>,
    /// The calls of the latest step that have a `tool_call` event.
    plans: HashSet<CallId>,
    /// A call of the latest step that was cancelled without one.
    early_result: Option<CallId>,
    /// The calls of the latest step for which somebody is asked.
    waiting: HashSet<CallId>,
    /// A call of the latest step that was cancelled while somebody was asked.
    cut_off: Option<CallId>,
}

impl Past {
    /// Refuses an event that cannot follow; the state is that before it.
    pub(super) fn check(&self, state: &State, event: &Event) -> Result<(), IllegalEvent> {
        match &event.data {
            EventData::UserMsg(_) => {
                let is_new = event.turn_id.as_ref().is_none_or(|turn| !self.turns.contains(turn));
                ensure(is_new, || IllegalEvent::TurnTwice)
            }
            EventData::Rewound(rewound) => {
                ensure(self.rests.contains(&rewound.to_seq), || IllegalEvent::WithinTurn)
            }
            EventData::AssistantMsg(_) | EventData::MessageRefused(_) => {
                match (&self.early_result, &self.cut_off) {
                    (Some(call), _) => Err(IllegalEvent::NotHalted(call.clone())),
                    (None, Some(call)) => Err(IllegalEvent::TurnGoesOn(call.clone())),
                    (None, None) => Ok(()),
                }
            }
            EventData::TurnEnded(ended) => match &self.early_result {
                Some(call) if !self.ends_early(ended) => Err(IllegalEvent::NotHalted(call.clone())),
                Some(_) | None => Ok(()),
            },
            data => match used_call(data) {
                Some(call) if state.call(call).is_some() && !self.plans.contains(call) => {
                    let is_cancelled = is_cancellation(data);
                    ensure(is_cancelled, || IllegalEvent::NotPlanned(call.clone()))
                }
                Some(_) | None => Ok(()),
            },
        }
    }

    /// Takes the event in; the state is that after it.
    pub(super) fn add(&mut self, state: &State, event: &Event) {
        match &event.data {
            EventData::UserMsg(_) => self.turns.extend(event.turn_id.clone()),
            EventData::TurnStarted(_)
            | EventData::AssistantMsg(_)
            | EventData::MessageRefused(_) => {
                self.plans.clear();
                self.waiting.clear();
                (self.early_result, self.cut_off) = (None, None);
            }
            EventData::ToolCall(planned) => drop(self.plans.insert(planned.call_id.clone())),
            EventData::Suspension(it) => drop(self.waiting.insert(it.call_id.clone())),
            EventData::Resolution(it) => drop(self.waiting.remove(&it.call_id)),
            EventData::ToolResult(result) => {
                let call = &result.call_id;
                if !self.plans.contains(call) {
                    self.early_result = Some(call.clone());
                }
                if self.waiting.remove(call) && is_cancellation(&event.data) {
                    self.cut_off = Some(call.clone());
                }
            }
            EventData::TurnEnded(_) => (self.early_result, self.cut_off) = (None, None),
            _ => {}
        }
        if state.turn.is_none() {
            self.rests.insert(event.seq);
        }
    }

    /// Refuses a journal that ends before each call of the latest step has its plan.
    pub(super) fn check_end(&self, state: &State) -> Result<(), IllegalEvent> {
        let calls = state.turn.iter().flat_map(|turn| &turn.calls);
        let mut open = calls.filter(|call| call.phase == CallPhase::Requested);
        match open.find(|call| !self.plans.contains(&call.id)) {
            Some(call) => Err(IllegalEvent::EndsBeforePlan(call.id.clone())),
            None => Ok(()),
        }
    }

    /// Whether the turn ended before its calls were planned: a hook halted it after the message, or
    /// a fork ends within the commit.
    fn ends_early(&self, ended: &TurnEnded) -> bool {
        match ended.outcome {
            TurnOutcome::Halted => self.plans.is_empty(),
            TurnOutcome::Cancelled => ended.reason.as_deref() == Some(FORKED),
            TurnOutcome::Completed | TurnOutcome::Failed => false,
        }
    }
}

/// The call that an event refers to, which is planned by then.
fn used_call(data: &EventData) -> Option<&CallId> {
    match data {
        EventData::Suspension(it) => Some(&it.call_id),
        EventData::Voted(it) => Some(&it.call_id),
        EventData::Resolution(it) => Some(&it.call_id),
        EventData::ToolStarted(it) => Some(&it.call_id),
        EventData::ToolAttemptFailed(it) => Some(&it.call_id),
        EventData::InputRequired(it) => Some(&it.call_id),
        EventData::ToolResult(it) => Some(&it.call_id),
        EventData::PhaseChanged(it) => Some(&it.call_id),
        EventData::TodosChanged(it) => Some(&it.call_id),
        EventData::ChildStarted(it) => Some(&it.call_id),
        EventData::ChildEnded(it) => Some(&it.call_id),
        EventData::ToolQueued(it) => Some(&it.call_id),
        EventData::ToolLeased(it) => Some(&it.call_id),
        EventData::CallbackAwaited(it) => Some(&it.call_id),
        EventData::DecisionRemembered(it) => Some(&it.call_id),
        EventData::SuspensionExpiring(it) => Some(&it.call_id),
        EventData::SuspensionExtended(it) => Some(&it.call_id),
        EventData::SuspensionEscalated(it) => Some(&it.call_id),
        EventData::Created(_)
        | EventData::UserMsg(_)
        | EventData::TurnStarted(_)
        | EventData::AssistantMsg(_)
        | EventData::ToolCall(_)
        | EventData::RepairRequested(_)
        | EventData::ContextAdded(_)
        | EventData::MessageRefused(_)
        | EventData::Forked(_)
        | EventData::ContextReduced(_)
        | EventData::Summarized(_)
        | EventData::SummaryFailed(_)
        | EventData::TurnEnded(_)
        | EventData::DispatchStarted(_)
        | EventData::DispatchFinished(_)
        | EventData::WorkspaceOpened(_)
        | EventData::ChildReleased(_)
        | EventData::ParentNotified(_)
        | EventData::Abandoned {}
        | EventData::DecisionPublished(_)
        | EventData::DecisionRevoked(_)
        | EventData::Updated(_)
        | EventData::Operated(_)
        | EventData::MessageScheduled(_)
        | EventData::ScheduleEnded(_)
        | EventData::StateChanged(_)
        | EventData::TurnWithdrawn(_)
        | EventData::Steered(_)
        | EventData::Rewound(_)
        | EventData::Unknown(_) => None,
    }
}

/// Whether the event is the result of a call that was cancelled.
fn is_cancellation(data: &EventData) -> bool {
    let EventData::ToolResult(result) = data else { return false };
    matches!(result.outcome, Outcome::Err(_, ErrorType::Cancelled))
}
