//! Conversations that ask each other: one result a call, and no child that nobody cares for.

use serde_json::json;

use super::scenario::*;
use crate::command::{Action, Create, Dispatch, StateChange, ToolReturned};
use crate::event::{OnInterrupt, Todo, TodoStatus};
use crate::message::Outcome;
use crate::permission::{Decision, PermissionPhase};
use crate::usage::Usage;
use crate::{CallId, ConversationId, Principal, Rejection, Revision, TurnId};

fn begun_child() -> Scenario {
    let mut story = Scenario::empty();
    story.then(Action::Spawn(spawned()));
    story
}

fn spawned() -> crate::command::Send {
    let create = Some(Create { parent: Some(Box::new(parent())), ..create() });
    crate::command::Send { create, ..message("turn_1", Default::default()) }
}

fn abandon() -> Action {
    Action::Abandon(Create { parent: Some(Box::new(parent())), ..create() })
}

#[test]
fn a_call_that_its_child_has_wants_nothing_here_until_the_child_ends() {
    let mut story = Scenario::with_calls(vec![with_child("a", "x")]);
    assert_eq!(story.wanted(), ["attempt 1 of a"]);
    assert_eq!(story.apply(child_started("a", 1)), Ok(vec!["child_started"]));
    assert_eq!((story.wanted(), story.state.alarm()), (vec![], Some(story.after(TIMEOUT_MS))));
    let ended = story.apply(child_ended("a", "kid_x"));
    assert_eq!(ended, Ok(vec!["child_ended", "tool_result"]));
    assert_eq!(story.result("a").unwrap().outcome, Outcome::Ok(json!("grown up")));
    assert_eq!(
        story.state.usage,
        Usage { input_tokens: 5, output_tokens: 2, ..Default::default() }
    );
    assert_eq!(story.state.storages["/kid"], "tape");
    assert_eq!(story.apply(child_ended("a", "kid_x")), Err(Rejection::Stale));
    assert!(story.state.orphans.is_empty());
}

#[test]
fn a_child_may_end_before_it_is_known_to_have_started() {
    let mut story = Scenario::with_calls(vec![with_child("a", "x")]);
    story.then(child_ended("a", "kid_x"));
    assert_eq!(story.apply(child_started("a", 1)), Err(Rejection::Stale));
}

#[test]
fn another_child_does_not_answer_the_call() {
    let mut story = Scenario::with_calls(vec![with_child("a", "x"), with_child("b", "y")]);
    assert_eq!(story.apply(child_ended("a", "kid_y")), Err(Rejection::Stale));
}

#[test]
fn a_revived_parent_asks_again_only_while_its_child_has_not_begun() {
    let mut story = Scenario::with_calls(vec![run_once(with_child("a", "x"))]);
    assert_eq!(story.apply(Action::Revive), Ok(vec!["tool_started"]));
    story.then(child_started("a", 2));
    assert_eq!(story.apply(Action::Revive), Ok(vec![]));
}

#[test]
fn a_cancelled_parent_stops_its_child_and_remembers_to() {
    for delegated in [false, true] {
        let mut story = Scenario::with_calls(vec![with_child("a", "x")]);
        if delegated {
            story.then(child_started("a", 1));
        }
        story.then(cancel());
        assert_eq!(story.error("a"), json!(["[cancelled]", "CANCELLED"]));
        assert_eq!(story.wanted(), ["release of kid_x"]);
        let usage = Usage { input_tokens: 7, ..Usage::default() };
        story.then(Action::ChildReleased { child: ConversationId::new("kid_x"), usage });
        assert!(story.wanted().is_empty());
        assert_eq!(story.state.usage, usage, "what it cost is not lost");
    }
}

#[test]
fn a_child_that_takes_too_long_is_stopped() {
    let mut story = Scenario::with_calls(vec![with_child("a", "x")]);
    story.then(child_started("a", 1)).advance(TIMEOUT_MS).then(Action::Wake);
    assert_eq!(story.error("a"), json!(["sub_agent_timeout", "TOOL_ERROR"]));
    assert!(story.wanted().contains(&"release of kid_x".to_owned()));
}

#[test]
fn a_call_whose_asking_failed_leaves_a_child_to_stop_only_if_one_may_be_there() {
    let mut first = Scenario::with_calls(vec![with_child("a", "x")]);
    first.then(returned("a", 1));
    assert!(first.state.orphans.is_empty());
    let mut second = Scenario::with_calls(vec![with_child("a", "x")]);
    second.then(Action::Revive).then(returned("a", 2));
    assert!(
        second.wanted().contains(&"release of kid_x".to_owned()),
        "attempt 1 may have begun it"
    );
}

#[test]
fn a_gated_call_that_is_denied_has_no_child_to_stop() {
    let mut planned = with_child("a", "x");
    let crate::command::CallPlan::Execute { gate, .. } = &mut planned.plan else { unreachable!() };
    *gate = Some("May it?".to_owned());
    let mut story = Scenario::with_calls(vec![planned]);
    story.then(deny("a", None));
    assert!(story.state.orphans.is_empty() && story.state.turn.unwrap().calls[0].child.is_none());
}

#[test]
fn a_users_own_call_is_answered_by_its_child_too() {
    let mut story = Scenario::with_turn();
    story.then(Action::Dispatch(Dispatch {
        call: CallId::new("d"),
        tool: "tool".to_owned(),
        input: json!({}),
        principal: Principal::new("user"),
        revision: Revision::new("r"),
        on_interrupt: OnInterrupt::Fail,
        requests: Default::default(),
        gate: verdict(Decision::Allow),
        child: Some(ConversationId::new("kid")),
    }));
    story.then(Action::Revive).then(child_started("d", 2));
    assert_eq!(story.apply(Action::Revive), Ok(vec![]));
    assert_eq!(story.apply(child_ended("d", "kid")), Ok(vec!["child_ended", "dispatch"]));
    assert!(story.state.dispatches.is_empty() && story.state.orphans.is_empty());
}

#[test]
fn a_child_is_made_once_and_only_for_its_own_parent() {
    let mut story = begun_child();
    assert_eq!(story.state.storages[""], "disk");
    assert_eq!(story.apply(Action::Spawn(spawned())), Ok(vec![]));
    let mut other = spawned();
    other.create.as_mut().unwrap().parent.as_mut().unwrap().call_id = CallId::new("other");
    assert_eq!(story.apply(Action::Spawn(other)), Err(Rejection::ConversationExists));
    assert_eq!(Scenario::with_turn().apply(abandon()), Err(Rejection::ConversationExists));
}

#[test]
fn a_child_tells_of_its_first_turn_and_of_no_other() {
    let mut story = begun_child();
    story.reply(vec![server("a")]).unwrap();
    story.then(returned("a", 1));
    story.reply(vec![]).unwrap();
    let due = story.state.owed_report.clone().unwrap();
    assert_eq!((due.steps, due.calls), (2, 1));
    assert_eq!(story.wanted(), ["report of turn_1"]);
    assert_eq!(story.apply(Action::ParentNotified(TurnId::new("other"))), Err(Rejection::Stale));
    story.then(Action::ParentNotified(TurnId::new("turn_1")));
    story.then(send("turn_2"));
    story.reply(vec![]).unwrap();
    assert!(story.wanted().is_empty());
}

#[test]
fn an_abandoned_child_stops_and_stays_so() {
    let mut story = begun_child();
    story.reply(vec![with_child("a", "x")]).unwrap();
    let stopped = story.apply(abandon());
    assert_eq!(stopped, Ok(vec!["abandoned", "tool_result", "turn_ended"]));
    assert_eq!(story.wanted(), ["release of kid_x"]);
    assert_eq!(story.apply(abandon()), Ok(vec![]));
    assert_eq!(story.apply(Action::Spawn(spawned())), Err(Rejection::Stale));
}

#[test]
fn a_child_may_be_abandoned_before_it_exists() {
    let mut story = Scenario::empty();
    assert_eq!(story.apply(abandon()), Ok(vec!["created", "abandoned"]));
    assert_eq!(story.apply(Action::Spawn(spawned())), Err(Rejection::Stale));
}

#[test]
fn the_suspensions_of_a_child_name_the_root() {
    let mut story = begun_child();
    story.reply(vec![human("a")]).unwrap();
    let pending = serde_json::to_value(&story.state.pending_calls()[0]).unwrap();
    assert_eq!(pending["root_conversation_id"], "root");
}

#[test]
fn what_a_tool_changes_is_journalled_with_its_result() {
    let todo = Todo { content: "x".to_owned(), status: TodoStatus::InProgress };
    let changes = vec![
        StateChange::Todos(vec![todo.clone()]),
        StateChange::Phase { phase: PermissionPhase::Plan, planning: true },
    ];
    let mut story = Scenario::with_calls(vec![server("a")]);
    let (call, outcome) = (CallId::new("a"), Outcome::Ok(json!("done")));
    let (ui, halt) = Default::default();
    let back = ToolReturned {
        call,
        attempt: 1,
        outcome,
        ui,
        halt,
        changes,
        input_request: None,
        effective_args: None,
    };
    let told = story.apply(Action::ToolReturned(back)).unwrap();
    assert_eq!(told, ["todos_changed", "phase_changed", "tool_result"]);
    let state = &story.state;
    assert_eq!((&state.todos, state.planning_override), (&vec![todo], Some(true)));
}

#[test]
fn the_first_storage_of_a_workspace_holds_for_good() {
    let mut story = Scenario::with_calls(vec![server("a")]);
    let opened = |storage: &str| {
        let (root, storage) = ("/srv".to_owned(), storage.to_owned());
        Action::WorkspaceOpened { root, storage }
    };
    assert_eq!(story.apply(opened("disk")), Ok(vec!["workspace_opened"]));
    assert_eq!(story.apply(opened("another")), Err(Rejection::Stale));
    assert_eq!(story.state.storages["/srv"], "disk");
}

#[test]
fn edited_arguments_that_the_gate_refuses_do_not_run() {
    let mut story = Scenario::with_calls(vec![gated("a")]);
    let Action::Resolve(mut resolve) = approve_with("a", json!({"n": 2})) else { unreachable!() };
    resolve.gate = Some(verdict(Decision::Deny));
    assert_eq!(story.apply(Action::Resolve(resolve)), Ok(vec!["resolution", "tool_result"]));
    let refused = "permission denied: tool is refused by auto";
    assert_eq!(story.error("a"), json!([refused, "PERMISSION_DENIED"]));
}

#[test]
fn a_call_may_run_only_with_the_gates_leave() {
    let leave = |story: &Scenario| story.state.call(&CallId::new("a")).unwrap().permit().is_some();
    let mut story = Scenario::with_calls(vec![gated("a")]);
    assert!(!leave(&story), "nobody said yes");
    story.then(approve("a", None));
    assert!(leave(&story));
    let mut ungated = server("a");
    ungated.gate = None;
    assert!(!leave(&Scenario::with_calls(vec![ungated])), "the gate was not asked");
    let mut edited = Scenario::with_calls(vec![gated("a")]);
    let Action::Resolve(mut resolve) = approve_with("a", json!({})) else { unreachable!() };
    resolve.gate = None;
    edited.then(Action::Resolve(resolve));
    assert!(!leave(&edited), "the gate never saw the edited arguments");
}
