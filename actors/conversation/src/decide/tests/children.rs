//! Conversations that ask each other: one result a call, and no forgotten child.

use serde_json::json;

use super::scenario::*;
use crate::command::{Action, Create, Dispatch, StateChange, ToolReturned};
use crate::event::{OnInterrupt, Todo, TodoStatus};
use crate::message::Outcome;
use crate::permission::{Decision, PermissionPhase};
use crate::usage::Usage;
use crate::{Attempt, CallId, ConversationId, Principal, Rejection, Revision, TurnId};

fn child_with_turn() -> Scenario {
    let mut scenario = Scenario::empty();
    scenario.then(Action::Spawn(spawned()));
    scenario
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
    let mut scenario = Scenario::with_calls(vec![with_child("a", "x")]);
    assert_eq!(scenario.wanted(), ["attempt 1 of a"]);
    assert_eq!(scenario.apply(child_started("a", 1)), Ok(vec!["child_started"]));
    assert_eq!(
        (scenario.wanted(), scenario.state.alarm()),
        (vec![], Some(scenario.after(TIMEOUT_MS)))
    );
    let ended = scenario.apply(child_ended("a", "kid_x"));
    assert_eq!(ended, Ok(vec!["child_ended", "tool_result"]));
    assert_eq!(scenario.result("a").unwrap().outcome, Outcome::Ok(json!("grown up")));
    assert_eq!(
        scenario.state.usage,
        Usage { input_tokens: 5, output_tokens: 2, ..Default::default() }
    );
    assert_eq!(scenario.state.storages["/kid"], "tape");
    assert_eq!(scenario.apply(child_ended("a", "kid_x")), Err(Rejection::Stale));
    assert!(scenario.state.orphans.is_empty());
}

#[test]
fn a_child_may_end_before_it_is_known_to_have_started() {
    let mut scenario = Scenario::with_calls(vec![with_child("a", "x")]);
    scenario.then(child_ended("a", "kid_x"));
    assert_eq!(scenario.apply(child_started("a", 1)), Err(Rejection::Stale));
}

#[test]
fn another_child_does_not_answer_the_call() {
    let mut scenario = Scenario::with_calls(vec![with_child("a", "x"), with_child("b", "y")]);
    assert_eq!(scenario.apply(child_ended("a", "kid_y")), Err(Rejection::Stale));
}

#[test]
fn a_revived_parent_asks_again_only_while_its_child_has_not_begun() {
    let mut scenario = Scenario::with_calls(vec![run_once(with_child("a", "x"))]);
    assert_eq!(scenario.apply(Action::Revive), Ok(vec!["tool_started"]));
    scenario.then(child_started("a", 2));
    assert_eq!(scenario.apply(Action::Revive), Ok(vec![]));
}

#[test]
fn a_cancelled_parent_stops_its_child_and_remembers_to() {
    for delegated in [false, true] {
        let mut scenario = Scenario::with_calls(vec![with_child("a", "x")]);
        if delegated {
            scenario.then(child_started("a", 1));
        }
        scenario.then(cancel());
        assert_eq!(scenario.error("a"), json!(["[cancelled]", "CANCELLED"]));
        assert_eq!(scenario.wanted(), ["release of kid_x"]);
        let usage = Usage { input_tokens: 7, ..Usage::default() };
        scenario.then(Action::ChildReleased { child: ConversationId::new("kid_x"), usage });
        assert!(scenario.wanted().is_empty());
        assert_eq!(scenario.state.usage, usage, "what it cost is not lost");
    }
}

#[test]
fn a_child_that_takes_too_long_is_stopped() {
    let mut scenario = Scenario::with_calls(vec![with_child("a", "x")]);
    scenario.then(child_started("a", 1)).advance(TIMEOUT_MS).then(Action::Wake);
    assert_eq!(scenario.error("a"), json!(["sub_agent_timeout", "TOOL_ERROR"]));
    assert!(scenario.wanted().contains(&"release of kid_x".to_owned()));
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
        "attempt 1 may have created it"
    );
}

#[test]
fn a_gated_call_that_is_denied_has_no_child_to_stop() {
    let mut planned = with_child("a", "x");
    let crate::command::CallPlan::Execute { gate, .. } = &mut planned.plan else { unreachable!() };
    let message = "May it?".to_owned();
    *gate = Some(crate::command::ApprovalQuestion { message, policy: None, answer_schema: None });
    let mut scenario = Scenario::with_calls(vec![planned]);
    scenario.then(deny("a", None));
    assert!(
        scenario.state.orphans.is_empty()
            && scenario.state.turn.unwrap().calls[0].kind.child().is_none()
    );
}

#[test]
fn a_users_own_call_is_answered_by_its_child_too() {
    let mut scenario = Scenario::with_turn();
    scenario.then(Action::Dispatch(Dispatch {
        call: CallId::new("d"),
        tool: "tool".to_owned(),
        input: json!({}).into(),
        principal: Principal::new("user"),
        identity: None,
        revision: Revision::new("r"),
        on_interrupt: OnInterrupt::Fail,
        requests: Default::default(),
        verdict: verdict(Decision::Allow),
        child: Some(ConversationId::new("kid")),
    }));
    scenario.then(Action::Revive);
    assert_eq!(scenario.apply(child_started("d", 1)), Err(Rejection::Stale), "an earlier attempt");
    scenario.then(child_started("d", 2));
    assert_eq!(scenario.apply(child_started("d", 2)), Err(Rejection::Stale), "it comes once");
    assert_eq!(scenario.apply(Action::Revive), Ok(vec![]));
    assert_eq!(scenario.apply(child_ended("d", "kid")), Ok(vec!["child_ended", "dispatch"]));
    assert!(scenario.state.dispatches.is_empty() && scenario.state.orphans.is_empty());
}

#[test]
fn a_child_is_made_once_and_only_for_its_own_parent() {
    let mut scenario = child_with_turn();
    assert_eq!(scenario.state.storages[""], "disk");
    assert_eq!(scenario.apply(Action::Spawn(spawned())), Ok(vec![]));
    let mut other = spawned();
    other.create.as_mut().unwrap().parent.as_mut().unwrap().call_id = CallId::new("other");
    assert_eq!(scenario.apply(Action::Spawn(other)), Err(Rejection::ConversationExists));
    assert_eq!(Scenario::with_turn().apply(abandon()), Err(Rejection::ConversationExists));
}

#[test]
fn a_child_tells_of_its_first_turn_and_of_no_other() {
    let mut scenario = child_with_turn();
    scenario.reply(vec![server("a")]).unwrap();
    scenario.then(returned("a", 1));
    scenario.reply(vec![]).unwrap();
    let due = scenario.state.owed_report.clone().unwrap();
    assert_eq!((due.steps, due.calls), (2, 1));
    assert_eq!(scenario.wanted(), ["report of turn_1"]);
    assert_eq!(scenario.apply(Action::ParentNotified(TurnId::new("other"))), Err(Rejection::Stale));
    scenario.then(Action::ParentNotified(TurnId::new("turn_1")));
    scenario.then(send("turn_2"));
    scenario.reply(vec![]).unwrap();
    assert!(scenario.wanted().is_empty());
}

#[test]
fn an_abandoned_child_stops_and_stays_so() {
    let mut scenario = child_with_turn();
    scenario.reply(vec![with_child("a", "x")]).unwrap();
    let stopped = scenario.apply(abandon());
    assert_eq!(stopped, Ok(vec!["abandoned", "tool_result", "turn_ended"]));
    assert_eq!(scenario.wanted(), ["release of kid_x"]);
    assert_eq!(scenario.apply(abandon()), Ok(vec![]));
    assert_eq!(scenario.apply(Action::Spawn(spawned())), Err(Rejection::Stale));
}

#[test]
fn an_abandoned_child_that_does_not_exist_is_not_created() {
    assert_eq!(Scenario::empty().apply(abandon()), Err(Rejection::NotFound));
}

#[test]
fn a_child_is_awaited_until_its_call_or_dispatch_ends() {
    let awaited = |scenario: &Scenario| {
        let awaited = scenario.state.awaited_children();
        awaited.map(|(call, child)| format!("{call} {child}")).collect::<Vec<_>>()
    };
    let mut scenario = Scenario::with_turn();
    scenario.reply(vec![with_child("a", "x"), server("b")]).unwrap();
    assert_eq!(awaited(&scenario), ["a kid_x"]);
    scenario.then(cancel());
    assert!(awaited(&scenario).is_empty());
}

#[test]
fn the_suspensions_of_a_child_name_the_root() {
    let mut scenario = child_with_turn();
    scenario.reply(vec![human("a")]).unwrap();
    let pending = serde_json::to_value(&scenario.state.pending_calls()[0]).unwrap();
    assert_eq!(pending["root_conversation_id"], "root");
}

#[test]
fn what_a_tool_changes_is_journalled_with_its_result() {
    let todo = Todo { content: "x".to_owned(), status: TodoStatus::InProgress };
    let changes = vec![
        StateChange::Todos(vec![todo.clone()]),
        StateChange::Phase { phase: PermissionPhase::Plan, planning: true },
    ];
    let mut scenario = Scenario::with_calls(vec![server("a")]);
    let (call, outcome) = (CallId::new("a"), Outcome::Ok(json!("done")));
    let (ui, halt) = (None, None);
    let back = ToolReturned {
        call,
        attempt: Attempt::FIRST,
        outcome,
        ui,
        halt,
        changes,
        input_request: None,
        effective_args: None,
    };
    let events = scenario.apply(Action::ToolReturned(back)).unwrap();
    assert_eq!(events, ["todos_changed", "phase_changed", "tool_result"]);
    let state = &scenario.state;
    assert_eq!((&state.todos, state.planning_override), (&vec![todo], Some(true)));
}

#[test]
fn the_first_storage_of_a_workspace_holds_for_good() {
    let mut scenario = Scenario::with_calls(vec![server("a")]);
    let opened = |storage: &str| {
        let (root, storage) = ("/srv".to_owned(), storage.to_owned());
        Action::WorkspaceOpened { root, storage }
    };
    assert_eq!(scenario.apply(opened("disk")), Ok(vec!["workspace_opened"]));
    assert_eq!(scenario.apply(opened("another")), Err(Rejection::Stale));
    assert_eq!(scenario.state.storages["/srv"], "disk");
}

#[test]
fn edited_arguments_that_the_gate_refuses_do_not_run() {
    let mut scenario = Scenario::with_calls(vec![gated("a")]);
    let Action::Resolve(mut resolve) = approve_with("a", json!({"n": 2})) else { unreachable!() };
    resolve.verdict = Some(verdict(Decision::Deny));
    assert_eq!(scenario.apply(Action::Resolve(resolve)), Ok(vec!["resolution", "tool_result"]));
    let refused = "permission denied: tool is refused by auto";
    assert_eq!(scenario.error("a"), json!([refused, "PERMISSION_DENIED"]));
}

#[test]
fn a_call_may_run_only_with_the_gates_permit() {
    let may_run =
        |scenario: &Scenario| scenario.state.call(&CallId::new("a")).unwrap().permit().is_some();
    let mut scenario = Scenario::with_calls(vec![gated("a")]);
    assert!(!may_run(&scenario), "nobody has approved it");
    scenario.then(approve("a", None));
    assert!(may_run(&scenario));
    let mut ungated = server("a");
    ungated.verdict = None;
    assert!(!may_run(&Scenario::with_calls(vec![ungated])), "the gate has no verdict");
    let mut edited = Scenario::with_calls(vec![gated("a")]);
    let Action::Resolve(mut resolve) = approve_with("a", json!({})) else { unreachable!() };
    resolve.verdict = None;
    edited.then(Action::Resolve(resolve));
    assert!(!may_run(&edited), "the gate has no verdict on the edited arguments");
}
