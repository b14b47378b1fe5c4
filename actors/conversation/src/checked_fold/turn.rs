//! What may happen to a turn.

use super::{IllegalEvent, ensure};
use crate::event::{Event, EventData};
use crate::numbers::Step;
use crate::state::{State, Turn};

/// Whether the event names the turn that its type requires.
pub(super) fn check_turn_id(state: &State, event: &Event) -> Result<(), IllegalEvent> {
    match &event.data {
        EventData::UserMsg(_) | EventData::TurnStarted(_) | EventData::TurnWithdrawn(_) => {
            ensure(event.turn_id.is_some(), || IllegalEvent::NoTurn)
        }
        EventData::AssistantMsg(_)
        | EventData::MessageRefused(_)
        | EventData::RepairRequested(_)
        | EventData::ContextAdded(_)
        | EventData::ContextReduced(_)
        | EventData::Steered(_)
        | EventData::TurnEnded(_)
        | EventData::ToolCall(_)
        | EventData::Suspension(_)
        | EventData::Voted(_)
        | EventData::Resolution(_)
        | EventData::ToolStarted(_)
        | EventData::InputRequired(_)
        | EventData::ToolResult(_)
        | EventData::ToolQueued(_)
        | EventData::ToolLeased(_)
        | EventData::CallbackAwaited(_)
        | EventData::DecisionRemembered(_)
        | EventData::SuspensionExpiring(_)
        | EventData::SuspensionExtended(_)
        | EventData::SuspensionEscalated(_) => {
            let open = state.turn.as_ref().map(|turn| &turn.id);
            ensure(event.turn_id.is_some(), || IllegalEvent::NoTurn)?;
            ensure(event.turn_id.as_ref() == open, || IllegalEvent::NotTheOpenTurn)
        }
        // Events of a turn's call or of a dispatch.
        EventData::PhaseChanged(_)
        | EventData::TodosChanged(_)
        | EventData::ToolAttemptFailed(_)
        | EventData::StateChanged(_)
        | EventData::ChildStarted(_)
        | EventData::ChildEnded(_) => {
            let open = state.turn.as_ref().map(|turn| &turn.id);
            let is_open = event.turn_id.is_none() || event.turn_id.as_ref() == open;
            ensure(is_open, || IllegalEvent::NotTheOpenTurn)
        }
        EventData::Created(_)
        | EventData::Forked(_)
        | EventData::Summarized(_)
        | EventData::SummaryFailed(_)
        | EventData::DispatchStarted(_)
        | EventData::DispatchFinished(_)
        | EventData::WorkspaceOpened(_)
        | EventData::ChildReleased(_)
        | EventData::ParentNotified(_)
        | EventData::Abandoned {}
        | EventData::DecisionPublished(_)
        | EventData::DecisionRevoked(_)
        | EventData::Updated(_)
        | EventData::MessageScheduled(_)
        | EventData::ScheduleEnded(_)
        | EventData::Rewound(_)
        | EventData::Operated(_) => {
            ensure(event.turn_id.is_none(), || IllegalEvent::UnexpectedTurn)
        }
        EventData::Unknown(_) => Ok(()),
    }
}

/// Checks an event that begins, carries on or ends a turn.
pub(super) fn check(state: &State, event: &Event) -> Result<(), IllegalEvent> {
    let is_queued = state.queue.iter().any(|queued| Some(&queued.id) == event.turn_id.as_ref());
    match &event.data {
        EventData::UserMsg(message) => {
            let is_scheduled =
                message.scheduled_id.as_ref().is_none_or(|id| state.scheduled.has(id));
            ensure(is_scheduled, || IllegalEvent::NotScheduled)?;
            let is_running = state.turn.as_ref().map(|turn| &turn.id) == event.turn_id.as_ref();
            ensure(!is_queued && !is_running, || IllegalEvent::NotQueuedOnce)
        }
        EventData::TurnStarted(_) => {
            ensure(state.turn.is_none(), || IllegalEvent::TurnOpen)?;
            ensure(is_queued, || IllegalEvent::NotQueuedOnce)
        }
        EventData::TurnWithdrawn(_) => ensure(is_queued, || IllegalEvent::NotQueuedOnce),
        EventData::AssistantMsg(message) => ends_step(state, message.step),
        EventData::MessageRefused(refused) => ends_step(state, refused.step),
        EventData::TurnEnded(_) => {
            let is_settled = state.turn.as_ref().is_some_and(Turn::is_settled);
            ensure(is_settled, || IllegalEvent::OpenCalls)
        }
        _ => Ok(()),
    }
}

/// A step ends when the model has been asked for it, which needs the result of every earlier call.
fn ends_step(state: &State, found: Step) -> Result<(), IllegalEvent> {
    let Some(turn) = &state.turn else { return Err(IllegalEvent::NotTheOpenTurn) };
    ensure(turn.is_settled(), || IllegalEvent::OpenCalls)?;
    let expected = turn.next_step();
    ensure(found == expected, || IllegalEvent::WrongStep { expected, found })
}
