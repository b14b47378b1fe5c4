//! How runs of tools end, and users' own calls.

use abide_actors::request::{DispatchRequest, IdempotencyKey, Reply, Request, RequestError};
use abide_conversation::Principal;
use abide_conversation::event::{EventData, TurnOutcome};
use abide_conversation::message::Outcome;
use serde_json::{Value, json};

use crate::rig::{Rig, results};

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
    let rig =
        Rig::new(&one_call("hold", "{name: hold, run: {native: hold}, run_timeout: 60s}")).await;
    rig.send("x", "go").await.unwrap();
    assert_eq!(rig.ended("x", 1).await, (TurnOutcome::Completed, None));
    let timeout = json!({"ok": false, "error": "timed out after 60s", "error_type": "TIMEOUT"});
    assert_eq!(results(&rig.journal("x").await, "c"), [timeout]);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_panics_crashes_alone_and_tells_no_secret() {
    let rig = Rig::new(&one_call("boom", "{name: boom, run: {native: boom}}")).await;
    rig.send("x", "go").await.unwrap();
    assert_eq!(rig.ended("x", 1).await, (TurnOutcome::Completed, None));
    let crashed = json!({"ok": false, "error": "tool crashed", "error_type": "TOOL_CRASHED"});
    assert_eq!(results(&rig.journal("x").await, "c"), [crashed]);
}

#[tokio::test(start_paused = true)]
async fn a_halt_ends_the_turn_with_a_result_for_every_call() {
    let rig = Rig::new(
        r#"
name: a
model:
  provider: scripted
  script: [{calls: [{id: c, name: halt, args: {}}, {id: d, name: hold, args: {}}]}, {text: "Well."}]
tools: [{name: halt, run: {native: halt}}, {name: hold, run: {native: hold}}]
"#,
    )
    .await;
    rig.send("x", "go").await.unwrap();
    assert_eq!(rig.ended("x", 1).await, (TurnOutcome::Halted, Some("enough".to_owned())));
    let events = rig.journal("x").await;
    assert_eq!(results(&events, "d")[0]["error_type"], "CANCELLED");
    rig.check("x").await;
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
    let rig = Rig::new(TOOLS).await;
    rig.send("x", "go").await.unwrap();
    rig.held(1).await;
    let reply = rig.ask("x", dispatch("say", json!({"n": 1}), false)).await.unwrap();
    let said = json!({"args": {"n": 1, "unit": "m"}, "assigns": {"site": "one"}});
    assert_eq!(reply, Reply::Dispatched { outcome: Outcome::Ok(said), ui: None });
    let done = rig.until("x", |data| matches!(data, EventData::DispatchFinished(_))).await;
    assert!(done.turn_id.is_none());
    rig.tools.release.add_permits(1);
    rig.ended("x", 1).await;
    rig.check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_users_own_call_is_refused_for_its_name_its_input_or_its_gate() {
    let rig = Rig::new(TOOLS).await;
    rig.tools.release.add_permits(9);
    rig.send("x", "go").await.unwrap();
    let refused = rig.ask("x", dispatch("nope", json!({}), false)).await;
    assert_eq!(refused, Err(RequestError::ToolNotFound("nope".to_owned())));
    let refused = rig.ask("x", dispatch("echo", json!({"n": "one"}), false)).await;
    assert!(
        matches!(&refused, Err(RequestError::Invalid { field, message })
        if field == "input" && message.contains('n')),
        "{refused:?}"
    );
    let refused = rig.ask("x", dispatch("careful", json!({"n": 101}), false)).await;
    assert_eq!(refused, Err(RequestError::ApprovalRequired("careful".to_owned())));
    rig.ask("x", dispatch("careful", json!({"n": 101}), true)).await.unwrap();
    rig.ask("x", dispatch("careful", json!({"n": 100}), false)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_repeated_users_call_joins_the_one_that_runs() {
    let rig = Rig::new(TOOLS).await;
    rig.tools.release.add_permits(1);
    rig.send("x", "go").await.unwrap();
    rig.ended("x", 1).await;
    let key = |print: &str| {
        vec![IdempotencyKey {
            key: "key:k".to_owned(),
            fingerprint: print.to_owned(),
            field: "Idempotency-Key".into(),
        }]
    };
    let call = || dispatch("hold", json!({}), false);
    let (first, second, other, ()) = tokio::join!(
        rig.repeat("x", call(), key("1")),
        rig.repeat("x", call(), key("1")),
        rig.repeat("x", call(), key("2")),
        async {
            rig.held(2).await;
            tokio::task::yield_now().await;
            rig.tools.release.add_permits(1);
        }
    );
    assert_eq!(first, second);
    assert_eq!(other, Err(RequestError::KeyReused("Idempotency-Key".into())));
    assert_eq!(rig.repeat("x", call(), key("1")).await, first, "also after it is done");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_conversation_answers_those_who_wait_for_its_tools() {
    let rig = Rig::new(TOOLS).await;
    rig.tools.release.add_permits(1);
    rig.send("x", "go").await.unwrap();
    rig.ended("x", 1).await;
    let (waited, ()) = tokio::join!(rig.ask("x", dispatch("hold", json!({}), false)), async {
        rig.held(2).await;
        rig.ask("x", Request::Delete).await.unwrap();
    });
    assert!(matches!(waited, Err(RequestError::Rejected(_))), "{waited:?}");
}
