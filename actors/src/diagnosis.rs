//! Why a conversation does not move: what it waits for, since when, who can move it, what is next.

use abide_conversation::event::{Executor, SuspensionKind};
use abide_conversation::state::{Call, CallPhase, OpenSuspension, Turn};
use abide_conversation::{ConversationId, State, Timestamp, wanted};
use serde::Serialize;

use crate::backoff::Backoff;
use crate::request::Inspection;

/// The answer to an operator's "why".
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    pub waits_for: String,
    pub since: Option<Timestamp>,
    pub who_can_move_it: String,
    pub next: String,
    pub next_at: Option<Timestamp>,
    /// What an operator can do about it, the mildest first: requests to the operators' port.
    pub operators_can: Vec<String>,
}

/// Explains a conversation; `live` is what its actor says, if there is one.
pub fn why(id: &ConversationId, state: &State, live: Option<&Inspection>) -> Diagnosis {
    let verbs = Verbs(id);
    if let Some(pause) = live.and_then(|live| live.pauses.iter().min_by_key(|pause| pause.until)) {
        return paused(pause, &verbs);
    }
    let Some(turn) = &state.turn else { return between_turns(state, live, &verbs) };
    let suspended = turn.calls.iter().filter_map(|call| Some((call, call.open_suspension()?)));
    if let Some((call, waiting)) = suspended.min_by_key(|(_, waiting)| waiting.expires_at) {
        return outside(call, waiting, &verbs);
    }
    if live.is_none() && !wanted(state).is_empty() {
        return nowhere(state, &verbs);
    }
    match turn.calls.iter().find_map(|call| inside(call, &verbs)) {
        Some(why) => why,
        None => thinking(turn, live.is_some_and(|live| live.streaming.is_some()), &verbs),
    }
}

/// Explains a conversation that was given up.
pub fn quarantined(id: &ConversationId, reason: &str, since: Timestamp) -> Diagnosis {
    let verbs = Verbs(id);
    Diagnosis {
        waits_for: format!("an operator: its actor keeps crashing: {reason}"),
        since: Some(since),
        who_can_move_it: format!("an operator: {}", verbs.of("retry")),
        next: "nothing, until then".to_owned(),
        next_at: None,
        operators_can: ["retry", "move", "release"].map(|verb| verbs.of(verb)).into(),
    }
}

/// The requests of operators about one conversation.
struct Verbs<'a>(&'a ConversationId);

impl Verbs<'_> {
    fn of(&self, verb: &str) -> String {
        format!("POST /admin/actors/{}/{verb}", self.0)
    }

    fn fail_or_cancel(&self, call: &Call) -> Vec<String> {
        vec![self.of(&format!("calls/{}/fail", call.id)), self.of("cancel")]
    }
}

fn paused(pause: &Backoff, verbs: &Verbs<'_>) -> Diagnosis {
    Diagnosis {
        waits_for: format!("another attempt at {}: {}", pause.activity, pause.reason),
        since: None,
        who_can_move_it: format!("an operator: {}", verbs.of("retry")),
        next: "it is tried again".to_owned(),
        next_at: Some(pause.until),
        operators_can: vec![verbs.of("retry"), verbs.of("cancel")],
    }
}

fn between_turns(state: &State, live: Option<&Inspection>, verbs: &Verbs<'_>) -> Diagnosis {
    if wanted(state).is_empty() {
        return plain("a message", "a client: POST …/messages", "it leaves memory");
    }
    let Some(live) = live else { return nowhere(state, verbs) };
    match state.queue.is_empty() {
        false => plain("the next queued turn to start", "nobody needs to", "the turn starts"),
        true => plain(&live.running.join(", "), "nobody needs to", "it comes to its end"),
    }
}

/// Something is to run, and no node runs it now.
fn nowhere(state: &State, verbs: &Verbs<'_>) -> Diagnosis {
    let wanted: Vec<String> = wanted(state).iter().map(ToString::to_string).collect();
    let waits_for = format!("a node that takes it up, for {}", wanted.join(", "));
    let who = format!("an operator: {}", verbs.of("retry"));
    let operators_can = vec![verbs.of("retry")];
    Diagnosis { operators_can, ..plain(&waits_for, &who, "a node finds it within seconds") }
}

fn outside(call: &Call, waiting: &OpenSuspension, verbs: &Verbs<'_>) -> Diagnosis {
    let (what, who) = match waiting.kind {
        SuspensionKind::Approval => ("an approval of", "an approver"),
        SuspensionKind::Elicitation => ("an answer to", "a person"),
        SuspensionKind::ClientExec => ("a page to execute", "a connected page"),
    };
    Diagnosis {
        waits_for: format!("{what} {} ({})", call.tool, call.id),
        since: Some(waiting.since),
        who_can_move_it: format!("{who}: POST …/calls/{}/resolution", call.id),
        next: "the call expires".to_owned(),
        next_at: Some(waiting.expires_at),
        operators_can: verbs.fail_or_cancel(call),
    }
}

fn inside(call: &Call, verbs: &Verbs<'_>) -> Option<Diagnosis> {
    match (&call.phase, &call.child, call.executor) {
        (CallPhase::Delegated { since, expires_at, .. }, Some(child), _) => Some(Diagnosis {
            waits_for: format!("the conversation {child}, for {} ({})", call.tool, call.id),
            since: Some(*since),
            who_can_move_it: format!("whoever can move {child}; POST …/cancel ends the turn"),
            next: "it ends, or runs out of time".to_owned(),
            next_at: Some(*expires_at),
            operators_can: verbs.fail_or_cancel(call),
        }),
        (CallPhase::Running { attempt, since }, _, Executor::Server) => Some(Diagnosis {
            waits_for: format!("attempt {attempt} of {} ({})", call.tool, call.id),
            since: Some(*since),
            who_can_move_it: "the tool; POST …/cancel ends the turn".to_owned(),
            next: "the tool returns, or runs past its run_timeout".to_owned(),
            next_at: None,
            operators_can: verbs.fail_or_cancel(call),
        }),
        _ => None,
    }
}

fn thinking(turn: &Turn, streams: bool, verbs: &Verbs<'_>) -> Diagnosis {
    let model = if streams { "the model to finish its message" } else { "the model to answer" };
    Diagnosis {
        waits_for: format!("{model} (step {})", turn.next_step()),
        since: (turn.step == 0).then_some(turn.started_at),
        who_can_move_it: "the model; POST …/cancel ends the turn".to_owned(),
        next: "the reply is journalled, or the turn fails".to_owned(),
        next_at: None,
        operators_can: ["cancel", "kill"].map(|verb| verbs.of(verb)).into(),
    }
}

fn plain(waits_for: &str, who: &str, next: &str) -> Diagnosis {
    Diagnosis {
        waits_for: waits_for.to_owned(),
        since: None,
        who_can_move_it: who.to_owned(),
        next: next.to_owned(),
        next_at: None,
        operators_can: Vec::new(),
    }
}
