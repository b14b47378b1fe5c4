//! SIGKILL at chosen moments: each turn goes on after the restart, with one result per call.

use abide_tests::model_server::{ModelServer, Piece};
use abide_tests::node::Site;
use abide_tests::tool_server::ToolServer;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::agents::{agent, calls_once, client, gated_client, http, human};

#[tokio::test]
async fn a_model_stream_that_a_kill_interrupts_is_requested_again() {
    let (site, model) = (Site::new(ABIDE), ModelServer::start().await);
    let node = site.start().await;
    site.client.define("a", &agent(model.model(), vec![])).await;
    let new = json!({"id": "c", "agent": "a"});
    site.client.post("/v1/conversations", &new).await.expect(201);
    let mut frames = site.client.events("c", None).await;
    model.reply(vec![Piece::Text("Half a sent"), Piece::Hold]);
    model.reply(vec![Piece::Text("A whole "), Piece::Text("sentence.")]);
    site.client.send_message("c", "a", "speak").await;
    let read = frames.wait_for("text_delta").await;
    assert_eq!(read.last().unwrap().data["text"], "Half a sent");
    node.kill().await;

    let _node = site.start().await;
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.outcomes(), ["completed"]);
    assert_eq!(journal.of("assistant_msg").count(), 1);
    assert_eq!(journal.last_text(), "A whole sentence.");
    assert_eq!(model.requests.all().len(), 2);
    model.assert_prompts_are_whole();
}

#[tokio::test]
async fn a_run_that_was_killed_is_dispatched_again_under_the_same_key() {
    let (site, model) = (Site::new(ABIDE), ModelServer::start().await);
    let (node, tools) = (site.start().await, ToolServer::start().await);
    let hold = http("hold", &tools, "/hold", json!({}));
    site.client.define("a", &agent(model.model(), vec![hold])).await;
    model.reply(vec![Piece::Text("I run it."), Piece::Call("call_1", "hold", json!({"n": 7}))]);
    site.client.send_message("c", "a", "run").await;
    let first = tools.requests.nth(1).await;
    node.kill().await;

    let _node = site.start().await;
    let second = tools.requests.nth(2).await;
    tools.release();
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(first.call(), "c/call_1");
    assert!(first.has_key_of_call(), "{first:?}");
    assert_eq!(first.header("idempotency-key"), second.header("idempotency-key"));
    assert_eq!((&first.body["attempt"], &second.body["attempt"]), (&json!(1), &json!(2)));
    assert_eq!(second.body["args"], json!({"n": 7}));
    assert_eq!(second.body["turn_id"], first.body["turn_id"]);
    assert_eq!(journal.result("call_1")["result"], json!({"did": {"n": 7}, "attempt": 2}));
    assert_eq!((journal.outcomes(), journal.last_text()), (vec!["completed"], "Done.".into()));
    assert_eq!((tools.requests.all().len(), model.requests.all().len()), (2, 2));
    model.assert_prompts_are_whole();
}

#[tokio::test]
async fn a_run_that_must_not_be_repeated_is_interrupted_by_a_kill() {
    let (site, tools) = (Site::new(ABIDE), ToolServer::start().await);
    let node = site.start().await;
    let once = http("once", &tools, "/hold", json!({"on_interrupt": "fail"}));
    site.client.define("a", &calls_once(vec![once])).await;
    site.client.send_message("c", "a", "run").await;
    tools.requests.nth(1).await;
    node.kill().await;

    let _node = site.start().await;
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.outcomes(), ["completed"]);
    assert_eq!(journal.result("once")["error"], "tool call interrupted");
    assert_eq!(journal.result("once")["error_type"], "INTERRUPTED");
    assert_eq!(tools.requests.all().len(), 1);
}

/// Kills the node while one call waits, answers it afterwards, and returns the call's result.
async fn killed_while_waiting(tool: Value, kind: &str, answer: Value) -> Value {
    let site = Site::new(ABIDE);
    let node = site.start().await;
    site.client.define("a", &calls_once(vec![tool])).await;
    site.client.send_message("c", "a", "go").await;
    let before = site.client.wait_for_pending("c", "it", kind).await;
    node.kill().await;

    let _node = site.start().await;
    let after = site.client.wait_for_pending("c", "it", kind).await;
    assert_eq!(before, after, "a restart changed an open call or its deadline");
    let inbox = site.client.get("/v1/pending").await.expect(200);
    assert_eq!(inbox["pending"].as_array().unwrap().len(), 1);
    assert_eq!(inbox["pending"][0]["expires_at"], before["expires_at"]);
    site.client.resolve("c", "it", answer.clone()).await.expect(200);
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.outcomes(), ["completed"]);
    assert_eq!(journal.of("suspension").count(), 1);
    site.client.resolve("c", "it", answer).await.expect_problem(409, "call-not-open");
    journal.result("it").clone()
}

#[tokio::test]
async fn an_approval_survives_a_kill() {
    let tools = ToolServer::start().await;
    let gated = http("it", &tools, "/answer", json!({"approval": "requires_approval"}));
    let result = killed_while_waiting(gated, "approval", json!({"approved": true})).await;
    assert_eq!(result["result"], json!({"did": {"n": 1}, "attempt": 1}));
    assert_eq!(tools.requests.all().len(), 1);
}

#[tokio::test]
async fn a_question_to_a_person_survives_a_kill() {
    let result = killed_while_waiting(human("it"), "elicitation", json!({"result": "aisle"})).await;
    assert_eq!((&result["ok"], &result["result"]), (&json!(true), &json!("aisle")));
}

#[tokio::test]
async fn a_call_of_the_page_survives_a_kill() {
    let result =
        killed_while_waiting(client("it"), "client_exec", json!({"error": "no map"})).await;
    assert_eq!((&result["ok"], &result["error"]), (&json!(false), &json!("no map")));
}

#[tokio::test]
async fn a_gated_client_call_killed_between_its_suspensions_waits_for_the_page() {
    let site = Site::new(ABIDE);
    let node = site.start().await;
    site.client.define("a", &calls_once(vec![gated_client("it")])).await;
    site.client.send_message("c", "a", "go").await;
    let first = site.client.wait_for_pending("c", "it", "approval").await;
    site.client.resolve("c", "it", json!({"approved": true})).await.expect(200);
    node.kill().await;

    let node = site.start().await;
    let second = site.client.wait_for_pending("c", "it", "client_exec").await;
    assert_eq!((&first["suspension"], &second["suspension"]), (&json!(1), &json!(2)));
    let again = site.client.resolve("c", "it", json!({"approved": true})).await;
    again.expect_problem(409, "call-not-open");
    let stale = site.client.resolve("c", "it", json!({"result": 1, "suspension": 1})).await;
    stale.expect_problem(409, "call-not-open");
    node.kill().await;

    let _node = site.start().await;
    assert_eq!(site.client.wait_for_pending("c", "it", "client_exec").await, second);
    site.client.resolve("c", "it", json!({"result": {"lat": 1}})).await.expect(200);
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.outcomes(), ["completed"]);
    assert_eq!(journal.result("it")["result"], json!({"lat": 1}));
    assert_eq!((journal.of("suspension").count(), journal.of("resolution").count()), (2, 2));
}

/// Kills the node as soon as the 200 of a resolution has been read, and then only reads the
/// journal.
async fn killed_after_a_resolution(tool: Value, kind: &str, answer: Value) -> Value {
    let site = Site::new(ABIDE);
    let mut node = site.start().await;
    site.client.define("a", &calls_once(vec![tool])).await;
    let mut last = Value::Null;
    // Several times: what the kill interrupts is a matter of microseconds.
    for round in 0..4 {
        let id = format!("c{round}");
        site.client.send_message(&id, "a", "go").await;
        site.client.wait_for_pending(&id, "it", kind).await;
        let accepted = site.client.resolve(&id, "it", answer.clone()).await.expect(200);
        node.kill().await;

        node = site.start().await;
        let journal = site.client.wait_until_settled(&id, 1).await;
        let seq = accepted["seq"].as_u64().unwrap();
        let resolved = journal.of("resolution").find(|event| event["seq"] == seq);
        assert!(resolved.is_some(), "{seq} is not a resolution: {journal:#?}");
        assert_eq!((journal.outcomes(), journal.of("resolution").count()), (vec!["completed"], 1));
        last = journal.result("it").clone();
    }
    last
}

#[tokio::test]
async fn an_acknowledged_approval_goes_on_by_itself_after_a_kill() {
    let tools = ToolServer::start().await;
    let gated = http("it", &tools, "/slow", json!({"approval": "requires_approval"}));
    let result = killed_after_a_resolution(gated, "approval", json!({"approved": true})).await;
    assert_eq!(result["ok"], true);
    assert_eq!(result["result"]["did"], json!({"n": 1}));
}

#[tokio::test]
async fn an_acknowledged_denial_goes_on_by_itself_after_a_kill() {
    let tools = ToolServer::start().await;
    let gated = http("it", &tools, "/answer", json!({"approval": "requires_approval"}));
    let denial = json!({"approved": false, "reason": "too late"});
    let result = killed_after_a_resolution(gated, "approval", denial).await;
    assert_eq!(result["error"], "denied by approver: too late");
    assert_eq!(tools.requests.all().len(), 0);
}

#[tokio::test]
async fn an_acknowledged_answer_of_a_person_goes_on_by_itself_after_a_kill() {
    let answer = json!({"result": "window"});
    let result = killed_after_a_resolution(human("it"), "elicitation", answer).await;
    assert_eq!(result["result"], "window");
}

#[tokio::test]
async fn an_acknowledged_answer_of_the_page_goes_on_by_itself_after_a_kill() {
    let answer = json!({"result": [1, 2]});
    let result = killed_after_a_resolution(client("it"), "client_exec", answer).await;
    assert_eq!(result["result"], json!([1, 2]));
}

#[tokio::test]
async fn a_mixed_turn_that_was_killed_has_both_its_calls() {
    let (site, tools) = (Site::new(ABIDE), ToolServer::start().await);
    let node = site.start().await;
    let runs = http("runs", &tools, "/hold", json!({}));
    site.client.define("a", &calls_once(vec![runs, human("waits")])).await;
    site.client.send_message("c", "a", "both").await;
    tools.requests.nth(1).await;
    site.client.wait_for_pending("c", "waits", "elicitation").await;
    node.kill().await;

    let _node = site.start().await;
    let again = tools.requests.nth(2).await;
    assert_eq!((again.call().as_str(), &again.body["attempt"]), ("c/runs", &json!(2)));
    let snapshot = site.client.snapshot("c").await;
    assert_eq!(snapshot["state"], "awaiting_input");
    assert_eq!(snapshot["in_flight"][0]["call_id"], "runs");
    assert_eq!(snapshot["in_flight"][0]["attempt"], 2);
    assert_eq!(snapshot["pending"][0]["call_id"], "waits");
    site.client.resolve("c", "waits", json!({"result": "yes"})).await.expect(200);
    assert_eq!(site.client.journal("c").await.outcomes().len(), 0, "the run is still open");
    tools.release();
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.outcomes(), ["completed"]);
    assert_eq!(journal.result("waits")["result"], "yes");
    assert_eq!(journal.result("runs")["result"]["attempt"], 2);
}

#[tokio::test]
async fn an_acknowledged_message_goes_on_by_itself_after_a_kill() {
    let site = Site::new(ABIDE);
    let mut node = site.start().await;
    site.client.define("a", &calls_once(vec![])).await;
    for round in 0..4 {
        let id = format!("c{round}");
        let sent = site.client.send_message(&id, "a", "go").await;
        node.kill().await;

        node = site.start().await;
        let journal = site.client.wait_until_settled(&id, 1).await;
        assert_eq!(journal.outcomes(), ["completed"]);
        let message = journal.of("user_msg").next().unwrap();
        assert_eq!((&message["turn_id"], journal.of("user_msg").count()), (&sent["turn_id"], 1));
    }
}
