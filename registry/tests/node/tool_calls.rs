//! How tool runs end, and how users dispatch tools themselves.

use abide_actors::request::{DispatchRequest, IdempotencyKey, Reply, Request, RequestError};
use abide_conversation::Principal;
use abide_conversation::event::{EventData, TurnOutcome};
use abide_conversation::message::Outcome;
use serde_json::{Value, json};

use crate::test_node::{TestNode, results};

fn one_call(tool: &str, entry: &str) -> String {
    format!(
        r#"
name: a
assigns: {{site: one, who: agent}}
model: {{provider: scripted, script: [{{calls: [{{id: c, name: {tool}, args: {{}}}}]}}, {{text: "Well."}}]}}
tools: [{entry}]
"#
    )
}

#[tokio::test(start_paused = true)]
async fn a_run_past_its_time_ends_with_a_timeout() {
    let node =
        TestNode::new(&one_call("hold", "{name: hold, run: {native: hold}, run_timeout: 60s}"))
            .await;
    node.send("x", "go").await.unwrap();
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
    let timeout = json!({"ok": false, "error": "timed out after 60s", "error_type": "TIMEOUT"});
    assert_eq!(results(&node.journal("x").await, "c"), [timeout]);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_panics_crashes_alone_and_tells_no_secret() {
    let node = TestNode::new(&one_call("boom", "{name: boom, run: {native: boom}}")).await;
    node.send("x", "go").await.unwrap();
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
    let crashed = json!({"ok": false, "error": "tool crashed", "error_type": "TOOL_CRASHED"});
    assert_eq!(results(&node.journal("x").await, "c"), [crashed]);
}

#[tokio::test(start_paused = true)]
async fn a_halt_ends_the_turn_with_a_result_for_every_call() {
    let node = TestNode::new(
        r#"
name: a
model:
  provider: scripted
  script: [{calls: [{id: c, name: halt, args: {}}, {id: d, name: hold, args: {}}]}, {text: "Well."}]
tools: [{name: halt, run: {native: halt}}, {name: hold, run: {native: hold}}]
"#,
    )
    .await;
    node.send("x", "go").await.unwrap();
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Halted, Some("enough".to_owned())));
    let events = node.journal("x").await;
    assert_eq!(results(&events, "d")[0]["error_type"], "CANCELLED");
    node.check("x").await;
}

fn dispatch(tool: &str, input: Value, approved: bool) -> Request {
    let (tool, principal) = (tool.to_owned(), Principal::new("ada"));
    Request::Dispatch(DispatchRequest { tool, input, approved, principal })
}

const TOOLS: &str = r#"
name: a
assigns: {site: one}
model: {provider: scripted, script: [{calls: [{id: c, name: hold, args: {}}]}, {text: "Well."}]}
tools:
  - {name: hold, run: {native: hold}, run_timeout: 1h}
  - {name: echo, run: {native: echo}, audience: user, aliases: [say]}
  - {name: careful, run: {native: echo}, approval: {when: "args.n > 100"}}
"#;

#[tokio::test(start_paused = true)]
async fn a_users_own_call_runs_beside_a_turn_and_outside_its_context() {
    let node = TestNode::new(TOOLS).await;
    node.send("x", "go").await.unwrap();
    node.wait_for_holds(1).await;
    let reply = node.deliver("x", dispatch("say", json!({"n": 1}), false)).await.unwrap();
    let result = json!({"args": {"n": 1, "unit": "m"}, "assigns": {"site": "one"}});
    assert_eq!(reply, Reply::Dispatched { outcome: Outcome::Ok(result), ui: None });
    let done =
        node.wait_for_event("x", |data| matches!(data, EventData::DispatchFinished(_))).await;
    assert!(done.turn_id.is_none());
    node.tools.release.add_permits(1);
    node.turn_end("x", 1).await;
    node.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_users_own_call_is_refused_for_its_name_its_input_or_its_gate() {
    let node = TestNode::new(TOOLS).await;
    node.tools.release.add_permits(9);
    node.send("x", "go").await.unwrap();
    let refused = node.deliver("x", dispatch("nope", json!({}), false)).await;
    assert_eq!(refused, Err(RequestError::ToolNotFound("nope".to_owned())));
    let refused = node.deliver("x", dispatch("echo", json!({"n": "one"}), false)).await;
    assert!(
        matches!(&refused, Err(RequestError::Invalid { field, message })
        if field == "input" && message.contains('n')),
        "{refused:?}"
    );
    let refused = node.deliver("x", dispatch("careful", json!({"n": 101}), false)).await;
    assert_eq!(refused, Err(RequestError::ApprovalRequired("careful".to_owned())));
    node.deliver("x", dispatch("careful", json!({"n": 101}), true)).await.unwrap();
    node.deliver("x", dispatch("careful", json!({"n": 100}), false)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_repeated_users_call_joins_the_one_that_runs() {
    let node = TestNode::new(TOOLS).await;
    node.tools.release.add_permits(1);
    node.send("x", "go").await.unwrap();
    node.turn_end("x", 1).await;
    let key = |print: &str| {
        vec![IdempotencyKey {
            key: "key:k".to_owned(),
            fingerprint: print.to_owned(),
            field: "Idempotency-Key".into(),
        }]
    };
    let call = || dispatch("hold", json!({}), false);
    let (first, second, other, ()) = tokio::join!(
        node.deliver_keyed("x", call(), key("1")),
        node.deliver_keyed("x", call(), key("1")),
        node.deliver_keyed("x", call(), key("2")),
        async {
            node.wait_for_holds(2).await;
            tokio::task::yield_now().await;
            node.tools.release.add_permits(1);
        }
    );
    assert_eq!(first, second);
    assert_eq!(other, Err(RequestError::KeyReused("Idempotency-Key".into())));
    assert_eq!(
        node.deliver_keyed("x", call(), key("1")).await,
        first,
        "the repeat of a finished call got another answer"
    );
}

#[tokio::test(start_paused = true)]
async fn a_deleted_conversation_answers_those_who_wait_for_its_tools() {
    let node = TestNode::new(TOOLS).await;
    node.tools.release.add_permits(1);
    node.send("x", "go").await.unwrap();
    node.turn_end("x", 1).await;
    let (waited, ()) = tokio::join!(node.deliver("x", dispatch("hold", json!({}), false)), async {
        node.wait_for_holds(2).await;
        node.deliver("x", Request::Delete).await.unwrap();
    });
    assert!(matches!(waited, Err(RequestError::Rejected(_))), "{waited:?}");
}
