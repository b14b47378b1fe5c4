//! Any journal, cut anywhere, settles with one result per call, and replays to the same state.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::strategy::ValueTree;

use super::journal_checker::JournalChecker;
use super::random_driver::{RandomRun, Roll, rolls};
use super::scenario::{cancel, kind};
use crate::command::Action;
use crate::state::{CallPhase, ConversationStatus};
use crate::{Activity, State, Timestamp, evolve, from_json, replay, wanted};

/// Cuts a journal, lets the rest be finished, and checks the whole journal.
fn assert_settles(run: &RandomRun, cut: usize, state: State, roll: Roll) {
    let mut rest = RandomRun { state, journal: run.journal[..cut].to_vec(), at: run.at };
    if !rest.state.exists() {
        return;
    }
    rest.finish(roll);
    JournalChecker::check(&rest.journal).assert_nothing_left();
    assert!(rest.state.turn.is_none() && rest.state.queue.is_empty());
    assert!(rest.state.dispatches.is_empty() && wanted(&rest.state).is_empty());
    assert_eq!(rest.state.status(), ConversationStatus::Idle);
    assert_eq!((rest.state.alarm(), rest.state.pending_calls()), (None, vec![]));
    assert_eq!(replay(State::default(), &rest.journal), rest.state);
}

/// Every wanted activity has something to do; none is for a call that is done.
fn assert_wants_only_open_work(state: &State) {
    for activity in wanted(state) {
        let open = match &activity {
            Activity::RunTool { call, .. } | Activity::AwaitClient { call, .. } => {
                let open = state.call(call).is_some_and(|call| match call.phase {
                    CallPhase::Running { .. } | CallPhase::Suspended(_) => true,
                    CallPhase::Requested
                    | CallPhase::Approved
                    | CallPhase::AwaitingRetry { .. }
                    | CallPhase::Delegated { .. }
                    | CallPhase::External(_)
                    | CallPhase::Done => false,
                });
                open || state.dispatches.contains_key(call)
            }
            Activity::StopChild { child } => state.orphans.contains_key(child),
            Activity::NotifyParent { turn } => {
                state.turn.as_ref().is_none_or(|open| open.id != *turn)
            }
            Activity::PublishDecision { decision } => state.decisions.contains_key(decision),
            Activity::CopyFork { after } => state.forking.is_some() && *after == state.seq,
            Activity::Summarize { upto } => *upto <= state.seq,
            Activity::StartTurn { .. } => state.turn.is_none(),
            Activity::CallModel { .. } => state.turn.as_ref().is_some_and(|turn| turn.is_settled()),
        };
        assert!(open, "{activity}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_journal_cut_at_any_place_settles(
        rolls in rolls(40), last in rolls(2).prop_filter("one", |last| last.len() == 1),
    ) {
        let run = RandomRun::from_rolls(&rolls);
        JournalChecker::check(&run.journal);
        let mut state = State::default();
        assert_settles(&run, 0, state.clone(), last[0]);
        for (index, event) in run.journal.iter().enumerate() {
            evolve(&mut state, event);
            assert_wants_only_open_work(&state);
            let roll = Roll { how: last[0].how.wrapping_add(index as u8), ..last[0] };
            assert_settles(&run, index + 1, state.clone(), roll);
        }
        prop_assert_eq!(state, run.state);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_long_journal_cut_somewhere_settles(
        rolls in rolls(120), index in any::<prop::sample::Index>(), how in any::<(u8, u8)>(),
    ) {
        let run = RandomRun::from_rolls(&rolls);
        let cut = index.index(run.journal.len() + 1);
        let state = replay(State::default(), &run.journal[..cut]);
        assert_settles(&run, cut, state, Roll { what: 0, which: how.0, how: how.1, ms: 0 });
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn a_cached_state_goes_on_as_a_full_replay_would(
        rolls in rolls(60), index in any::<prop::sample::Index>(),
    ) {
        let run = RandomRun::from_rolls(&rolls);
        let (before, after) = run.journal.split_at(index.index(run.journal.len() + 1));
        let cached = serde_json::to_vec(&replay(State::default(), before)).unwrap();
        let cached: State = from_json(&cached).unwrap();
        prop_assert_eq!(replay(cached, after), run.state);
    }

    #[test]
    fn nothing_panics_on_a_journal_out_of_order(
        rolls in rolls(60), order in prop::collection::vec(any::<prop::sample::Index>(), 0..80),
    ) {
        let run = RandomRun::from_rolls(&rolls);
        prop_assume!(!run.journal.is_empty());
        let torn = order.iter().map(|index| index.get(&run.journal));
        let state = replay(State::default(), torn);
        let (at, journal) = (Timestamp::MAX, Vec::new());
        let mut torn = RandomRun { state, journal, at };
        let _ = (wanted(&torn.state), torn.state.alarm(), torn.state.status());
        for action in [Action::Revive, Action::Wake, cancel()] {
            torn.play(action);
        }
    }
}

/// Otherwise the properties could hold only because they never meet what they are about.
#[test]
fn the_dice_reach_every_kind_of_event_and_of_result() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..900 {
        let run = RandomRun::from_rolls(&rolls(120).new_tree(&mut runner).unwrap().current());
        for event in &run.journal {
            let json = serde_json::to_value(event).unwrap();
            let data = &json["data"];
            let marks = [&data["error_type"], &data["outcome"], &data["kind"], &data["status"]];
            let marks = marks.into_iter().filter_map(serde_json::Value::as_str);
            let phase = format!("suspension {}", data["suspension"]);
            let named = data["call_id"].as_str().is_some_and(|id| id.contains('~'));
            let renamed = named.then_some("renamed");
            for mark in marks.chain([kind(event), &phase]).chain(renamed) {
                *seen.entry(mark.to_owned()).or_default() += 1;
            }
        }
    }
    for mark in [
        "created",
        "user_msg",
        "turn_started",
        "assistant_msg",
        "tool_call",
        "suspension",
        "voted",
        "resolution",
        "tool_started",
        "tool_result",
        "repair_requested",
        "context_reduced",
        "summarized",
        "summary_failed",
        "turn_ended",
        "dispatch_started",
        "dispatch",
        "phase_changed",
        "todos_changed",
        "workspace_opened",
        "child_started",
        "child_ended",
        "child_released",
        "told",
        "abandoned",
        "operated",
        "message_scheduled",
        "schedule_ended",
        "turn_withdrawn",
        "steered",
        "rewound",
        "suspension_expiring",
        "suspension_extended",
        "suspension_escalated",
        "tool_queued",
        "callback_awaited",
        "tool_attempt_failed",
        "in_doubt",
        "DENIED",
        "EXPIRED",
        "CANCELLED",
        "TOOL_ERROR",
        "INTERRUPTED",
        "NO_CLIENT",
        "completed",
        "cancelled",
        "halted",
        "failed",
        "approval",
        "elicitation",
        "client_exec",
        "error",
        "suspension 2",
        "renamed",
    ] {
        assert!(seen.get(mark).is_some_and(|times| *times >= 20), "{mark}: {seen:#?}");
    }
}
