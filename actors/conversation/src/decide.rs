//! Decides a command: the events to append to the journal, or a rejection.

mod abandon;
mod attempt_failed;
mod cancel;
mod child;
mod client_missing;
mod close;
mod context;
mod create;
mod decisions;
mod dispatch;
mod draft;
mod expiry;
mod extend;
mod external;
mod fail_call;
mod fork;
mod hooks;
mod key_values;
mod model_failed;
mod model_replied;
mod resolve;
mod revive;
mod rewind;
mod schedule;
mod send;
mod settle;
mod start;
mod steer;
#[cfg(test)]
mod tests;
mod tool_returned;
mod update;
mod vote;
mod waiting_calls;
mod wake;
mod withdraw;
mod workspace_opened;

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::approval::VoteRefusal;
use crate::command::{Action, Command};
use crate::event::{Event, EventData};
use crate::key_value::StateRejection;
use crate::state::State;
pub(crate) use dispatch::MAX_RUNNING_DISPATCHES;
use draft::Draft;
pub(crate) use expiry::check_end;
pub use external::check_proof;
pub use resolve::check_resolution;
pub(crate) use schedule::{MAX_SCHEDULED_MESSAGES, MAX_WAITING_MESSAGES};

/// Why a command was rejected. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Rejection {
    #[error("the conversation does not exist")]
    NotFound,
    #[error("the conversation already exists")]
    ConversationExists,
    #[error("the conversation belongs to agent {0}")]
    AgentMismatch(String),
    #[error("the prefix of the fork is still being copied")]
    Forking,
    #[error("a turn is in progress")]
    TurnInFlight,
    #[error("too many messages are queued or too many dispatches are running")]
    QueueFull,
    #[error("{0}")]
    CallNotOpen(Cow<'static, str>),
    #[error("the vote does not count: {}", .0.as_str())]
    VoteRefused(VoteRefusal),
    /// A worker that does not have the call, or not any more.
    #[error("{0}")]
    LeaseLost(Cow<'static, str>),
    #[error("the decision does not exist")]
    DecisionNotFound,
    #[error("the scheduled message does not exist")]
    ScheduledNotFound,
    #[error("the scheduled message was delivered already")]
    AlreadyDelivered,
    #[error("the turn does not wait in the queue")]
    TurnNotFound,
    #[error("{field}: {rule}")]
    Invalid { field: Cow<'static, str>, rule: Cow<'static, str> },
    /// A change of the key-value state.
    #[error("{0}")]
    State(StateRejection),
    /// The report of an activity that is no longer wanted, or an action that was already done.
    #[error("stale")]
    Stale,
}

/// The result of an accepted command.
#[derive(Debug)]
pub struct Transition {
    /// To be appended in this order; empty if there is nothing to do.
    pub events: Vec<Event>,
    /// The state after these events.
    pub state: Arc<State>,
}

/// Decides a command, and returns the events to append.
pub fn decide(state: &State, command: Command) -> Result<Vec<Event>, Rejection> {
    decide_and_fold(&Arc::new(state.clone()), command).map(|transition| transition.events)
}

/// Decides a command, and returns the events to append together with the state after them.
pub fn decide_and_fold(state: &Arc<State>, command: Command) -> Result<Transition, Rejection> {
    let mut draft = Draft::new(state, command.at);
    let may_create = matches!(
        command.action,
        Action::Create(_) | Action::Send(_) | Action::Spawn(_) | Action::Schedule(_)
    );
    if !state.exists() && !may_create {
        return Err(Rejection::NotFound);
    }
    if draft.state.forking.is_some() {
        return match command.action {
            Action::EventsCopied(copied) => {
                fork::events_copied(&mut draft, copied)?;
                Ok(draft.into_transition())
            }
            Action::Revive | Action::ReviveAfter(_) | Action::Wake | Action::WakeToInterrupt(_) => {
                Ok(draft.into_transition())
            }
            Action::Create(_) => Err(Rejection::ConversationExists),
            _ => Err(Rejection::Forking),
        };
    }
    match command.action {
        Action::EventsCopied(_) | Action::OriginalGone => return Err(Rejection::Stale),
        Action::Create(create) => create::create(&mut draft, create)?,
        Action::Send(send) => send::send(&mut draft, send)?,
        Action::Start(start) => start::start(&mut draft, start)?,
        Action::ModelReplied(reply) => model_replied::model_replied(&mut draft, reply)?,
        Action::ModelFailed(failure) => model_failed::model_failed(&mut draft, failure)?,
        Action::ToolReturned(returned) => tool_returned::tool_returned(&mut draft, returned)?,
        Action::AttemptFailed(failed) => attempt_failed::attempt_failed(&mut draft, failed)?,
        Action::AttemptNow => attempt_failed::attempt_now(&mut draft),
        Action::ConnectionBroke { call, attempt } => {
            attempt_failed::connection_broke(&mut draft, &call, attempt)?;
        }
        Action::ChangeState(change) => key_values::change_state(&mut draft, change)?,
        Action::Resolve(resolve) => resolve::resolve(&mut draft, resolve)?,
        Action::ClientMissing(missing) => client_missing::client_missing(&mut draft, missing)?,
        Action::FailCall(fail) => fail_call::fail_call(&mut draft, fail)?,
        Action::Wake => wake::wake(&mut draft, None),
        Action::WakeToInterrupt(cancel) => wake::wake(&mut draft, cancel.partial),
        Action::Cancel(cancel) => cancel::cancel(&mut draft, cancel.partial),
        Action::Revive => revive::revive(&mut draft, None),
        Action::ReviveAfter(node) => revive::revive(&mut draft, Some(&node)),
        Action::Dispatch(dispatch) => dispatch::dispatch(&mut draft, dispatch)?,
        Action::Spawn(spawn) => child::spawn(&mut draft, spawn)?,
        Action::ChildStarted(started) => child::child_started(&mut draft, started)?,
        Action::ChildEnded(ended) => child::child_ended(&mut draft, ended)?,
        Action::ChildReleased { child, usage } => child::child_released(&mut draft, child, usage)?,
        Action::ParentNotified(turn) => child::parent_notified(&mut draft, turn)?,
        Action::WorkspaceOpened { root, storage } => {
            workspace_opened::workspace_opened(&mut draft, root, storage)?;
        }
        Action::ContextAdded { turn, step, added } => {
            hooks::context_added(&mut draft, &turn, step, added)?;
        }
        Action::Halt { turn, step, reason } => hooks::halt(&mut draft, &turn, step, reason)?,
        Action::ContextReduced { turn, reduced } => {
            context::context_reduced(&mut draft, &turn, reduced)?;
        }
        Action::Summarized { after, summarized } => {
            context::summarized(&mut draft, after, summarized)?;
        }
        Action::SummaryFailed { reason } => context::summary_failed(&mut draft, reason)?,
        Action::DecisionPublished(id) => decisions::decision_published(&mut draft, id)?,
        Action::RevokeDecision(id) => decisions::revoke(&mut draft, id)?,
        Action::Update(change) => update::update(&mut draft, change)?,
        Action::Schedule(schedule) => schedule::schedule(&mut draft, schedule)?,
        Action::Unschedule(unschedule) => schedule::unschedule(&mut draft, unschedule)?,
        Action::Extend(extend) => extend::extend(&mut draft, extend)?,
        Action::Operate(operated) => draft.push_in(None, EventData::Operated(operated)),
        Action::External(action) => external::external(&mut draft, action)?,
        Action::Withdraw(withdraw) => withdraw::withdraw(&mut draft, withdraw)?,
        Action::Rewind(rewind) => rewind::rewind(&mut draft, rewind)?,
        Action::Regenerate(regenerate) => rewind::regenerate(&mut draft, *regenerate)?,
        Action::Abandon(create) => abandon::abandon(&mut draft, create.parent.as_deref())?,
    }
    Ok(draft.into_transition())
}
