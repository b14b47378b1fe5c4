//! Why a conversation does not move: what it waits for, since when, who can move it, what is next.

use abide_conversation::State;
use abide_conversation::Timestamp;
use abide_conversation::event::{Executor, Kind};
use abide_conversation::state::Phase;
use serde::Serialize;

/// The answer to an operator's "why".
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Why {
    pub waits_for: String,
    pub since: Option<Timestamp>,
    pub who_can_move_it: String,
    pub next: String,
    pub next_at: Option<Timestamp>,
}

/// Explains a state; `streams` when the model is speaking now.
pub fn why(state: &State, streams: bool) -> Why {
    let Some(turn) = &state.turn else {
        return match state.queue.is_empty() {
            true => plain("a message", "a client: POST …/messages", "it leaves memory"),
            false => plain("the next queued turn to start", "nobody needs to", "the turn starts"),
        };
    };
    let suspended = turn.calls.iter().filter_map(|call| Some((call, call.waiting()?)));
    if let Some((call, waiting)) = suspended.min_by_key(|(_, waiting)| waiting.expires_at) {
        let (what, who) = match waiting.kind {
            Kind::Approval => ("an approval of", "an approver"),
            Kind::Elicitation => ("an answer to", "a person"),
            Kind::ClientExec => ("a page to execute", "a connected page"),
        };
        return Why {
            waits_for: format!("{what} {} ({})", call.tool, call.id),
            since: Some(waiting.since),
            who_can_move_it: format!("{who}: POST …/calls/{}/resolution", call.id),
            next: "the call expires".to_owned(),
            next_at: Some(waiting.expires_at),
        };
    }
    for call in &turn.calls {
        if let (Phase::Delegated { since, expires_at, .. }, Some(child)) =
            (&call.phase, &call.child)
        {
            return Why {
                waits_for: format!("the conversation {child}, for {} ({})", call.tool, call.id),
                since: Some(*since),
                who_can_move_it: format!("whoever can move {child}; POST …/cancel ends the turn"),
                next: "it ends, or runs out of time".to_owned(),
                next_at: Some(*expires_at),
            };
        }
        if let (Phase::Running { attempt, since }, Executor::Server) = (&call.phase, call.executor)
        {
            return Why {
                waits_for: format!("attempt {attempt} of {} ({})", call.tool, call.id),
                since: Some(*since),
                who_can_move_it: "the tool; POST …/cancel ends the turn".to_owned(),
                next: "the tool returns, or runs past its run_timeout".to_owned(),
                next_at: None,
            };
        }
    }
    let model = if streams { "the model to finish its message" } else { "the model to answer" };
    Why {
        waits_for: format!("{model} (step {})", turn.step + 1),
        since: (turn.step == 0).then_some(turn.started_at),
        who_can_move_it: "the model; POST …/cancel ends the turn".to_owned(),
        next: "the reply is journalled, or the turn fails".to_owned(),
        next_at: None,
    }
}

fn plain(waits_for: &str, who: &str, next: &str) -> Why {
    Why {
        waits_for: waits_for.to_owned(),
        since: None,
        who_can_move_it: who.to_owned(),
        next: next.to_owned(),
        next_at: None,
    }
}
