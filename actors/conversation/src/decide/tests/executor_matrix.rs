//! Every legal combination of executor and approval, through a call's whole life.

use serde_json::json;

use super::scenario::*;
use crate::command::CallPlan;
use crate::event::{CallKind, EventData, Executor, SuspensionKind};
use crate::message::{ErrorType, Outcome};
use crate::state::ConversationStatus;

const NOTHING: [&str; 0] = [];
const NEXT: [&str; 1] = ["model step 2 of turn_1"];

fn pending(scenario: &Scenario) -> Vec<(SuspensionKind, u32, String)> {
    let open = scenario.state.pending_calls().into_iter();
    open.map(|pending| (pending.kind, pending.suspension, pending.message)).collect()
}

fn assert_all_done(scenario: &Scenario) {
    assert_eq!(scenario.wanted(), NEXT);
    assert_eq!(scenario.state.pending_calls(), []);
    assert_eq!(scenario.state.alarm(), None);
    assert_eq!(scenario.state.status(), ConversationStatus::Preparing);
}

#[test]
fn a_message_starts_a_turn_and_an_answer_without_calls_completes_it() {
    let mut scenario = Scenario::empty();
    assert_eq!(scenario.apply(send("turn_1")).unwrap(), ["created", "user_msg", "turn_started"]);
    assert_eq!(scenario.wanted(), ["model step 1 of turn_1"]);
    assert_eq!(scenario.reply(vec![]).unwrap(), ["assistant_msg", "turn_ended"]);
    assert_eq!(scenario.wanted(), NOTHING);
    assert_eq!(scenario.state.status(), ConversationStatus::Idle);
    assert_eq!(scenario.turn_ends(), [("completed".to_owned(), None)]);
}

#[test]
fn a_server_call_runs_at_once() {
    let mut scenario = Scenario::with_turn();
    assert_eq!(scenario.reply(vec![server("a")]).unwrap(), ["assistant_msg", "tool_call"]);
    assert_eq!(scenario.wanted(), ["attempt 1 of a"]);
    assert_eq!((scenario.state.pending_calls(), scenario.state.alarm()), (vec![], None));
    assert_eq!(scenario.state.status(), ConversationStatus::ExecutingTools);
    assert_eq!(scenario.apply(returned("a", 1)).unwrap(), ["tool_result"]);
    assert_all_done(&scenario);
    assert_eq!(scenario.reply(vec![]).unwrap(), ["assistant_msg", "turn_ended"]);
}

#[test]
fn a_gated_server_call_runs_after_approval_as_the_approver() {
    let mut scenario = Scenario::with_turn();
    let events = scenario.reply(vec![gated("a")]).unwrap();
    assert_eq!(events, ["assistant_msg", "tool_call", "suspension"]);
    assert_eq!(scenario.wanted(), NOTHING);
    assert_eq!(pending(&scenario), [(SuspensionKind::Approval, 1, "May it?".to_owned())]);
    assert_eq!(scenario.state.alarm(), Some(scenario.after(TIMEOUT_MS)));
    assert_eq!(scenario.state.status(), ConversationStatus::AwaitingInput);
    let events = scenario.apply(approve("a", Some(1))).unwrap();
    assert_eq!(events, ["resolution", "tool_started"]);
    assert_eq!(scenario.wanted(), ["attempt 1 of a"]);
    assert_eq!((scenario.state.pending_calls(), scenario.state.alarm()), (vec![], None));
    let call = scenario.state.turn.as_ref().unwrap().calls[0].clone();
    assert_eq!(call.principal.as_str(), "boss");
    assert_eq!(scenario.apply(returned("a", 1)).unwrap(), ["tool_result"]);
    assert_all_done(&scenario);
}

#[test]
fn a_call_that_nobody_gated_runs_as_the_turns_user() {
    let scenario = Scenario::with_calls(vec![server("a")]);
    assert_eq!(scenario.state.turn.unwrap().calls[0].principal.as_str(), "user");
}

#[test]
fn an_approver_may_edit_the_arguments() {
    let mut scenario = Scenario::with_calls(vec![gated("a")]);
    scenario.then(approve_with("a", json!({"n": 2})));
    assert_eq!(scenario.state.turn.as_ref().unwrap().calls[0].args, json!({"n": 2}));
    let EventData::ToolStarted(started) = &scenario.journal.last().unwrap().data else {
        unreachable!()
    };
    assert_eq!(started.args, json!({"n": 2}));
}

#[test]
fn arguments_edited_to_null_survive_a_replay() {
    let mut scenario = Scenario::with_calls(vec![gated("a")]);
    scenario.then(approve_with("a", json!(null)));
    assert_eq!(scenario.state.turn.unwrap().calls[0].args, json!(null));
}

#[test]
fn a_denied_call_is_an_error_that_says_why() {
    for (reason, error) in
        [(None, "denied by approver"), (Some("too dear"), "denied by approver: too dear")]
    {
        let mut scenario = Scenario::with_calls(vec![gated("a")]);
        assert_eq!(scenario.apply(deny("a", reason)).unwrap(), ["resolution", "tool_result"]);
        assert_eq!(scenario.error("a"), json!([error, "DENIED"]));
        assert_all_done(&scenario);
    }
}

#[test]
fn a_humans_answer_is_the_result() {
    let mut scenario = Scenario::with_turn();
    let events = scenario.reply(vec![human("a")]).unwrap();
    assert_eq!(events, ["assistant_msg", "tool_call", "suspension"]);
    assert_eq!(pending(&scenario), [(SuspensionKind::Elicitation, 1, "Please answer.".to_owned())]);
    assert_eq!(scenario.wanted(), NOTHING);
    assert_eq!(scenario.state.alarm(), Some(scenario.after(TIMEOUT_MS)));
    let events = scenario.apply(answer("a", None, json!({"ok": false, "colour": "red"}))).unwrap();
    assert_eq!(events, ["resolution", "tool_result"]);
    let given = json!({"ok": false, "colour": "red"});
    assert_eq!(scenario.result("a").unwrap().outcome, Outcome::Ok(given));
    assert_all_done(&scenario);
}

#[test]
fn only_the_error_form_of_an_answer_makes_it_an_error() {
    for planned in [human("a"), client("a")] {
        let mut scenario = Scenario::with_calls(vec![planned]);
        assert_eq!(scenario.apply(answer_error("a", "no")).unwrap(), ["resolution", "tool_result"]);
        assert_eq!(scenario.error("a"), json!(["no", "TOOL_ERROR"]));
        assert_all_done(&scenario);
    }
}

#[test]
fn a_client_call_waits_for_the_page() {
    let mut scenario = Scenario::with_turn();
    let events = scenario.reply(vec![client("a")]).unwrap();
    assert_eq!(events, ["assistant_msg", "tool_call", "suspension"]);
    assert_eq!(pending(&scenario), [(SuspensionKind::ClientExec, 1, "Please answer.".to_owned())]);
    assert_eq!(scenario.wanted(), ["page for a"]);
    assert_eq!(scenario.state.alarm(), Some(scenario.after(TIMEOUT_MS)));
    let events = scenario.apply(answer("a", Some(1), json!(7))).unwrap();
    assert_eq!(events, ["resolution", "tool_result"]);
    assert_all_done(&scenario);
}

#[test]
fn a_gated_client_call_suspends_twice_under_one_id() {
    let mut scenario = Scenario::with_calls(vec![gated_client("a")]);
    assert_eq!(pending(&scenario), [(SuspensionKind::Approval, 1, "May it?".to_owned())]);
    assert_eq!(scenario.wanted(), NOTHING);
    let events = scenario.advance(1_000).apply(approve("a", Some(1))).unwrap();
    assert_eq!(events, ["resolution", "tool_started", "suspension"]);
    assert_eq!(pending(&scenario), [(SuspensionKind::ClientExec, 2, "Please answer.".to_owned())]);
    assert_eq!(scenario.wanted(), ["page for a"]);
    assert_eq!(scenario.state.alarm(), Some(scenario.after(TIMEOUT_MS)));
    let events = scenario.apply(answer("a", Some(2), json!(7))).unwrap();
    assert_eq!(events, ["resolution", "tool_result"]);
    assert_all_done(&scenario);
}

#[test]
fn a_denied_client_call_never_reaches_the_page() {
    let mut scenario = Scenario::with_calls(vec![gated_client("a")]);
    scenario.then(deny("a", None));
    assert_eq!(scenario.error("a"), json!(["denied by approver", "DENIED"]));
    assert_all_done(&scenario);
}

#[test]
fn a_client_call_without_a_grace_time_is_not_watched() {
    let mut planned = client("a");
    if let CallPlan::Execute { kind: CallKind::Client { grace_ms, .. }, .. } = &mut planned.plan {
        *grace_ms = None;
    }
    let scenario = Scenario::with_calls(vec![planned]);
    assert_eq!(scenario.wanted(), NOTHING);
    assert_eq!(scenario.state.alarm(), Some(scenario.after(TIMEOUT_MS)));
}

#[test]
fn a_client_call_without_a_page_ends_after_its_grace() {
    let mut scenario = Scenario::with_calls(vec![client("a")]);
    assert_eq!(scenario.apply(missing("a", 1)).unwrap(), ["tool_result"]);
    assert_eq!(scenario.error("a"), json!(["no client connected", "NO_CLIENT"]));
    assert_all_done(&scenario);
}

#[test]
fn a_call_that_is_answered_when_planned_never_opens() {
    let refused = Outcome::Err("unknown tool: tool".to_owned(), ErrorType::ToolNotFound);
    let given = Outcome::Ok(json!([1, 2]));
    let goes_on = ["assistant_msg", "tool_call", "tool_result"];
    let ends = ["assistant_msg", "tool_call", "tool_result", "turn_ended"];
    for (executor, outcome, started, expected) in [
        (Executor::Server, refused, false, &goes_on[..]),
        (Executor::Client, given.clone(), true, &goes_on),
        (Executor::Provider, given, true, &ends),
    ] {
        let mut scenario = Scenario::with_turn();
        let events = scenario.reply(vec![answered_call("a", executor, outcome.clone())]).unwrap();
        assert_eq!(events, expected);
        assert_eq!(scenario.result("a").unwrap().outcome, outcome);
        let planned = scenario.journal.iter().find_map(|event| match &event.data {
            EventData::ToolCall(call) => Some((call.kind.executor(), call.started)),
            _ => None,
        });
        assert_eq!(planned, Some((executor, started)));
        assert!(scenario.result("a").is_some() && scenario.state.open_calls() == 0);
    }
}

#[test]
fn a_providers_call_without_a_result_ends_with_an_error() {
    for gate in [false, true] {
        let mut scenario = Scenario::with_calls(vec![call("a", Executor::Provider, gate)]);
        if gate {
            scenario.then(approve("a", None));
        }
        assert_eq!(scenario.error("a"), json!(["the provider gave no result", "TOOL_ERROR"]));
        assert_all_done(&scenario);
    }
}

#[test]
fn a_gated_client_call_that_needs_no_answer_is_answered_when_it_is_approved() {
    let mut scenario = Scenario::with_turn();
    let mut planned = gated_client("a");
    if let CallPlan::Execute { kind: CallKind::Client { default_result, .. }, .. } =
        &mut planned.plan
    {
        *default_result = Some(json!(null));
    }
    let events = scenario.reply(vec![planned]).unwrap();
    assert_eq!(events, ["assistant_msg", "tool_call", "suspension"]);
    let events = scenario.apply(approve("a", Some(1))).unwrap();
    assert_eq!(events, ["resolution", "tool_started", "tool_result"]);
    assert_all_done(&scenario);
}
