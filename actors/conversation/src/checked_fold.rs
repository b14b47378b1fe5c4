//! A fold that refuses a journal which `decide` can never have written.
//!
//! [`evolve`] believes every event, because a journal is the truth and a live conversation must go
//! on. Tests and golden files want the opposite: an event that contradicts the state is a bug in
//! whatever wrote it, and this fold names it.

mod call;
mod past;
#[cfg(test)]
mod tests;
mod turn;

use crate::event::{Event, EventData};
use crate::evolve::evolve;
use crate::ids::{CallId, ConversationId, DecisionId};
use crate::numbers::{Seq, Step};
use crate::state::State;
use past::Past;

/// Why an event is impossible in the state that it would be folded into.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IllegalEvent {
    #[error("event {found} follows event {last}")]
    Gap { last: Seq, found: Seq },
    #[error("the conversation is created a second time")]
    CreatedTwice,
    #[error("the conversation is not created yet")]
    NotCreated,
    #[error("a prefix is completed, but none is being copied")]
    NotForking,
    #[error("an event of a turn names no turn")]
    NoTurn,
    #[error("an event outside of turns names a turn")]
    UnexpectedTurn,
    #[error("the event does not belong to the open turn")]
    NotTheOpenTurn,
    #[error("a turn starts while another one is open")]
    TurnOpen,
    #[error("a turn starts, is queued or is withdrawn without its one message")]
    NotQueuedOnce,
    #[error("step {found} ends where step {expected} is due")]
    WrongStep { expected: Step, found: Step },
    #[error("a step or a turn ends while a call is open")]
    OpenCalls,
    #[error("there is no open call {0}")]
    NoOpenCall(CallId),
    #[error("call {0} is in a phase in which this cannot happen")]
    WrongPhase(CallId),
    #[error("call {0} has another attempt running")]
    WrongAttempt(CallId),
    #[error("call {0} has another suspension open, or none")]
    WrongSuspension(CallId),
    #[error("dispatch {0} is running, or its id is taken")]
    DispatchRunning(CallId),
    #[error("child {0} does not belong to the call, or to no call at all")]
    UnknownChild(ConversationId),
    #[error("the parent is owed no report of this turn")]
    NoOwedReport,
    #[error("the conversation is abandoned a second time")]
    AbandonedTwice,
    #[error("decision {0} is not in a state in which this can happen")]
    UnknownDecision(DecisionId),
    #[error("marks of the context move back, or a summary covers less than the one before it")]
    ContextShrinks,
    #[error("a conversation that is not at rest, or an event that is not past, is rewound to")]
    NotAtRest,
    #[error("workspace root {0:?} has a storage already")]
    WorkspaceOpen(String),
    #[error("the message is not scheduled, or was scheduled before")]
    NotScheduled,
    #[error("the turn has an id that an earlier turn has")]
    TurnTwice,
    #[error("it goes on from an event that no turn had ended with")]
    WithinTurn,
    #[error("call {0} has no tool_call event before this")]
    NotPlanned(CallId),
    #[error("call {0} was cancelled without a tool_call event, and no hook had halted the turn")]
    NotHalted(CallId),
    #[error("call {0} ends while somebody is asked, without a resolution, and has not expired")]
    Unanswered(CallId),
    #[error("call {0} was cancelled while somebody was asked, and its turn goes on")]
    TurnGoesOn(CallId),
    #[error("the journal ends before the tool_call event of call {0}")]
    EndsBeforePlan(CallId),
}

impl IllegalEvent {
    /// The member of the event that contradicts what was before.
    pub fn member(&self) -> &'static str {
        match self {
            Self::Gap { .. } => "seq",
            Self::CreatedTwice
            | Self::NotCreated
            | Self::NotForking
            | Self::OpenCalls
            | Self::NotHalted(_)
            | Self::Unanswered(_)
            | Self::TurnGoesOn(_)
            | Self::NoOwedReport
            | Self::AbandonedTwice => "type",
            Self::NoTurn
            | Self::UnexpectedTurn
            | Self::NotTheOpenTurn
            | Self::TurnOpen
            | Self::NotQueuedOnce
            | Self::TurnTwice => "turn_id",
            Self::WrongStep { .. } => "data.step",
            Self::NoOpenCall(_)
            | Self::WrongPhase(_)
            | Self::DispatchRunning(_)
            | Self::NotPlanned(_) => "data.call_id",
            Self::WrongAttempt(_) => "data.attempt",
            Self::WrongSuspension(_) => "data.suspension",
            Self::UnknownChild(_) => "data.conversation_id",
            Self::UnknownDecision(_) => "data.decision_id",
            Self::ContextShrinks => "data.marks",
            Self::NotAtRest | Self::WithinTurn => "data.to_seq",
            Self::WorkspaceOpen(_) => "data.root",
            Self::NotScheduled => "data.scheduled_id",
            Self::EndsBeforePlan(_) => "last_seq",
        }
    }
}

/// A whole journal, folded event by event. Refuses what [`checked_fold`] refuses, and what the state
/// alone does not show to be impossible.
#[derive(Debug, Default)]
pub struct CheckedFold {
    state: State,
    past: Past,
}

impl CheckedFold {
    /// The state after the events so far.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Folds one more event. Nothing may be folded after an error.
    pub fn fold(&mut self, event: &Event) -> Result<(), IllegalEvent> {
        self.past.check(&self.state, event)?;
        self.state = checked_fold(std::mem::take(&mut self.state), event)?;
        self.past.add(&self.state, event);
        Ok(())
    }

    /// Refuses a journal that no commit ends: one that ends between a message and the plans of its
    /// calls.
    pub fn check_end(&self) -> Result<(), IllegalEvent> {
        self.past.check_end(&self.state)
    }
}

/// The state after one more event, or why the event is impossible there.
///
/// Accepts every event that [`decide`](crate::decide) returns, those of a copied prefix, and events
/// of unknown types. What an earlier event rules out, and the state does not show, is left to
/// [`CheckedFold`].
pub fn checked_fold(mut state: State, event: &Event) -> Result<State, IllegalEvent> {
    check(&state, event)?;
    evolve(&mut state, event);
    Ok(state)
}

fn check(state: &State, event: &Event) -> Result<(), IllegalEvent> {
    if event.seq != state.seq.next() {
        return Err(IllegalEvent::Gap { last: state.seq, found: event.seq });
    }
    match (&event.data, state.exists()) {
        (EventData::Created(_), true) => return Err(IllegalEvent::CreatedTwice),
        (EventData::Created(_), false) => return Ok(()),
        (_, false) => return Err(IllegalEvent::NotCreated),
        (_, true) => {}
    }
    turn::check_turn_id(state, event)?;
    match &event.data {
        EventData::Created(_)
        | EventData::Updated(_)
        | EventData::Operated(_)
        | EventData::StateChanged(_)
        | EventData::Unknown(_) => Ok(()),
        EventData::UserMsg(_)
        | EventData::TurnStarted(_)
        | EventData::AssistantMsg(_)
        | EventData::MessageRefused(_)
        | EventData::RepairRequested(_)
        | EventData::ContextAdded(_)
        | EventData::Steered(_)
        | EventData::TurnWithdrawn(_)
        | EventData::TurnEnded(_) => turn::check(state, event),
        EventData::ToolCall(_)
        | EventData::Suspension(_)
        | EventData::Voted(_)
        | EventData::Resolution(_)
        | EventData::ToolStarted(_)
        | EventData::ToolAttemptFailed(_)
        | EventData::InputRequired(_)
        | EventData::ToolResult(_)
        | EventData::DispatchStarted(_)
        | EventData::DispatchFinished(_)
        | EventData::PhaseChanged(_)
        | EventData::TodosChanged(_)
        | EventData::ChildStarted(_)
        | EventData::ChildEnded(_)
        | EventData::ToolQueued(_)
        | EventData::ToolLeased(_)
        | EventData::CallbackAwaited(_)
        | EventData::DecisionRemembered(_)
        | EventData::SuspensionExpiring(_)
        | EventData::SuspensionExtended(_)
        | EventData::SuspensionEscalated(_) => call::check(state, event),
        EventData::MessageScheduled(scheduled) => {
            let is_known = state.scheduled.has(&scheduled.scheduled_id);
            ensure(!is_known, || IllegalEvent::NotScheduled)
        }
        EventData::ScheduleEnded(ended) => {
            let is_known = state.scheduled.has(&ended.scheduled_id);
            ensure(is_known, || IllegalEvent::NotScheduled)
        }
        EventData::ChildReleased(released) => {
            let child = &released.conversation_id;
            ensure(state.orphans.contains_key(child), || IllegalEvent::UnknownChild(child.clone()))
        }
        EventData::ParentNotified(notified) => {
            let is_owed =
                state.owed_report.as_ref().is_some_and(|report| report.turn == notified.turn_id);
            // The prefix of a child reports to the parent of the original.
            ensure(is_owed || state.forking.is_some(), || IllegalEvent::NoOwedReport)
        }
        EventData::Abandoned {} => ensure(!state.abandoned, || IllegalEvent::AbandonedTwice),
        EventData::DecisionPublished(published) => {
            let id = &published.decision_id;
            let is_known = state.unpublished.contains_key(id);
            ensure(is_known, || IllegalEvent::UnknownDecision(id.clone()))
        }
        EventData::DecisionRevoked(revoked) => {
            let id = &revoked.decision_id;
            let is_known = state.decisions.contains_key(id) && !state.unpublished.contains_key(id);
            ensure(is_known, || IllegalEvent::UnknownDecision(id.clone()))
        }
        EventData::Forked(_) => ensure(state.forking.is_some(), || IllegalEvent::NotForking),
        EventData::ContextReduced(reduced) => {
            let grows = reduced.marks.includes(&state.context.marks);
            ensure(grows, || IllegalEvent::ContextShrinks)
        }
        EventData::Summarized(summarized) => {
            let covered = state.context.summary.map_or(Seq::ZERO, |summary| summary.upto);
            let grows = covered < summarized.upto && summarized.upto < event.seq;
            ensure(grows, || IllegalEvent::ContextShrinks)
        }
        EventData::SummaryFailed(_) => Ok(()),
        EventData::Rewound(rewound) => {
            let is_idle = state.turn.is_none() && state.queue.is_empty();
            let is_past = Seq::ZERO < rewound.to_seq && rewound.to_seq <= state.seq;
            ensure(is_idle && is_past, || IllegalEvent::NotAtRest)
        }
        EventData::WorkspaceOpened(opened) => {
            let is_new = !state.storages.contains_key(&opened.root);
            ensure(is_new, || IllegalEvent::WorkspaceOpen(opened.root.clone()))
        }
    }
}

fn ensure(holds: bool, error: impl FnOnce() -> IllegalEvent) -> Result<(), IllegalEvent> {
    if holds { Ok(()) } else { Err(error()) }
}
