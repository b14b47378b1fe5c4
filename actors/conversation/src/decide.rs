//! What a command comes to: the events to journal, or a refusal.

mod abandon;
mod cancel;
mod child;
mod create;
mod dispatch;
mod draft;
mod fail_call;
mod fork;
mod hooked;
mod model_failed;
mod model_replied;
mod page_missing;
mod reduced;
mod remembered;
mod resolve;
mod revive;
mod send;
mod settle;
mod start;
#[cfg(test)]
mod tests;
mod tool_returned;
mod wake;
mod workspace_opened;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::command::{Action, Command};
use crate::event::Event;
use crate::state::State;
use draft::Draft;

/// Why a command was refused. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Rejection {
    #[error("the conversation does not exist")]
    NotFound,
    #[error("the conversation exists")]
    ConversationExists,
    #[error("the conversation belongs to agent {0}")]
    AgentMismatch(String),
    #[error("the conversation is still being copied from another")]
    Forking,
    #[error("a turn is in flight")]
    TurnInFlight,
    #[error("too many messages are queued, or dispatches running")]
    QueueFull,
    #[error("{0}")]
    CallNotOpen(Cow<'static, str>),
    #[error("the decision does not exist")]
    DecisionNotFound,
    /// A report of something that is no longer wanted.
    #[error("stale")]
    Stale,
}

/// What a command comes to.
#[derive(Debug)]
pub struct Decision {
    /// To be appended, in order; none if there is nothing to do.
    pub events: Vec<Event>,
    /// What they come to: the state, with each of them folded in.
    pub state: State,
}

/// Judges a command. Returns the events to append.
pub fn decide(state: &State, command: Command) -> Result<Vec<Event>, Rejection> {
    decided(state, command).map(|decided| decided.events)
}

/// The same, with the state that follows.
pub fn decided(state: &State, command: Command) -> Result<Decision, Rejection> {
    let mut draft = Draft::new(state, command.at);
    let creates = |action: &Action| {
        matches!(
            action,
            Action::Create(_) | Action::Send(_) | Action::Spawn(_) | Action::Abandon(_)
        )
    };
    if !state.exists() && !creates(&command.action) {
        return Err(Rejection::NotFound);
    }
    if draft.state.forking.is_some() {
        return match command.action {
            Action::Copied(copied) => {
                fork::copied(&mut draft, copied)?;
                Ok(draft.decided())
            }
            Action::Revive | Action::Wake => Ok(draft.decided()),
            Action::Create(_) => Err(Rejection::ConversationExists),
            _ => Err(Rejection::Forking),
        };
    }
    match command.action {
        Action::Copied(_) => return Err(Rejection::Stale),
        Action::Create(create) => create::create(&mut draft, create)?,
        Action::Send(send) => send::send(&mut draft, send)?,
        Action::Start(start) => start::start(&mut draft, start)?,
        Action::ModelReplied(reply) => model_replied::model_replied(&mut draft, reply)?,
        Action::ModelFailed(failure) => model_failed::model_failed(&mut draft, failure)?,
        Action::ToolReturned(returned) => tool_returned::tool_returned(&mut draft, returned)?,
        Action::Resolve(resolve) => resolve::resolve(&mut draft, resolve)?,
        Action::PageMissing(missing) => page_missing::page_missing(&mut draft, missing)?,
        Action::FailCall(fail) => fail_call::fail_call(&mut draft, fail)?,
        Action::Wake => wake::wake(&mut draft),
        Action::Cancel(cancel) => cancel::cancel(&mut draft, cancel.partial),
        Action::Revive => revive::revive(&mut draft),
        Action::Dispatch(dispatch) => dispatch::dispatch(&mut draft, dispatch)?,
        Action::Spawn(spawn) => child::spawn(&mut draft, spawn)?,
        Action::ChildStarted(started) => child::started(&mut draft, started)?,
        Action::ChildEnded(ended) => child::ended(&mut draft, ended)?,
        Action::ChildReleased { child, usage } => child::released(&mut draft, child, usage)?,
        Action::Told(turn) => child::told(&mut draft, turn)?,
        Action::WorkspaceOpened { root, storage } => {
            workspace_opened::workspace_opened(&mut draft, root, storage)?;
        }
        Action::ContextAdded { turn, step, added } => {
            hooked::context_added(&mut draft, &turn, step, added)?;
        }
        Action::Halt { turn, step, reason } => hooked::halt(&mut draft, &turn, step, reason)?,
        Action::ContextReduced { turn, reduced } => {
            reduced::context_reduced(&mut draft, &turn, reduced)?;
        }
        Action::Summarized { after, summarized } => {
            reduced::summarized(&mut draft, after, summarized)?;
        }
        Action::SummaryFailed { reason } => reduced::summary_failed(&mut draft, reason)?,
        Action::DecisionKept(id) => remembered::kept(&mut draft, id)?,
        Action::RevokeDecision(id) => remembered::revoke(&mut draft, id)?,
        Action::Abandon(create) => abandon::abandon(&mut draft, create)?,
    }
    Ok(draft.decided())
}
