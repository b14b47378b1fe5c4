//! Turns whose calls have different executors and approvals at once.

use serde_json::json;

use super::scenario::*;
use crate::event::{EventData, Executor};
use crate::message::Outcome;
use crate::state::ConversationStatus;
use crate::{Rejection, State, Timestamp, replay};

fn everything() -> Vec<crate::command::PlannedCall> {
    let given = answered_call("p", Executor::Provider, Outcome::Ok(json!(1)));
    vec![server("s"), gated("g"), human("h"), given, client("c"), gated_client("gc")]
}

#[test]
fn each_call_of_a_message_goes_its_own_way_in_one_commit() {
    let mut scenario = Scenario::with_turn();
    let events = scenario.reply(everything()).unwrap();
    let calls = [
        ("s", vec!["tool_call"]),
        ("g", vec!["tool_call", "suspension"]),
        ("h", vec!["tool_call", "suspension"]),
        ("p", vec!["tool_call", "tool_result"]),
        ("c", vec!["tool_call", "suspension"]),
        ("gc", vec!["tool_call", "suspension"]),
    ];
    let expected = calls.into_iter().flat_map(|(_, kinds)| kinds);
    assert_eq!(events, std::iter::once("assistant_msg").chain(expected).collect::<Vec<_>>());
    assert_eq!(scenario.wanted(), ["attempt 1 of s", "page for c"]);
    let waiting =
        scenario.state.pending_calls().into_iter().map(|pending| pending.call_id.to_string());
    assert_eq!(waiting.collect::<Vec<_>>(), ["g", "h", "c", "gc"]);
}

#[test]
fn the_next_step_is_wanted_only_when_no_call_is_open() {
    let mut scenario = Scenario::with_calls(everything());
    let steps = [
        approve("gc", None),
        returned("s", 1),
        answer("h", None, json!(1)),
        approve("g", None),
        answer("gc", Some(2), json!(1)),
        answer("c", None, json!(1)),
    ];
    for step in steps {
        scenario.then(step);
        assert!(!scenario.wanted().iter().any(|wanted| wanted.starts_with("model")));
    }
    scenario.then(returned("g", 1));
    assert_eq!(scenario.wanted(), ["model step 2 of turn_1"]);
}

/// A call and what follows it are one commit, so only a fold sees the state between them.
#[test]
fn a_planned_call_runs_at_once_only_on_a_server_that_it_was_handed_to() {
    for (planned, upto, phase, runs) in [
        (server("a"), "tool_call", "running", true),
        (gated("a"), "tool_call", "requested", false),
        (human("a"), "tool_call", "requested", false),
        (client("a"), "tool_call", "requested", false),
        (gated_client("a"), "tool_started", "running", false),
    ] {
        let mut scenario = Scenario::with_calls(vec![planned]);
        if upto == "tool_started" {
            scenario.then(approve("a", None));
        }
        let end = scenario.journal.iter().position(|event| kind(event) == upto).unwrap();
        scenario.state = replay(State::default(), &scenario.journal[..=end]);
        assert_eq!((scenario.phase("a").as_str(), !scenario.wanted().is_empty()), (phase, runs));
    }
}

#[test]
fn a_conversation_that_streams_is_not_preparing_any_more() {
    let mut scenario = Scenario::with_turn();
    let shown =
        |scenario: &Scenario| [true, false].map(|it| scenario.state.status().with_streaming(it));
    let statuses = shown(&scenario);
    assert_eq!(statuses, [ConversationStatus::Streaming, ConversationStatus::Preparing]);
    scenario.reply(everything()).unwrap();
    assert_eq!(shown(&scenario), [ConversationStatus::AwaitingInput; 2]);
    assert_eq!(scenario.state.open_calls(), 5, "all but the one that has its result");
}

#[test]
fn awaiting_wins_over_executing() {
    let mut scenario = Scenario::with_calls(vec![server("s"), human("h")]);
    assert_eq!(scenario.state.status(), ConversationStatus::AwaitingInput);
    scenario.then(answer("h", None, json!(1)));
    assert_eq!(scenario.state.status(), ConversationStatus::ExecutingTools);
}

#[test]
fn the_alarm_is_the_earliest_open_deadline() {
    let mut scenario = Scenario::with_calls(vec![human("a"), gated_client("b")]);
    let first: Timestamp = scenario.after(TIMEOUT_MS);
    scenario.advance(1_000).then(approve("b", None));
    assert_eq!(scenario.state.alarm(), Some(first));
    scenario.then(answer("a", None, json!(1)));
    assert_eq!(scenario.state.alarm(), Some(scenario.after(TIMEOUT_MS)));
    scenario.then(answer("b", None, json!(1)));
    assert_eq!(scenario.state.alarm(), None);
}

#[test]
fn a_call_of_an_earlier_step_cannot_be_touched() {
    let mut scenario = Scenario::with_calls(vec![server("a")]);
    scenario.then(returned("a", 1));
    assert_eq!(scenario.apply(returned("a", 1)), Err(Rejection::Stale));
    scenario.reply(vec![human("b")]).unwrap();
    assert_eq!(scenario.apply(returned("a", 1)), Err(Rejection::Stale));
    assert!(not_open(scenario.apply(answer("a", None, json!(1)))));
}

#[test]
fn a_return_of_a_waiting_call_is_stale() {
    let mut scenario = Scenario::with_calls(vec![human("a"), gated("b")]);
    assert_eq!(scenario.apply(returned("a", 1)), Err(Rejection::Stale));
    assert_eq!(scenario.apply(returned("b", 1)), Err(Rejection::Stale));
    assert_eq!(scenario.apply(returned("nobody", 1)), Err(Rejection::Stale));
}

#[test]
fn the_messages_calls_are_in_the_models_order_under_their_journalled_ids() {
    let scenario = Scenario::with_calls(vec![server("x"), server("x"), server("")]);
    let EventData::AssistantMsg(spoken) = &scenario.journal[3].data else { unreachable!() };
    let names: Vec<_> = spoken.message.tool_calls.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(names, ["x", "x~2", "call"]);
    let planned = scenario.journal.iter().filter_map(|event| match &event.data {
        EventData::ToolCall(call) => Some(call.call_id.as_str()),
        _ => None,
    });
    assert_eq!(planned.collect::<Vec<_>>(), names);
}
