//! Every legal cell of executor and approval, through a call's whole life.

use serde_json::json;

use super::scenario::*;
use crate::event::{EventData, Executor, SuspensionKind};
use crate::message::{ErrorType, Outcome};
use crate::state::ConversationStatus;

const NOTHING: [&str; 0] = [];
const NEXT: [&str; 1] = ["model step 2 of turn_1"];

fn pending(story: &Scenario) -> Vec<(SuspensionKind, u32, String)> {
    let open = story.state.pending_calls().into_iter();
    open.map(|pending| (pending.kind, pending.suspension, pending.message)).collect()
}

fn all_done(story: &Scenario) {
    assert_eq!(story.wanted(), NEXT);
    assert_eq!(story.state.pending_calls(), []);
    assert_eq!(story.state.alarm(), None);
    assert_eq!(story.state.status(), ConversationStatus::Preparing);
}

#[test]
fn a_message_starts_a_turn_and_an_answer_without_calls_completes_it() {
    let mut story = Scenario::empty();
    assert_eq!(story.apply(send("turn_1")).unwrap(), ["created", "user_msg", "turn_started"]);
    assert_eq!(story.wanted(), ["model step 1 of turn_1"]);
    assert_eq!(story.reply(vec![]).unwrap(), ["assistant_msg", "turn_ended"]);
    assert_eq!(story.wanted(), NOTHING);
    assert_eq!(story.state.status(), ConversationStatus::Idle);
    assert_eq!(story.turn_ends(), [("completed".to_owned(), None)]);
}

#[test]
fn a_server_call_runs_at_once() {
    let mut story = Scenario::with_turn();
    assert_eq!(story.reply(vec![server("a")]).unwrap(), ["assistant_msg", "tool_call"]);
    assert_eq!(story.wanted(), ["attempt 1 of a"]);
    assert_eq!((story.state.pending_calls(), story.state.alarm()), (vec![], None));
    assert_eq!(story.state.status(), ConversationStatus::ExecutingTools);
    assert_eq!(story.apply(returned("a", 1)).unwrap(), ["tool_result"]);
    all_done(&story);
    assert_eq!(story.reply(vec![]).unwrap(), ["assistant_msg", "turn_ended"]);
}

#[test]
fn a_gated_server_call_runs_after_approval_as_the_approver() {
    let mut story = Scenario::with_turn();
    let told = story.reply(vec![gated("a")]).unwrap();
    assert_eq!(told, ["assistant_msg", "tool_call", "suspension"]);
    assert_eq!(story.wanted(), NOTHING);
    assert_eq!(pending(&story), [(SuspensionKind::Approval, 1, "May it?".to_owned())]);
    assert_eq!(story.state.alarm(), Some(story.after(TIMEOUT_MS)));
    assert_eq!(story.state.status(), ConversationStatus::AwaitingInput);
    let told = story.apply(approve("a", Some(1))).unwrap();
    assert_eq!(told, ["resolution", "tool_started"]);
    assert_eq!(story.wanted(), ["attempt 1 of a"]);
    assert_eq!((story.state.pending_calls(), story.state.alarm()), (vec![], None));
    let call = story.state.turn.as_ref().unwrap().calls[0].clone();
    assert_eq!(call.principal.as_str(), "boss");
    assert_eq!(story.apply(returned("a", 1)).unwrap(), ["tool_result"]);
    all_done(&story);
}

#[test]
fn a_call_that_nobody_gated_runs_as_the_turns_user() {
    let story = Scenario::with_calls(vec![server("a")]);
    assert_eq!(story.state.turn.unwrap().calls[0].principal.as_str(), "user");
}

#[test]
fn an_approver_may_edit_the_arguments() {
    let mut story = Scenario::with_calls(vec![gated("a")]);
    story.then(approve_with("a", json!({"n": 2})));
    assert_eq!(story.state.turn.as_ref().unwrap().calls[0].args, json!({"n": 2}));
    let EventData::ToolStarted(started) = &story.journal.last().unwrap().data else {
        unreachable!()
    };
    assert_eq!(started.args, json!({"n": 2}));
}

#[test]
fn arguments_edited_to_null_survive_a_replay() {
    let mut story = Scenario::with_calls(vec![gated("a")]);
    story.then(approve_with("a", json!(null)));
    assert_eq!(story.state.turn.unwrap().calls[0].args, json!(null));
}

#[test]
fn a_denied_call_is_an_error_that_says_why() {
    for (reason, error) in
        [(None, "denied by approver"), (Some("too dear"), "denied by approver: too dear")]
    {
        let mut story = Scenario::with_calls(vec![gated("a")]);
        assert_eq!(story.apply(deny("a", reason)).unwrap(), ["resolution", "tool_result"]);
        assert_eq!(story.error("a"), json!([error, "DENIED"]));
        all_done(&story);
    }
}

#[test]
fn a_humans_answer_is_the_result() {
    let mut story = Scenario::with_turn();
    let told = story.reply(vec![human("a")]).unwrap();
    assert_eq!(told, ["assistant_msg", "tool_call", "suspension"]);
    assert_eq!(pending(&story), [(SuspensionKind::Elicitation, 1, "Please answer.".to_owned())]);
    assert_eq!(story.wanted(), NOTHING);
    assert_eq!(story.state.alarm(), Some(story.after(TIMEOUT_MS)));
    let told = story.apply(answer("a", None, json!({"ok": false, "colour": "red"}))).unwrap();
    assert_eq!(told, ["resolution", "tool_result"]);
    let given = json!({"ok": false, "colour": "red"});
    assert_eq!(story.result("a").unwrap().outcome, Outcome::Ok(given));
    all_done(&story);
}

#[test]
fn only_the_error_form_of_an_answer_makes_it_an_error() {
    for planned in [human("a"), client("a")] {
        let mut story = Scenario::with_calls(vec![planned]);
        assert_eq!(story.apply(answer_error("a", "no")).unwrap(), ["resolution", "tool_result"]);
        assert_eq!(story.error("a"), json!(["no", "TOOL_ERROR"]));
        all_done(&story);
    }
}

#[test]
fn a_client_call_waits_for_the_page() {
    let mut story = Scenario::with_turn();
    let told = story.reply(vec![client("a")]).unwrap();
    assert_eq!(told, ["assistant_msg", "tool_call", "suspension"]);
    assert_eq!(pending(&story), [(SuspensionKind::ClientExec, 1, "Please answer.".to_owned())]);
    assert_eq!(story.wanted(), ["page for a"]);
    assert_eq!(story.state.alarm(), Some(story.after(TIMEOUT_MS)));
    let told = story.apply(answer("a", Some(1), json!(7))).unwrap();
    assert_eq!(told, ["resolution", "tool_result"]);
    all_done(&story);
}

#[test]
fn a_gated_client_call_suspends_twice_under_one_id() {
    let mut story = Scenario::with_calls(vec![gated_client("a")]);
    assert_eq!(pending(&story), [(SuspensionKind::Approval, 1, "May it?".to_owned())]);
    assert_eq!(story.wanted(), NOTHING);
    let told = story.advance(1_000).apply(approve("a", Some(1))).unwrap();
    assert_eq!(told, ["resolution", "tool_started", "suspension"]);
    assert_eq!(pending(&story), [(SuspensionKind::ClientExec, 2, "Please answer.".to_owned())]);
    assert_eq!(story.wanted(), ["page for a"]);
    assert_eq!(story.state.alarm(), Some(story.after(TIMEOUT_MS)));
    let told = story.apply(answer("a", Some(2), json!(7))).unwrap();
    assert_eq!(told, ["resolution", "tool_result"]);
    all_done(&story);
}

#[test]
fn a_denied_client_call_never_reaches_the_page() {
    let mut story = Scenario::with_calls(vec![gated_client("a")]);
    story.then(deny("a", None));
    assert_eq!(story.error("a"), json!(["denied by approver", "DENIED"]));
    all_done(&story);
}

#[test]
fn a_client_call_without_a_grace_time_is_not_watched() {
    let mut planned = client("a");
    if let crate::command::CallPlan::Execute { grace_ms, .. } = &mut planned.plan {
        *grace_ms = None;
    }
    let story = Scenario::with_calls(vec![planned]);
    assert_eq!(story.wanted(), NOTHING);
    assert_eq!(story.state.alarm(), Some(story.after(TIMEOUT_MS)));
}

#[test]
fn a_client_call_without_a_page_ends_after_its_grace() {
    let mut story = Scenario::with_calls(vec![client("a")]);
    assert_eq!(story.apply(missing("a", 1)).unwrap(), ["tool_result"]);
    assert_eq!(story.error("a"), json!(["no client connected", "NO_CLIENT"]));
    all_done(&story);
}

#[test]
fn a_call_that_is_answered_when_planned_never_opens() {
    let refused = Outcome::Err("unknown tool: tool".to_owned(), ErrorType::ToolNotFound);
    let given = Outcome::Ok(json!([1, 2]));
    let goes_on = ["assistant_msg", "tool_call", "tool_result"];
    let ends = ["assistant_msg", "tool_call", "tool_result", "turn_ended"];
    for (executor, outcome, started, said) in [
        (Executor::Server, refused, false, &goes_on[..]),
        (Executor::Client, given.clone(), true, &goes_on),
        (Executor::Provider, given, true, &ends),
    ] {
        let mut story = Scenario::with_turn();
        let told = story.reply(vec![answered_call("a", executor, outcome.clone())]).unwrap();
        assert_eq!(told, said);
        assert_eq!(story.result("a").unwrap().outcome, outcome);
        let planned = story.journal.iter().find_map(|event| match &event.data {
            EventData::ToolCall(call) => Some((call.executor, call.started)),
            _ => None,
        });
        assert_eq!(planned, Some((executor, started)));
        assert!(story.result("a").is_some() && story.state.open_calls() == 0);
    }
}

#[test]
fn a_providers_call_without_a_result_ends_with_an_error() {
    for gate in [false, true] {
        let mut story = Scenario::with_calls(vec![call("a", Executor::Provider, gate)]);
        if gate {
            story.then(approve("a", None));
        }
        assert_eq!(story.error("a"), json!(["the provider gave no result", "TOOL_ERROR"]));
        all_done(&story);
    }
}

#[test]
fn a_gated_client_call_that_needs_no_answer_is_answered_when_it_is_approved() {
    let mut story = Scenario::with_turn();
    let mut planned = gated_client("a");
    if let crate::command::CallPlan::Execute { default_result, .. } = &mut planned.plan {
        *default_result = Some(json!(null));
    }
    let told = story.reply(vec![planned]).unwrap();
    assert_eq!(told, ["assistant_msg", "tool_call", "suspension"]);
    let told = story.apply(approve("a", Some(1))).unwrap();
    assert_eq!(told, ["resolution", "tool_started", "tool_result"]);
    all_done(&story);
}
