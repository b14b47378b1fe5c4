//! What survives a kill: queues, principals, arguments, revisions, connected clients.

use abide_tests::model_server::{ModelServer, Piece};
use abide_tests::node::Site;
use abide_tests::tool_server::ToolServer;
use serde_json::json;

use crate::ABIDE;
use crate::agents::{agent, calls_once, client, http};

#[tokio::test]
async fn a_queued_message_is_still_queued_after_a_kill() {
    let (site, tools) = (Site::new(ABIDE), ToolServer::start().await);
    let node = site.start().await;
    site.client.define("a", &calls_once(vec![http("it", &tools, "/hold", json!({}))])).await;
    site.client.send_message("c", "a", "one").await;
    tools.requests.nth(1).await;
    let queued = json!({"text": "two", "if_busy": "queue"});
    let queued = site.client.post("/v1/conversations/c/messages", &queued).await.expect(202);
    node.kill().await;

    let _node = site.start().await;
    tools.requests.nth(2).await;
    assert_eq!(site.client.snapshot("c").await["queued"], 1);
    tools.release();
    let journal = site.client.wait_until_settled("c", 2).await;
    assert_eq!(journal.outcomes(), ["completed", "completed"]);
    assert_eq!(journal.of("turn_ended").last().unwrap()["turn_id"], queued["turn_id"]);
    assert_eq!(journal.of("user_msg").count(), 2);
}

#[tokio::test]
async fn a_node_of_another_name_takes_up_what_a_killed_one_ran() {
    let (site, tools) = (Site::new(ABIDE), ToolServer::start().await);
    let node = site.start().await;
    site.client.define("a", &calls_once(vec![http("it", &tools, "/hold", json!({}))])).await;
    site.client.send_message("c", "a", "go").await;
    tools.requests.nth(1).await;
    let before = site.client.snapshot("c").await;
    node.kill().await;

    let site = site.named("another");
    let _node = site.start().await;
    tools.requests.nth(2).await;
    let after = site.client.snapshot("c").await;
    assert_eq!(
        (&before["holder"]["node"], &after["holder"]["node"]),
        (&json!("test"), &json!("another"))
    );
    assert!(after["holder"]["epoch"].as_u64() > before["holder"]["epoch"].as_u64());
    tools.release();
    assert_eq!(site.client.wait_until_settled("c", 1).await.outcomes(), ["completed"]);
}

#[tokio::test]
async fn a_revived_run_is_still_its_approvers_with_the_arguments_that_were_edited() {
    let (site, tools) = (Site::new(ABIDE), ToolServer::start().await);
    let node = site.start().await;
    let gated = http("it", &tools, "/hold", json!({"approval": "requires_approval"}));
    site.client.define("a", &calls_once(vec![gated])).await;
    let message = json!({"text": "go", "agent": "a", "assigns": {"tenant": 7}});
    let path = "/v1/conversations/c/messages";
    site.client.clone().named("ann").post(path, &message).await.expect(202);
    site.client.wait_for_pending("c", "it", "approval").await;
    let edited = json!({"approved": true, "args": {"n": 2}});
    site.client.clone().named("bob").resolve("c", "it", edited).await.expect(200);
    let first = tools.requests.nth(1).await;
    node.kill().await;

    let _node = site.start().await;
    let second = tools.requests.nth(2).await;
    tools.release();
    for (run, attempt) in [(&first, 1), (&second, 2)] {
        assert_eq!(run.body["principal"], "bob");
        assert_eq!(run.body["args"], json!({"n": 2}));
        assert_eq!(run.body["assigns"], json!({"tenant": 7}));
        assert_eq!(run.body["attempt"], attempt);
    }
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.outcomes(), ["completed"]);
    assert_eq!(journal.of("user_msg").next().unwrap()["data"]["principal"], "ann");
    let resolution = journal.of("resolution").next().unwrap();
    assert_eq!(
        (&resolution["data"]["by"], &resolution["data"]["args"]),
        (&json!("bob"), &json!({"n": 2}))
    );
    assert_eq!(journal.of("resolution").count(), 1);
}

#[tokio::test]
async fn an_open_turn_ends_on_its_revision_though_its_agent_was_deleted_before_the_kill() {
    let (site, tools) = (Site::new(ABIDE), ToolServer::start().await);
    let node = site.start().await;
    let gated = http("it", &tools, "/answer", json!({"approval": "requires_approval"}));
    site.client.define("a", &calls_once(vec![gated])).await;
    site.client.send_message("c", "a", "go").await;
    site.client.wait_for_pending("c", "it", "approval").await;
    site.client.define("a", &calls_once(vec![])).await;
    let deleted = site.client.ask(reqwest::Method::DELETE, "/v1/agents/a", None, None).await;
    assert_eq!(deleted.unwrap().status, 204);
    node.kill().await;

    let _node = site.start().await;
    site.client.resolve("c", "it", json!({"approved": true})).await.expect(200);
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.outcomes(), ["completed"]);
    assert_eq!(journal.result("it")["result"]["attempt"], 1);
    let more = site.client.post("/v1/conversations/c/messages", &json!({"text": "more"})).await;
    more.expect_problem(409, "agent-missing");
}

#[tokio::test]
async fn a_message_that_interrupts_is_not_lost_to_a_kill() {
    let (site, model) = (Site::new(ABIDE), ModelServer::start().await);
    let node = site.start().await;
    site.client.define("a", &agent(model.model(), vec![])).await;
    site.client.post("/v1/conversations", &json!({"id": "c", "agent": "a"})).await.expect(201);
    let mut frames = site.client.events("c", None).await;
    model.reply(vec![Piece::Text("I was say"), Piece::Hold]);
    model.reply(vec![Piece::Text("Half"), Piece::Hold]);
    model.reply(vec![Piece::Text("Better.")]);
    site.client.send_message("c", "a", "one").await;
    frames.wait_for("text_delta").await;
    let interrupts = json!({"text": "two", "if_busy": "interrupt"});
    site.client.post("/v1/conversations/c/messages", &interrupts).await.expect(202);
    model.requests.nth(2).await;
    node.kill().await;

    let _node = site.start().await;
    let journal = site.client.wait_until_settled("c", 2).await;
    assert_eq!(journal.outcomes(), ["cancelled", "completed"]);
    let messages: Vec<_> = journal.of("assistant_msg").map(|event| &event["data"]).collect();
    assert_eq!((messages.len(), &messages[0]["status"]), (2, &json!("cancelled")));
    assert_eq!(messages[0]["message"]["content"][0]["text"], "I was say");
    assert_eq!(journal.last_text(), "Better.");
    model.assert_prompts_are_whole();
}

#[tokio::test]
async fn a_client_call_without_a_page_ends_after_a_kill_as_it_would_have_before() {
    let site = Site::new(ABIDE);
    let node = site.start().await;
    let mut graceful = calls_once(vec![client("page")]);
    graceful["client_grace"] = json!("800ms");
    site.client.define("a", &graceful).await;
    site.client.post("/v1/conversations", &json!({"id": "c", "agent": "a"})).await.expect(201);
    let page = site.client.events("c", None).await;
    site.client.send_message("c", "a", "go").await;
    site.client.wait_for_pending("c", "page", "client_exec").await;
    node.kill().await;
    drop(page);

    let _node = site.start().await;
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.outcomes(), ["completed"]);
    assert_eq!(journal.result("page")["error"], "no client connected");
    assert_eq!(journal.result("page")["error_type"], "NO_CLIENT");
}
