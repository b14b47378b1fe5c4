//! Which activities a state calls for.

use std::collections::BTreeSet;

use crate::activity::Activity;
use crate::event::{Executor, SuspensionKind};
use crate::ids::DecisionId;
use crate::state::{Call, CallPhase, State};

/// What must be running now.
pub fn wanted(state: &State) -> BTreeSet<Activity> {
    if state.forking.is_some() {
        return [Activity::Copy { after: state.seq }].into();
    }
    let mut wanted: BTreeSet<Activity> = state
        .dispatches
        .iter()
        .filter(|(_, run)| run.delegated.is_none())
        .map(|(call, run)| Activity::Tool { call: call.clone(), attempt: run.attempt })
        .collect();
    // A call that its child has is nobody's work here.
    wanted.extend(state.orphans.keys().map(|child| Activity::Release { child: child.clone() }));
    wanted.extend(state.due.iter().map(|due| Activity::Tell { turn: due.turn.clone() }));
    let keep = |decision: &DecisionId| Activity::Keep { decision: decision.clone() };
    wanted.extend(state.unkept.keys().map(keep));
    wanted.extend(state.context.summarize.map(|upto| Activity::Summarize { upto }));
    match (&state.turn, state.queue.front()) {
        (None, Some(next)) => {
            wanted.insert(Activity::Start { turn: next.id.clone() });
        }
        (Some(turn), _) if turn.settled() => {
            wanted.insert(Activity::Model { turn: turn.id.clone(), step: turn.next_step() });
        }
        (Some(turn), _) => wanted.extend(of_calls(&turn.calls)),
        (None, None) => {}
    }
    wanted
}

/// Of the calls in one lane that could run, the first does.
fn of_calls(calls: &[Call]) -> impl Iterator<Item = Activity> {
    let runs = |call: &Call| matches!(call.phase, CallPhase::Running { .. });
    let first = move |(at, call): &(usize, &Call)| {
        let waits = |before: &Call| before.lane == call.lane && runs(before);
        call.lane.is_none() || !calls[..*at].iter().any(waits)
    };
    calls.iter().enumerate().filter(first).filter_map(|(_, call)| of_call(call))
}

fn of_call(call: &Call) -> Option<Activity> {
    match &call.phase {
        CallPhase::Running { attempt, .. } if call.executor == Executor::Server => {
            Some(Activity::Tool { call: call.id.clone(), attempt: *attempt })
        }
        CallPhase::Suspended(waiting) if waiting.kind == SuspensionKind::ClientExec => {
            Some(Activity::Page {
                call: call.id.clone(),
                suspension: waiting.suspension,
                grace_ms: call.grace_ms?,
            })
        }
        CallPhase::Requested
        | CallPhase::Suspended(_)
        | CallPhase::Approved
        | CallPhase::Running { .. }
        | CallPhase::Delegated { .. }
        | CallPhase::Done => None,
    }
}
