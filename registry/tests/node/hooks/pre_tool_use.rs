//! PreToolUse hooks on the model's calls, on dispatches, and on arguments that an approver edited.

use abide_actors::request::{DispatchRequest, Reply, Request, RequestError};
use abide_conversation::Principal;
use abide_conversation::command::ResolutionAnswer;
use abide_conversation::event::{Event, EventData, TurnOutcome};
use abide_conversation::permission::Verdict;
use serde_json::{Value, json};

use super::{ID, echoes, hook, hook_fields, start_node, talks, with};
use crate::test_node::{TestNode, results};

fn verdict(events: &[Event]) -> Verdict {
    let verdict = events.iter().find_map(|event| match &event.data {
        EventData::ToolCall(call) => call.gate.clone(),
        _ => None,
    });
    verdict.unwrap()
}

fn denial(rule: &str) -> Value {
    let error = format!("permission denied: echo is refused by {rule}");
    json!({"ok": false, "error": error, "error_type": "PERMISSION_DENIED"})
}

fn pre(native: &str) -> Value {
    hook("PreToolUse", "h", native)
}

fn edit(n: u32) -> ResolutionAnswer {
    ResolutionAnswer::Approval { approved: true, reason: None, args: Some(json!({"n": n})) }
}

fn echo(n: u32, approved: bool) -> Request {
    let tool = "echo".to_owned();
    let input = json!({"n": n});
    let principal = Principal::new("ada");
    Request::Dispatch(DispatchRequest { tool, input, approved, principal })
}

async fn dispatched(node: &TestNode, n: u32, approved: bool) -> Result<Value, RequestError> {
    match node.deliver(ID, echo(n, approved)).await? {
        Reply::Dispatched { outcome, .. } => Ok(json!(outcome)),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn arguments_that_a_hook_changes_are_checked_again_and_the_models_message_stays() {
    let node = start_node(echoes(5), vec![pre("change")]).await;
    node.send(ID, "go").await.unwrap();
    let suspension = node.poll_for_event(ID, |data| matches!(data, EventData::Suspension(_))).await;
    let EventData::Suspension(suspension) = suspension.data else { panic!() };
    assert_eq!(
        suspension.args,
        json!({"n": 6}),
        "the approval condition did not see the hook's arguments"
    );
    let events = node.journal(ID).await;
    let models_args = events.iter().find_map(|event| match &event.data {
        EventData::AssistantMsg(reply) => Some(reply.message.tool_calls[0].args.clone()),
        _ => None,
    });
    assert_eq!(models_args, Some(json!({"n": 5}).into()));
    node.approve(ID, "c").await.unwrap();
    node.turn_end(ID, 1).await;
    let results_of_call = results(&node.journal(ID).await, "c");
    assert_eq!(results_of_call[0]["result"]["args"]["n"], 6);
    assert_eq!(hook_fields(&node, "hook").len(), 1, "a hook was asked about unedited arguments");
    node.check(ID).await;
}

#[tokio::test(start_paused = true)]
async fn hooks_change_arguments_one_after_another() {
    let second = hook("PreToolUse", "i", "change");
    let node = start_node(echoes(1), vec![pre("change"), second]).await;
    node.send(ID, "go").await.unwrap();
    node.turn_end(ID, 1).await;
    assert_eq!(hook_fields(&node, "args"), [json!({"n": 1}), json!({"n": 2})]);
    assert_eq!(results(&node.journal(ID).await, "c")[0]["result"]["args"]["n"], 3);
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_denies_fails_or_spoils_the_arguments_denies_the_call() {
    for (native, rule) in [
        ("deny", "hook h: not today"),
        ("hang", "hook h: failed"),
        ("panic", "hook h: failed"),
        ("refuse", "hook h: failed"),
        ("spoil", "hook h: the arguments that it wants are invalid"),
    ] {
        let node = start_node(echoes(1), vec![pre(native)]).await;
        node.send(ID, "go").await.unwrap();
        assert_eq!(node.turn_end(ID, 1).await, (TurnOutcome::Completed, None));
        let events = node.journal(ID).await;
        assert_eq!(results(&events, "c"), [denial(rule)]);
        assert_eq!(verdict(&events).rule, rule);
        node.check(ID).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_halts_the_turn_on_a_call_which_never_runs() {
    let node = start_node(echoes(1), vec![pre("halt")]).await;
    node.send(ID, "go").await.unwrap();
    assert_eq!(
        node.turn_end(ID, 1).await,
        (TurnOutcome::Halted, Some("hook h: enough".to_owned()))
    );
    assert_eq!(results(&node.journal(ID).await, "c")[0]["error_type"], "CANCELLED");
    node.check(ID).await;
}

#[tokio::test(start_paused = true)]
async fn a_hook_is_asked_about_the_tools_that_it_matches_and_about_no_call_that_is_refused() {
    let script = json!([{"calls": [
        {"id": "a", "name": "echo", "args": {"n": 1}},
        {"id": "b", "name": "echo", "args": {"n": "no"}},
        {"id": "c", "name": "nobody", "args": {}},
        {"id": "d", "name": "echo", "args": {"n": 2}},
    ]}]);
    let matching = with(pre("note"), "match", "ECH.|other");
    let other = with(hook("PreToolUse", "i", "deny"), "match", "ech");
    let node = start_node(script, vec![matching, other]).await;
    node.send(ID, "go").await.unwrap();
    node.turn_end(ID, 1).await;
    assert_eq!(hook_fields(&node, "call_id"), ["a", "d"]);
    let events = node.journal(ID).await;
    assert!(results(&events, "a")[0]["ok"] == true && results(&events, "d")[0]["ok"] == true);
    node.check(ID).await;
}

#[tokio::test(start_paused = true)]
async fn hooks_judge_a_users_own_call() {
    for (native, n, result) in [
        ("note", 1, json!(1)),
        ("change", 1, json!(2)),
        ("deny", 1, denial("hook h: not today")),
        ("hang", 1, denial("hook h: failed")),
        ("halt", 1, denial("hook h: enough")),
        ("spoil", 1, denial("hook h: the arguments that it wants are invalid")),
    ] {
        let node = start_node(talks(), vec![pre(native)]).await;
        node.send(ID, "go").await.unwrap();
        node.turn_end(ID, 1).await;
        let done = dispatched(&node, n, false).await.unwrap();
        if result.is_number() {
            assert_eq!(done["result"]["args"]["n"], result, "{native}");
        } else {
            assert_eq!(done, result, "{native}");
        }
        assert_eq!(hook_fields(&node, "hook").len(), 1);
    }
    let node = start_node(talks(), vec![pre("change")]).await;
    node.send(ID, "go").await.unwrap();
    node.turn_end(ID, 1).await;
    let refused = dispatched(&node, 5, false).await;
    assert_eq!(
        refused,
        Err(RequestError::ApprovalRequired("echo".to_owned())),
        "the hook's arguments were not checked again"
    );
}

#[tokio::test(start_paused = true)]
async fn the_conversation_goes_on_while_hooks_look_at_a_users_own_call() {
    let node = start_node(talks(), vec![with(pre("hold"), "timeout", "60s")]).await;
    node.send(ID, "go").await.unwrap();
    node.turn_end(ID, 1).await;
    let dispatch = dispatched(&node, 1, false);
    let rest = async {
        node.wait_for_holds(1).await;
        node.send(ID, "more").await.unwrap();
        node.turn_end(ID, 2).await;
        // The router delivers the returned request to the next actor, which asks the hook again.
        node.kill(ID).await;
        node.wait_for_holds(2).await;
        node.tools.release.add_permits(2);
    };
    let (dispatch, ()) = tokio::join!(dispatch, rest);
    assert_eq!(dispatch.unwrap()["result"]["args"]["n"], 1);
    let runs = node.journal(ID).await;
    let runs = runs.iter().filter(|event| matches!(event.data, EventData::DispatchStarted(_)));
    assert_eq!(runs.count(), 1);
    node.check(ID).await;
}

#[tokio::test(start_paused = true)]
async fn hooks_judge_arguments_that_an_approver_edited() {
    for (n, result) in [
        (7, json!(7)),
        (20, denial("hook h: not today")),
        (21, denial("hook h: enough")),
        (22, json!(23)),
        (24, denial("hook h: failed")),
        (25, denial("hook h: the arguments that it wants are invalid")),
    ] {
        let node = start_node(echoes(6), vec![pre("by_number")]).await;
        node.send(ID, "go").await.unwrap();
        node.poll_for_event(ID, |data| matches!(data, EventData::Suspension(_))).await;
        node.resolve(ID, "c", edit(n)).await.unwrap();
        let (ending, reason) = node.turn_end(ID, 1).await;
        let events = node.journal(ID).await;
        let done = results(&events, "c").remove(0);
        match (n, result.is_number()) {
            (_, true) => assert_eq!(done["result"]["args"]["n"], result),
            (21, _) => {
                assert_eq!(
                    (ending, reason.as_deref()),
                    (TurnOutcome::Halted, Some("hook h: enough"))
                );
                assert_eq!(done, result);
                assert!(
                    !events.iter().any(|event| matches!(event.data, EventData::ToolStarted(_)))
                );
            }
            _ => assert_eq!(done, result),
        }
        assert_eq!(hook_fields(&node, "args"), [json!({"n": 6}), json!({"n": n})]);
        node.check(ID).await;
    }
}
