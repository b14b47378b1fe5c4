//! The activities that a state wants.

use std::collections::BTreeSet;

use crate::activity::Activity;
use crate::event::{CallKind, Executor, SuspensionKind};
use crate::ids::DecisionId;
use crate::state::{Call, CallPhase, State};

/// The activities that must be running now.
pub fn wanted(state: &State) -> BTreeSet<Activity> {
    if state.forking.is_some() {
        return [Activity::CopyFork { after: state.seq }].into();
    }
    // A delegated call or dispatch wants nothing: its child carries on by itself. One that waits for
    // its next attempt is woken by the alarm.
    let mut wanted: BTreeSet<Activity> = state
        .dispatches
        .iter()
        .filter(|(_, run)| run.deadline().is_none())
        .map(|(call, run)| Activity::RunTool { call: call.clone(), attempt: run.attempt })
        .collect();
    wanted.extend(state.orphans.keys().map(|child| Activity::StopChild { child: child.clone() }));
    wanted.extend(
        state.owed_report.iter().map(|owed| Activity::NotifyParent { turn: owed.turn.clone() }),
    );
    let publish = |decision: &DecisionId| Activity::PublishDecision { decision: decision.clone() };
    wanted.extend(state.unpublished.keys().map(publish));
    wanted.extend(state.context.summarize_upto.map(|upto| Activity::Summarize { upto }));
    match (&state.turn, state.queue.front()) {
        (None, Some(next)) => {
            wanted.insert(Activity::StartTurn { turn: next.id.clone() });
        }
        (Some(turn), _) if turn.is_settled() => {
            wanted.insert(Activity::CallModel { turn: turn.id.clone(), step: turn.next_step() });
        }
        (Some(turn), _) => wanted.extend(call_activities(&turn.calls)),
        (None, None) => {}
    }
    wanted
}

/// The activities of the open calls. In each lane, only the first running call is carried out.
fn call_activities(calls: &[Call]) -> impl Iterator<Item = Activity> {
    let runs = |call: &Call| {
        matches!(call.phase, CallPhase::Running { .. } | CallPhase::AwaitingRetry { .. })
    };
    let is_first = move |(index, call): &(usize, &Call)| {
        let occupies = |before: &Call| before.kind.lane() == call.kind.lane() && runs(before);
        call.kind.lane().is_none() || !calls[..*index].iter().any(occupies)
    };
    calls.iter().enumerate().filter(is_first).filter_map(|(_, call)| call_activity(call))
}

fn call_activity(call: &Call) -> Option<Activity> {
    match &call.phase {
        CallPhase::Running { attempt, .. } if call.kind.executor() == Executor::Server => {
            Some(Activity::RunTool { call: call.id.clone(), attempt: *attempt })
        }
        CallPhase::Suspended(open) if open.kind == SuspensionKind::ClientExec => {
            let CallKind::Client { grace_ms: Some(grace_ms), .. } = call.kind else { return None };
            let (call, suspension) = (call.id.clone(), open.suspension);
            Some(Activity::AwaitClient { call, suspension, grace_ms })
        }
        CallPhase::Requested
        | CallPhase::Suspended(_)
        | CallPhase::Approved
        | CallPhase::Running { .. }
        | CallPhase::AwaitingRetry { .. }
        | CallPhase::Delegated { .. }
        | CallPhase::External(_)
        | CallPhase::Done => None,
    }
}
