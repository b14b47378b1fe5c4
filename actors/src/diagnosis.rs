//! Why a conversation does not proceed: what it waits for, since when, who can act, what is next.

use abide_conversation::event::{CallKind, SuspensionKind};
use abide_conversation::state::{
    Call, CallPhase, ExternalRun, ExternalRunner, OpenSuspension, QueueRun, Turn,
};
use abide_conversation::{ConversationId, Scoped, State, Step, Timestamp, wanted};
use serde::Serialize;

use crate::backoff::Backoff;
use crate::limit_waits::LimitWait;
use crate::request::Inspection;

/// The answer to an operator's `why` request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    pub waits_for: String,
    pub since: Option<Timestamp>,
    pub who_can_move_it: String,
    pub next: String,
    pub next_at: Option<Timestamp>,
    /// What an operator can do about it, as requests to the operators' port, the mildest first.
    pub operators_can: Vec<String>,
}

/// Explains a conversation. `live` comes from its actor, if it has one.
pub fn diagnose(
    id: &Scoped<ConversationId>,
    state: &State,
    live: Option<&Inspection>,
) -> Diagnosis {
    let requests = OperatorRequests(id);
    let backoffs = live.into_iter().flat_map(|live| &live.backoffs);
    if let Some(backoff) = backoffs.min_by_key(|backoff| backoff.until) {
        return backing_off(backoff, &requests);
    }
    let Some(turn) = &state.turn else { return between_turns(state, live, &requests) };
    let suspended = turn.calls.iter().filter_map(|call| Some((call, call.open_suspension()?)));
    if let Some((call, waiting)) = suspended.min_by_key(|(_, waiting)| waiting.expires_at) {
        return suspended_call(call, waiting, &requests);
    }
    if live.is_none() && !wanted(state).is_empty() {
        return not_live(state, &requests);
    }
    let waits = live.into_iter().flat_map(|live| &live.limit_waits);
    if let Some((id, wait)) = waits.min_by_key(|(_, wait)| wait.since)
        && let Some(call) = state.call(id)
    {
        return waiting_for_place(call, wait, &requests);
    }
    match turn.calls.iter().find_map(|call| running_call(call, &requests)) {
        Some(diagnosis) => diagnosis,
        None => {
            let is_streaming = live.is_some_and(|live| live.streaming.is_some());
            model_call(turn, is_streaming, &requests)
        }
    }
}

/// Explains a conversation that is quarantined.
pub fn quarantined(id: &Scoped<ConversationId>, reason: &str, since: Timestamp) -> Diagnosis {
    let requests = OperatorRequests(id);
    Diagnosis {
        waits_for: format!("an operator: its actor keeps crashing: {reason}"),
        since: Some(since),
        who_can_move_it: format!("an operator: {}", requests.path("retry")),
        next: "nothing, until then".to_owned(),
        next_at: None,
        operators_can: ["retry", "move", "release"].map(|verb| requests.path(verb)).into(),
    }
}

/// The requests of operators about one conversation.
struct OperatorRequests<'a>(&'a Scoped<ConversationId>);

impl OperatorRequests<'_> {
    fn path(&self, verb: &str) -> String {
        format!("POST /admin/actors/{}/{verb}", self.0.as_str().replace('/', "%2F"))
    }

    fn fail_or_cancel(&self, call: &Call) -> Vec<String> {
        vec![self.path(&format!("calls/{}/fail", call.id)), self.path("cancel")]
    }
}

fn backing_off(backoff: &Backoff, requests: &OperatorRequests<'_>) -> Diagnosis {
    Diagnosis {
        waits_for: format!("another attempt at {}: {}", backoff.activity, backoff.reason),
        since: None,
        who_can_move_it: format!("an operator: {}", requests.path("retry")),
        next: "the next attempt".to_owned(),
        next_at: Some(backoff.until),
        operators_can: vec![requests.path("retry"), requests.path("cancel")],
    }
}

fn between_turns(
    state: &State,
    live: Option<&Inspection>,
    requests: &OperatorRequests<'_>,
) -> Diagnosis {
    if wanted(state).is_empty() {
        return plain("a message", "a client: POST …/messages", "its actor leaves memory");
    }
    let Some(live) = live else { return not_live(state, requests) };
    if state.queue.is_empty() {
        plain(&live.running.join(", "), "nobody needs to", "it finishes")
    } else {
        plain("the next queued turn to start", "nobody needs to", "the turn starts")
    }
}

/// The state calls for an activity, and no node runs it.
fn not_live(state: &State, requests: &OperatorRequests<'_>) -> Diagnosis {
    let wanted: Vec<String> = wanted(state).iter().map(ToString::to_string).collect();
    let waits_for = format!("a node that resumes it, for {}", wanted.join(", "));
    let who = format!("an operator: {}", requests.path("retry"));
    let operators_can = vec![requests.path("retry")];
    Diagnosis { operators_can, ..plain(&waits_for, &who, "a node resumes it within seconds") }
}

fn suspended_call(
    call: &Call,
    waiting: &OpenSuspension,
    requests: &OperatorRequests<'_>,
) -> Diagnosis {
    let (what, who) = match waiting.kind {
        SuspensionKind::Approval => ("an approval of", "an approver"),
        SuspensionKind::Elicitation => ("an answer to", "a person"),
        SuspensionKind::ClientExec => ("a client to execute", "a connected client"),
        SuspensionKind::InDoubt => ("word of whether it ran:", "an approver"),
    };
    Diagnosis {
        waits_for: format!("{what} {} ({})", call.tool, call.id),
        since: Some(waiting.since),
        who_can_move_it: format!("{who}: POST …/calls/{}/resolution", call.id),
        next: "the call expires".to_owned(),
        next_at: Some(waiting.expires_at),
        operators_can: requests.fail_or_cancel(call),
    }
}

/// The limits of the call's tool are reached.
fn waiting_for_place(call: &Call, wait: &LimitWait, requests: &OperatorRequests<'_>) -> Diagnosis {
    Diagnosis {
        waits_for: format!("a place of {} ({}): {}", call.tool, call.id, wait.limits),
        since: Some(wait.since),
        who_can_move_it: "the calls before it; POST …/cancel ends the turn".to_owned(),
        next: "it runs when those before it have ended".to_owned(),
        next_at: None,
        operators_can: requests.fail_or_cancel(call),
    }
}

fn running_call(call: &Call, requests: &OperatorRequests<'_>) -> Option<Diagnosis> {
    match (&call.phase, &call.kind) {
        (
            CallPhase::Delegated { since, expires_at, .. },
            CallKind::Server { child: Some(child), .. },
        ) => Some(Diagnosis {
            waits_for: format!("the conversation {child}, for {} ({})", call.tool, call.id),
            since: Some(*since),
            who_can_move_it: format!("whoever can move {child}; POST …/cancel ends the turn"),
            next: "it ends, or runs out of time".to_owned(),
            next_at: Some(*expires_at),
            operators_can: requests.fail_or_cancel(call),
        }),
        (CallPhase::AwaitingRetry { attempt, since, retry_at, error }, _) => Some(Diagnosis {
            waits_for: format!(
                "another attempt at {} ({}) after attempt {attempt}: {error}",
                call.tool, call.id
            ),
            since: Some(*since),
            who_can_move_it: format!("an operator: {}", requests.path("retry")),
            next: "the next attempt".to_owned(),
            next_at: Some(*retry_at),
            operators_can: [vec![requests.path("retry")], requests.fail_or_cancel(call)].concat(),
        }),
        (CallPhase::Running { attempt, since }, CallKind::Server { .. }) => Some(Diagnosis {
            waits_for: format!("attempt {attempt} of {} ({})", call.tool, call.id),
            since: Some(*since),
            who_can_move_it: "the tool; POST …/cancel ends the turn".to_owned(),
            next: "the tool returns, or runs past its run_timeout".to_owned(),
            next_at: None,
            operators_can: requests.fail_or_cancel(call),
        }),
        (CallPhase::External(run), _) => Some(external_call(call, run, requests)),
        _ => None,
    }
}

/// A program outside has the call, or is to take it.
fn external_call(call: &Call, run: &ExternalRun, requests: &OperatorRequests<'_>) -> Diagnosis {
    let named = format!("{} ({})", call.tool, call.id);
    let (waits_for, who) = match &run.by {
        ExternalRunner::Callback => {
            (format!("the callback of {named}"), "the tool: POST /v1/callbacks/TOKEN".to_owned())
        }
        ExternalRunner::Queue(QueueRun { queue, lease: None, .. }) => (
            format!("a worker of queue {queue}, for {named}"),
            format!("a worker: POST /v1/queues/{queue}/lease"),
        ),
        ExternalRunner::Queue(QueueRun { queue, lease: Some(lease), .. }) => (
            format!("the worker {} of queue {queue}, for {named}", lease.worker),
            "the worker: POST /v1/leases/LEASE/complete".to_owned(),
        ),
    };
    let next = match run.lease() {
        Some(lease) if lease.until < run.expires_at => "the worker's lease runs out",
        Some(_) | None => "the call expires",
    };
    Diagnosis {
        waits_for,
        since: Some(run.since),
        who_can_move_it: who,
        next: next.to_owned(),
        next_at: Some(run.deadline()),
        operators_can: requests.fail_or_cancel(call),
    }
}

fn model_call(turn: &Turn, is_streaming: bool, requests: &OperatorRequests<'_>) -> Diagnosis {
    let model =
        if is_streaming { "the model to finish its message" } else { "the model to answer" };
    Diagnosis {
        waits_for: format!("{model} (step {})", turn.next_step()),
        since: (turn.step == Step::ZERO).then_some(turn.started_at),
        who_can_move_it: "the model; POST …/cancel ends the turn".to_owned(),
        next: "the reply is journalled, or the turn fails".to_owned(),
        next_at: None,
        operators_can: ["cancel", "kill"].map(|verb| requests.path(verb)).into(),
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
