//! Conversations that ask each other: every question has exactly one answer.

use std::time::Duration;

use abide_actors::request::{DispatchRequest, IdempotencyKey, Reply, Request, RequestError};
use abide_conversation::command::IfBusy;
use abide_conversation::event::{Event, EventData, TurnOutcome};
use abide_conversation::message::Outcome;
use abide_conversation::usage::Usage;
use abide_conversation::{ConversationId, Principal, Rejection, Scoped};
use serde_json::{Value, json};

use crate::sub_agents::{
    BOSS, CAREFUL_KID, KID, MIDDLE, all_conversations, check_all_settled, child, children,
    grand_boss, inbox, result_ui, suspended,
};
use crate::test_node::{TestNode, results, user_message};

async fn start_with_agents(agents: &[&str]) -> TestNode {
    let node = TestNode::new(agents[0]).await;
    for agent in &agents[1..] {
        node.define(agent).await;
    }
    node
}

fn failed(why: &str) -> Value {
    json!({"ok": false, "error": why, "error_type": "TOOL_ERROR"})
}

#[tokio::test(start_paused = true)]
async fn a_childs_last_message_is_the_result_of_the_call() {
    let node = start_with_agents(&[BOSS, KID]).await;
    node.send("x", "the question").await.unwrap();
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
    let events = node.journal("x").await;
    let expected = json!({"ok": true, "result": "kid heard the question"});
    assert_eq!(results(&events, "c"), [expected]);
    let child = child(&node, "x").await;
    let ui = result_ui(&events, "c").unwrap();
    assert_eq!(ui.kind, "subagent");
    let Value::Object(mut payload) = ui.payload else { unreachable!() };
    assert!(payload.remove("duration_ms").unwrap().is_u64());
    let payload = Value::Object(payload);
    let expected = json!({
        "subagent_id": child, "iterations": 1, "tool_calls_made": 0, "cost_usd": null,
        "isolation": "shared",
    });
    assert_eq!(payload, expected);
    check_all_settled(&node).await;
    assert_eq!(all_conversations(&node).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn arguments_that_are_no_prompt_are_the_childs_message_as_they_are() {
    let boss = BOSS.replace(r#"{prompt: "{{ user }}"}"#, "{topic: tea, cups: 2}");
    let node = start_with_agents(&[&boss, KID]).await;
    node.send("x", "go").await.unwrap();
    node.turn_end("x", 1).await;
    let events = node.journal(&child(&node, "x").await).await;
    let Some(EventData::UserMsg(message)) = events.get(1).map(|event| &event.data) else {
        unreachable!()
    };
    let block = json!({"type": "json", "data": {"topic": "tea", "cups": 2}});
    assert_eq!(message.message.content, [block]);
    check_all_settled(&node).await;
}

#[tokio::test(start_paused = true)]
async fn a_structured_childs_value_is_the_result() {
    let kid = KID
        .replace("name: kid", "name: kid\nresponse_format: {type: object}")
        .replace("kid heard {{ user }}", r#"{\"n\": 3}"#);
    let node = start_with_agents(&[BOSS, &kid]).await;
    node.send("x", "go").await.unwrap();
    node.turn_end("x", 1).await;
    let value = json!({"ok": true, "result": {"n": 3}});
    assert_eq!(results(&node.journal("x").await, "c"), [value]);
}

/// An agent that calls `spawn_agent` with these arguments.
fn spawner(args: Value) -> String {
    format!(
        r#"
name: a
model:
  provider: scripted
  script:
    - when: "^go"
      steps:
        - calls: [{{id: c, name: spawn_agent, args: {args}}}]
        - text: "{{{{ results.spawn_agent.result or results.spawn_agent.error }}}}"
    - when: "^echo"
      steps:
        - calls: [{{id: e, name: echo, args: {{n: 1}}}}]
        - text: "{{{{ 'ran' if results.echo.ok else results.echo.error }}}}"
    - steps: [{{text: "I heard {{{{ user }}}}"}}]
tools: [{{builtin: [spawn_agent]}}, {{name: echo, run: {{native: echo}}}}]
"#
    )
}

#[tokio::test(start_paused = true)]
async fn a_model_may_ask_any_agent_itself_included() {
    for (args, expected) in [
        (json!({"prompt": "tea", "agent": "kid"}), json!({"ok": true, "result": "kid heard tea"})),
        (json!({"prompt": "tea"}), json!({"ok": true, "result": "I heard tea"})),
        (json!({"prompt": "echo"}), json!({"ok": true, "result": "ran"})),
        (
            json!({"prompt": "echo", "tools": ["spawn_agent"]}),
            json!({"ok": true, "result": "permission denied: echo is refused by allowed_tools"}),
        ),
        (json!({}), failed("missing_prompt")),
        (
            json!({"prompt": "tea", "agent": "nobody"}),
            failed("sub_agent_failed: agent nobody does not exist"),
        ),
    ] {
        let node = start_with_agents(&[&spawner(args.clone()), KID]).await;
        node.send("x", "go").await.unwrap();
        assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
        assert_eq!(results(&node.journal("x").await, "c"), [expected], "{args}");
        check_all_settled(&node).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_works_for_the_same_principal_with_the_same_assigns() {
    let node = start_with_agents(&[BOSS, CAREFUL_KID]).await;
    let Request::Send(mut message) = user_message("go", IfBusy::Reject) else { unreachable!() };
    message.assigns = json!({"desk": 4}).as_object().unwrap().clone();
    node.deliver("x", Request::Send(message)).await.unwrap();
    let child = child(&node, "x").await;
    suspended(&node, &child).await;
    let events = node.journal(&child).await;
    let EventData::Created(created) = &events[0].data else { unreachable!() };
    assert_eq!(created.assigns.get("desk"), None, "a message's assigns became the child's own");
    let parent = created.parent.as_ref().unwrap();
    let named = (parent.conversation_id.as_str(), parent.call_id.as_str(), parent.depth);
    assert_eq!(named, ("x", "c", 1));
    let EventData::UserMsg(message) = &events[1].data else { unreachable!() };
    assert_eq!(message.principal, Principal::new("ada"));
    assert_eq!(json!(message.assigns), json!({"desk": 4}));
    node.approve(&child, "k").await.unwrap();
    node.turn_end("x", 1).await;
    let result = &results(&node.journal(&child).await, "k")[0]["result"];
    assert_eq!(result["assigns"], json!({"site": "one", "shift": "day", "desk": 4}));
    check_all_settled(&node).await;
}

#[tokio::test(start_paused = true)]
async fn a_grandchild_waits_in_the_inbox_under_the_root_and_is_answered_there() {
    let node = start_with_agents(&[&grand_boss(), MIDDLE, CAREFUL_KID]).await;
    node.send("x", "go").await.unwrap();
    let middle = child(&node, "x").await;
    let kid = child(&node, &middle).await;
    suspended(&node, &kid).await;
    let waiting = inbox(&node).await;
    assert_eq!(waiting.len(), 1);
    assert_eq!(waiting[0].conversation_id.as_str(), kid);
    let root = waiting[0].pending.root_conversation_id.as_ref();
    assert_eq!(root, Some(&ConversationId::new("x")));
    for id in ["x", &middle, &kid] {
        node.wait_until_passivated(id).await;
    }
    let snapshot =
        node.conversations.snapshot(&Scoped::parse("x").unwrap()).await.unwrap().unwrap();
    assert_eq!(snapshot.in_flight[0].child_conversation_id, Some(ConversationId::new(&*middle)));
    node.approve(&kid, "k").await.unwrap();
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
    let expected = json!({"ok": true, "result": "kid got 7"});
    assert_eq!(results(&node.journal("x").await, "c"), [expected]);
    check_all_settled(&node).await;
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_root_takes_its_children_and_theirs_with_it() {
    let node = start_with_agents(&[&grand_boss(), MIDDLE, CAREFUL_KID]).await;
    node.send("x", "go").await.unwrap();
    let middle = child(&node, "x").await;
    let kid = child(&node, &middle).await;
    suspended(&node, &kid).await;
    node.deliver("x", Request::Cancel).await.unwrap();
    for id in [&middle, &kid] {
        assert_eq!(node.turn_end(id, 1).await, (TurnOutcome::Cancelled, None));
    }
    check_all_settled(&node).await;
    let released = |data: &EventData| matches!(data, EventData::ChildReleased(_));
    node.poll_for_event("x", released).await;
    node.poll_for_event(&middle, released).await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_calls_itself_forever_is_stopped_at_a_depth_of_five() {
    let own = BOSS.replace("agent: kid", "agent: a");
    let node = start_with_agents(&[&own]).await;
    node.send("x", "go").await.unwrap();
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
    let deep = json!({"ok": true, "result": "sub_agent_failed: sub-agents may be nested 5 deep"});
    assert_eq!(results(&node.journal("x").await, "c"), [deep]);
    assert_eq!(all_conversations(&node).await.len(), 6);
    check_all_settled(&node).await;
}

#[tokio::test(start_paused = true)]
async fn at_most_sixteen_children_of_a_conversation_run_at_once() {
    let calls: Vec<Value> =
        (0..17).map(|n| json!({"id": format!("c{n}"), "name": "ask", "args": {}})).collect();
    let boss = format!(
        "name: a\nmodel: {{provider: scripted, script: [{{calls: {}}}, {{text: Well.}}]}}\n\
         tools: [{{name: ask, run: {{agent: kid}}}}]",
        Value::Array(calls)
    );
    let node = start_with_agents(&[&boss, KID]).await;
    node.send("x", "go").await.unwrap();
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
    let events = node.journal("x").await;
    for n in 0..16 {
        assert_eq!(results(&events, &format!("c{n}"))[0]["ok"], true, "{n}");
    }
    let many = failed("sub_agent_failed: 16 sub-agents may run at once here");
    assert_eq!(results(&events, "c16"), [many]);
    assert_eq!(all_conversations(&node).await.len(), 17);
    check_all_settled(&node).await;
}

#[tokio::test(start_paused = true)]
async fn a_child_without_an_answer_fails_the_call() {
    let halts = CAREFUL_KID.replace("native: echo", "native: halt").replace("{n: 7}", "{}");
    let halts = halts.replace(", approval: requires_approval", "");
    let breaks = KID.replace("{text: \"kid heard {{ user }}\",", "{error: {message: broken},");
    for (kid, why) in [
        (halts.as_str(), "sub_agent_failed: enough"),
        (breaks.as_str(), "sub_agent_failed: broken"),
    ] {
        let node = start_with_agents(&[BOSS, kid]).await;
        node.send("x", "go").await.unwrap();
        assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
        assert_eq!(results(&node.journal("x").await, "c"), [failed(why)]);
        check_all_settled(&node).await;
    }
    let node = start_with_agents(&[BOSS, CAREFUL_KID]).await;
    node.send("x", "go").await.unwrap();
    let child = child(&node, "x").await;
    suspended(&node, &child).await;
    node.deliver(&child, Request::Cancel).await.unwrap();
    node.turn_end("x", 1).await;
    let cancelled = failed("sub_agent_failed: it was cancelled");
    assert_eq!(results(&node.journal("x").await, "c"), [cancelled]);
    check_all_settled(&node).await;
}

#[tokio::test(start_paused = true)]
async fn a_child_that_takes_too_long_is_stopped_and_the_turn_goes_on() {
    let boss = BOSS.replace("run_timeout: 1h", "run_timeout: 2m");
    let node = start_with_agents(&[&boss, CAREFUL_KID]).await;
    node.send("x", "go").await.unwrap();
    let child = child(&node, "x").await;
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
    let events = node.journal("x").await;
    assert_eq!(results(&events, "c"), [failed("sub_agent_timeout")]);
    let at = |matches: fn(&EventData) -> bool| {
        events.iter().find(|event| matches(&event.data)).unwrap().at
    };
    let began = at(|data| matches!(data, EventData::ChildStarted(_)));
    let took = at(|data| matches!(data, EventData::ToolResult(_))).duration_since(began);
    assert!((120_000..121_000).contains(&took.as_millis()), "{took:?}");
    assert_eq!(node.turn_end(&child, 1).await, (TurnOutcome::Cancelled, None));
    check_all_settled(&node).await;
}

fn dispatch(input: Value) -> Request {
    let (tool, principal) = ("ask".to_owned(), Principal::new("ada"));
    Request::Dispatch(DispatchRequest { tool, input, approved: false, principal })
}

#[tokio::test(start_paused = true)]
async fn a_users_own_call_is_answered_by_a_child_however_long_it_takes() {
    let node = start_with_agents(&[
        &BOSS.replace("run: {agent", "audience: all, run: {agent"),
        CAREFUL_KID,
    ])
    .await;
    node.send("x", "go").await.unwrap();
    node.deliver("x", Request::Cancel).await.unwrap();
    let answers = async {
        let begun =
            node.poll_for_event("x", |data| matches!(data, EventData::DispatchStarted(_))).await;
        let EventData::DispatchStarted(begun) = begun.data else { unreachable!() };
        let child = begun.child.unwrap();
        suspended(&node, child.as_str()).await;
        node.wait_until_passivated(child.as_str()).await;
        node.approve(child.as_str(), "k").await.unwrap();
    };
    let (reply, ()) = tokio::join!(node.deliver("x", dispatch(json!({"prompt": "tea"}))), answers);
    let Ok(Reply::Dispatched { outcome, ui: Some(ui) }) = reply else { panic!("{reply:?}") };
    assert_eq!((outcome, ui.kind.as_str()), (Outcome::Ok(json!("kid got 7")), "subagent"));
    check_all_settled(&node).await;
}

#[tokio::test(start_paused = true)]
async fn a_users_own_call_has_one_result_though_its_conversation_dies_meanwhile() {
    let node = start_with_agents(&[
        &BOSS.replace("run: {agent", "audience: all, run: {agent"),
        CAREFUL_KID,
    ])
    .await;
    node.send("x", "go").await.unwrap();
    node.deliver("x", Request::Cancel).await.unwrap();
    let ask = || {
        let repeat = IdempotencyKey {
            key: "key:k".to_owned(),
            fingerprint: "1".to_owned(),
            field: "Idempotency-Key".into(),
        };
        node.deliver_keyed("x", dispatch(json!({"prompt": "tea"})), vec![repeat])
    };
    let begun = async {
        let begun =
            node.poll_for_event("x", |data| matches!(data, EventData::DispatchStarted(_))).await;
        let EventData::DispatchStarted(begun) = begun.data else { unreachable!() };
        let child = begun.child.unwrap().to_string();
        suspended(&node, &child).await;
        node.kill("x").await;
        child
    };
    let (lost, child) = tokio::join!(ask(), begun);
    assert_eq!(lost, Err(RequestError::Lost));
    let (reply, ()) = tokio::join!(ask(), async { drop(node.approve(&child, "k").await) });
    let Ok(Reply::Dispatched { outcome, .. }) = &reply else { panic!("{reply:?}") };
    assert_eq!(*outcome, Outcome::Ok(json!("kid got 7")));
    assert_eq!(ask().await, reply, "the repeat of a finished call got another answer");
    let done = |event: &&Event| matches!(event.data, EventData::DispatchFinished(_));
    assert_eq!(node.journal("x").await.iter().filter(done).count(), 1);
    check_all_settled(&node).await;
}

#[tokio::test(start_paused = true)]
async fn what_children_cost_is_added_to_what_their_parents_do() {
    let node = start_with_agents(&[&grand_boss(), MIDDLE, KID]).await;
    node.send("x", "go").await.unwrap();
    node.turn_end("x", 1).await;
    let used =
        |input_tokens, output_tokens| Usage { input_tokens, output_tokens, ..Usage::default() };
    let middle = child(&node, "x").await;
    let kid = child(&node, &middle).await;
    assert_eq!(node.state(&kid).await.usage, used(5, 2));
    assert_eq!(node.state(&middle).await.usage, used(35, 5));
    assert_eq!(node.state("x").await.usage, used(135, 15));
    let snapshot =
        node.conversations.snapshot(&Scoped::parse("x").unwrap()).await.unwrap().unwrap();
    assert_eq!(snapshot.usage, used(135, 15));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_parent_takes_its_children_along() {
    let node = start_with_agents(&[BOSS, CAREFUL_KID]).await;
    node.send("x", "go").await.unwrap();
    let child = child(&node, "x").await;
    suspended(&node, &child).await;
    node.deliver("x", Request::Delete).await.unwrap();
    let gone = node.approve(&child, "k").await;
    assert!(matches!(gone, Err(RequestError::Rejected(Rejection::NotFound))), "{gone:?}");
    assert!(all_conversations(&node).await.is_empty());
}

/// However far the parent and its child have come when the parent is deleted.
#[tokio::test(start_paused = true)]
async fn a_parent_that_is_deleted_at_any_moment_leaves_no_child() {
    let node = start_with_agents(&[BOSS, CAREFUL_KID]).await;
    for yields in 0..300 {
        let id = format!("x{yields}");
        node.send(&id, "go").await.unwrap();
        for _ in 0..yields {
            tokio::task::yield_now().await;
        }
        node.deliver(&id, Request::Delete).await.unwrap();
    }
    // What was on its way arrives.
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(all_conversations(&node).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_child_answers_its_parent_before_it_goes() {
    let node = start_with_agents(&[BOSS, CAREFUL_KID]).await;
    node.send("x", "go").await.unwrap();
    let child = child(&node, "x").await;
    suspended(&node, &child).await;
    node.deliver(&child, Request::Delete).await.unwrap();
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
    let deleted = failed("sub_agent_failed: its conversation was deleted");
    assert_eq!(results(&node.journal("x").await, "c"), [deleted]);
    assert_eq!(all_conversations(&node).await, ["x"]);
    check_all_settled(&node).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_said_to_a_child_later_stays_with_it() {
    let node = start_with_agents(&[BOSS, KID]).await;
    node.send("x", "go").await.unwrap();
    node.turn_end("x", 1).await;
    let child = child(&node, "x").await;
    check_all_settled(&node).await;
    let before = node.journal("x").await;
    let Request::Send(mut message) = user_message("more", IfBusy::Reject) else { unreachable!() };
    message.agent = None;
    node.deliver(&child, Request::Send(message)).await.unwrap();
    node.turn_end(&child, 2).await;
    check_all_settled(&node).await;
    node.wait_until_passivated(&child).await;
    assert_eq!(node.journal("x").await, before);
    let is_notification = |event: &&Event| matches!(event.data, EventData::ParentNotified(_));
    assert_eq!(node.journal(&child).await.iter().filter(is_notification).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_child_is_abandoned_by_its_own_parent_only() {
    let node = start_with_agents(&[BOSS, CAREFUL_KID]).await;
    node.send("x", "go").await.unwrap();
    node.send("y", "go").await.unwrap();
    let mine = child(&node, "x").await;
    suspended(&node, &mine).await;
    assert_ne!(children(&node.journal("y").await).first(), Some(&mine));
    let created = node.journal(&mine).await.remove(0);
    let EventData::Created(created) = created.data else { unreachable!() };
    let mut parent = created.parent.unwrap();
    parent.conversation_id = ConversationId::new("y");
    let abandon = abide_conversation::command::Create {
        agent: created.agent,
        assigns: Default::default(),
        fork: None,
        title: None,
        expires_at: None,
        participants: Default::default(),
        metadata: Default::default(),
        tools: Vec::new(),
        parent: Some(Box::new(parent)),
    };
    let refused = node.deliver(&mine, Request::Abandon(Box::new(abandon))).await;
    assert!(matches!(refused, Err(RequestError::Rejected(_))), "{refused:?}");
    assert!(!node.state(&mine).await.abandoned);
}
