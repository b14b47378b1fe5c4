//! Event streams across a kill.

use abide_tests::frames::ids;
use abide_tests::model_server::{ModelServer, Piece};
use abide_tests::node::Site;
use abide_tests::tool_server::ToolServer;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::agents::{agent, http};

#[tokio::test]
async fn a_stream_that_resumes_after_kills_has_no_gap_and_nothing_twice() {
    let (site, model) = (Site::new(ABIDE), ModelServer::start().await);
    let (node, tools) = (site.start().await, ToolServer::start().await);
    let gated = http("it", &tools, "/slow", json!({"approval": "requires_approval"}));
    site.client.define("a", &agent(model.model(), vec![gated])).await;
    let new = json!({"id": "c", "agent": "a"});
    site.client.post("/v1/conversations", &new).await.expect(201);

    let mut frames = site.client.events("c", None).await;
    model.reply(vec![Piece::Text("Wait. "), Piece::Call("it", "it", json!({}))]);
    model.reply(vec![Piece::Text("Half"), Piece::Hold]);
    model.reply(vec![Piece::Text("Whole.")]);
    site.client.send_message("c", "a", "go").await;
    let mut read = frames.wait_for("suspended").await;
    node.kill().await;
    read.extend(frames.rest().await);

    let node = site.start().await;
    site.client.resolve("c", "it", json!({"approved": true})).await.expect(200);
    // By now the tool has run and the model streams again; the reader has missed both.
    model.requests.nth(2).await;
    let mut frames = site.client.events("c", ids(&read).last().copied()).await;
    read.extend(frames.wait_for("tool_call_resolved").await);
    node.kill().await;
    read.extend(frames.rest().await);

    let _node = site.start().await;
    let journal = site.client.wait_until_settled("c", 1).await;
    let mut frames = site.client.events("c", ids(&read).last().copied()).await;
    read.extend(frames.wait_for("turn_completed").await);
    assert_eq!(ids(&read), journal.mirrored());
    assert_eq!(read.iter().filter(|frame| frame.is_terminal()).count(), 1);
    assert_eq!(read.iter().filter(|frame| frame.name == "snapshot").count(), 3);
    let completed = read.iter().filter(|frame| frame.name == "message_completed");
    assert_eq!(completed.count(), 2);
    model.assert_prompts_are_whole();
}

#[tokio::test]
async fn a_stream_from_the_beginning_has_a_finished_turn_whole_after_a_kill() {
    let (site, model) = (Site::new(ABIDE), ModelServer::start().await);
    let node = site.start().await;
    site.client.define("a", &agent(model.model(), vec![])).await;
    site.client.send_message("c", "a", "one").await;
    site.client.wait_until_settled("c", 1).await;
    site.client.send_message("c", "a", "two").await;
    let journal = site.client.wait_until_settled("c", 2).await;
    node.kill().await;

    let _node = site.start().await;
    let mut frames = site.client.events("c", Some(0)).await;
    let mut read = frames.wait_for("turn_completed").await;
    read.extend(frames.wait_for("turn_completed").await);
    assert_eq!(read[0].name, "snapshot");
    assert_eq!(ids(&read), journal.mirrored());
}

#[tokio::test]
async fn the_first_frame_is_a_snapshot_of_what_waits_after_a_kill() {
    let (site, tools) = (Site::new(ABIDE), ToolServer::start().await);
    let node = site.start().await;
    let gated = http("it", &tools, "/answer", json!({"approval": "requires_approval"}));
    site.client.define("a", &crate::agents::calls_once(vec![gated])).await;
    site.client.send_message("c", "a", "go").await;
    let pending = site.client.wait_for_pending("c", "it", "approval").await;
    node.kill().await;

    let _node = site.start().await;
    let first = site.client.events("c", None).await.next().await.unwrap();
    assert_eq!((first.name.as_str(), first.id), ("snapshot", None));
    assert_eq!(first.data["pending"], json!([pending]));
    assert_eq!(first.data["state"], "awaiting_input");
    assert_eq!(first.data["holder"], Value::Null, "looking starts no actor");
}

#[tokio::test]
async fn a_stream_outlives_the_actor_that_it_shows() {
    let (site, model) = (Site::new(ABIDE), ModelServer::start().await);
    let (_node, tools) = (site.start().await, ToolServer::start().await);
    let runs = http("it", &tools, "/hold", json!({}));
    site.client.define("a", &agent(model.model(), vec![runs])).await;
    let new = json!({"id": "c", "agent": "a"});
    site.client.post("/v1/conversations", &new).await.expect(201);
    let mut frames = site.client.events("c", None).await;
    model.reply(vec![Piece::Text("Half"), Piece::Hold]);
    model.reply(vec![Piece::Text("Whole. "), Piece::Call("it", "it", json!({}))]);
    let kill = async || {
        let killed = site.client.admin(reqwest::Method::POST, "/admin/actors/c/kill").await;
        assert_eq!(killed.status, 202);
    };
    site.client.send_message("c", "a", "go").await;
    let mut read = frames.wait_for("text_delta").await;
    kill().await;
    tools.requests.nth(1).await;
    kill().await;
    tools.requests.nth(2).await;
    tools.release();
    read.extend(frames.wait_for("turn_completed").await);
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(ids(&read), journal.mirrored());
    assert_eq!(read.iter().filter(|frame| frame.is_terminal()).count(), 1);
    model.assert_prompts_are_whole();
}

#[tokio::test]
async fn a_model_that_dies_in_mid_stream_fails_the_turn_and_its_text_is_kept_once() {
    let (site, model) = (Site::new(ABIDE), ModelServer::start().await);
    let _node = site.start().await;
    site.client.define("a", &agent(model.model(), vec![])).await;
    let new = json!({"id": "c", "agent": "a"});
    site.client.post("/v1/conversations", &new).await.expect(201);
    let mut frames = site.client.events("c", None).await;
    model.reply(vec![Piece::Text("I was"), Piece::Hold, Piece::Die]);
    site.client.send_message("c", "a", "go").await;
    frames.wait_for("text_delta").await;
    model.release();
    let read = frames.wait_for("turn_failed").await;
    assert!(read.last().unwrap().data["reason"].is_string());
    let journal = site.client.wait_until_settled("c", 1).await;
    assert_eq!(journal.outcomes(), ["failed"]);
    let messages: Vec<_> = journal.of("assistant_msg").map(|event| &event["data"]).collect();
    assert_eq!((messages.len(), &messages[0]["status"]), (1, &json!("error")));
    assert_eq!(journal.last_text(), "I was");
    assert_eq!(model.requests.all().len(), 1);
}
