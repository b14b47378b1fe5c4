//! SIGTERM while turns are streamed: each protocol's stream ends in the way its client goes on from.

use abide_tests::client::Client;
use abide_tests::deadline::poll;
use abide_tests::model_server::{ModelServer, Piece};
use abide_tests::node::{Node, Site};
use abide_tests::protocol_stream::{Protocol, ProtocolStream};
use reqwest::Method;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::ag_ui_agent::{self, AgUiAgent, last_event, last_text};
use crate::agents::agent;
use crate::ai_sdk::{open, scripted};
use crate::chat_page::{self, Options, is_idle};
use crate::openai_client;

const WHOLE: &str = "one two three four five six seven eight nine ten eleven twelve";
/// A drain that waits for no model.
const SHORT_DRAIN: [&str; 2] = ["--drain-timeout", "100ms"];

/// Opens a stream of each protocol, whose model pauses after its first word.
async fn open_streams(site: &Site, model: &ModelServer) -> Vec<(Protocol, ProtocolStream)> {
    site.client.define("a", &agent(model.model(), vec![])).await;
    let mut streams = Vec::new();
    for protocol in Protocol::ALL {
        model.reply(vec![Piece::Text("One "), Piece::Hold, Piece::Text("message.")]);
        let named = protocol.conversation();
        let mut stream = ProtocolStream::open(&site.client, protocol, ("a", &named), "speak").await;
        stream.until("One ").await;
        streams.push((protocol, stream));
    }
    streams
}

/// The last event of a stream, before what only says that it was the last.
async fn end(protocol: Protocol, stream: ProtocolStream) -> Value {
    let mut events = stream.rest().await;
    if matches!(protocol, Protocol::AiSdk | Protocol::Chat) {
        assert_eq!(events.pop(), Some(json!("[DONE]")), "{protocol:?}");
    }
    events.pop().unwrap()
}

/// Each stream says that its node leaves, in the words of its protocol.
async fn expect_moved(streams: Vec<(Protocol, ProtocolStream)>) {
    for (protocol, stream) in streams {
        let last = end(protocol, stream).await;
        match protocol {
            Protocol::AgUi | Protocol::CopilotKit => {
                assert_eq!(
                    (&last["type"], &last["code"]),
                    (&json!("RUN_ERROR"), &json!("moved")),
                    "{last:#}"
                );
            }
            Protocol::AiSdk | Protocol::Responses => assert_eq!(last["type"], "error", "{last:#}"),
            Protocol::Chat => assert_eq!(last["error"]["code"], "unavailable", "{last:#}"),
        }
        assert!(last.to_string().contains("resume it at another"), "{last:#}");
    }
}

#[tokio::test]
async fn each_stream_of_a_turn_says_that_its_node_leaves() {
    let (site, model) = (Site::new(ABIDE).with(&SHORT_DRAIN), ModelServer::start().await);
    let mut node = site.start().await;
    let streams = open_streams(&site, &model).await;
    let own = Protocol::AgUi.conversation();
    let mut frames = site.client.events(&own, None).await;
    node.terminate();
    expect_moved(streams).await;
    // Our own clients resume by themselves when a stream breaks.
    assert!(!frames.rest().await.iter().any(abide_tests::frames::Frame::is_terminal));
    assert_eq!(node.wait_for_exit().await.code(), Some(0));
}

#[tokio::test]
async fn each_stream_of_a_turn_ends_at_a_node_that_an_operator_drains_and_that_stays() {
    let (site, model) = (Site::new(ABIDE).with(&SHORT_DRAIN), ModelServer::start().await);
    let _node = site.start().await;
    let streams = open_streams(&site, &model).await;
    let nodes = site.client.admin(Method::GET, "/admin/nodes").await.expect(200);
    let path = format!("/admin/nodes/{}/drain", nodes["nodes"][0]["name"].as_str().unwrap());
    site.client.admin(Method::POST, &path).await.expect(202);
    expect_moved(streams).await;
}

#[tokio::test]
async fn a_turn_that_ends_during_the_drain_is_told_to_its_end() {
    let (site, model) = (Site::new(ABIDE), ModelServer::start().await);
    let mut node = site.start().await;
    let streams = open_streams(&site, &model).await;
    node.terminate();
    poll("the node to say that it drains", async || {
        let ready = site.client.admin(Method::GET, "/readyz").await;
        (ready.status == 503).then_some(())
    })
    .await;
    model.release();
    for (protocol, stream) in streams {
        let last = end(protocol, stream).await;
        let (member, expected) = match protocol {
            Protocol::AgUi | Protocol::CopilotKit => (&last["type"], "RUN_FINISHED"),
            Protocol::AiSdk => (&last["finishReason"], "stop"),
            Protocol::Responses => (&last["type"], "response.completed"),
            Protocol::Chat => (&last["choices"][0]["finish_reason"], "stop"),
        };
        assert_eq!(member, expected, "{protocol:?}: {last:#}");
    }
    assert_eq!(node.wait_for_exit().await.code(), Some(0));
}

/// Starts a node with an agent that writes `WHOLE`, slowly, and a conversation with it.
async fn start_slow() -> (Site, Node) {
    let site = Site::new(ABIDE).with(&SHORT_DRAIN);
    let node = site.start().await;
    let script = json!([{"text": WHOLE, "delay": "100ms"}]);
    site.client.define("a", &scripted(script, vec![])).await;
    let new = json!({"id": "c", "agent": "a"});
    site.client.post("/v1/conversations", &new).await.expect(201);
    (site, node)
}

/// Terminates the node once the message streams.
async fn terminate_in_mid_message(client: &Client, node: &mut Node) {
    let mut frames = client.events("c", None).await;
    frames.wait_for("text_delta").await;
    node.terminate();
    assert_eq!(node.wait_for_exit().await.code(), Some(0));
}

#[tokio::test]
async fn a_client_of_ag_ui_runs_again_where_its_node_has_moved_to() {
    for version in ag_ui_agent::VERSIONS {
        let (site, mut node) = start_slow().await;
        let address = site.client.public_address();
        let mut agent = AgUiAgent::open(version, &address, ("a", "c"), &[], None).await;
        agent.command("say", json!({"id": "m-1", "text": "go"})).await;
        agent.begin("run", json!({})).await;
        terminate_in_mid_message(&site.client, &mut node).await;
        let moved = agent.done("run").await;
        assert_eq!(last_event(&moved)["code"], "moved", "{moved:#}");
        let _node = site.start().await;
        agent.aim(&site.client.public_address()).await;
        let whole = agent.run(json!({})).await;
        assert_eq!(
            (last_text(&whole), &whole["failed"]),
            (WHOLE.into(), &Value::Null),
            "{whole:#}"
        );
    }
}

#[tokio::test]
async fn a_page_of_the_ai_sdk_resumes_where_its_node_has_moved_to() {
    for version in chat_page::VERSIONS {
        let (site, mut node) = start_slow().await;
        let mut page = open(version, &site.client, Options::new("a", "c")).await;
        page.begin("send", json!({"text": "go"})).await;
        terminate_in_mid_message(&site.client, &mut node).await;
        let state = page.until(|state| !state["error"].is_null()).await;
        assert!(state["error"].as_str().unwrap().contains("resume"), "{state:#}");
        let _node = site.start().await;
        page.aim(&site.client.public_address()).await;
        page.assert_quiet().await;
        page.begin("resume", json!({})).await;
        let is_whole = |state: &Value| is_idle(state) && chat_page::text(state) == WHOLE;
        let state = page.until(is_whole).await;
        assert_eq!(state["messages"].as_array().unwrap().len(), 2, "{state:#}");
    }
}

#[tokio::test]
async fn a_response_goes_on_where_its_node_has_moved_to() {
    let (site, mut node) = start_slow().await;
    let reads = openai_client::node(&site.client, "cut", json!({"conversation": "c"}));
    let (cut, ()) = tokio::join!(reads, terminate_in_mid_message(&site.client, &mut node));
    assert!(cut["error"]["message"].as_str().unwrap().contains("resume"), "{cut:#}");
    let _node = site.start().await;
    let after = json!({"response": cut["response"]["id"], "number": cut["number"]});
    let rest = openai_client::node(&site.client, "resume", after).await;
    let text = |told: &Value| told["text"].as_str().unwrap().to_owned();
    assert_eq!(text(&cut) + &text(&rest), WHOLE, "{rest:#}");
    assert_eq!(rest["response"]["status"], "completed");
}
