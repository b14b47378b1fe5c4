//! OpenAI's own clients whose connection is cut, or whose node dies.

use abide_tests::client::Client;
use abide_tests::cluster::Plan;
use abide_tests::deadline::poll;
use abide_tests::fake_clock;
use abide_tests::node::Site;
use abide_tests::redis::Redis;
use abide_tests::tool_server::ToolServer;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::openai::{gated, scripted};
use crate::openai_client::node;

const WHOLE: &str = "one two three four five six seven eight nine ten eleven twelve";

/// An agent that writes `WHOLE`, slowly.
fn slow() -> Value {
    scripted(json!([{"text": WHOLE, "delay": "100ms"}]))
}

fn text(told: &Value) -> &str {
    told["text"].as_str().unwrap()
}

/// The options to go on after what was told.
fn after(told: &Value) -> Value {
    json!({"response": told["response"]["id"], "number": told["number"]})
}

#[tokio::test]
async fn a_stream_that_was_cut_goes_on_within_the_message_and_after_it() {
    let site = Site::new(ABIDE);
    let _node = site.start().await;
    site.client.define("a", &slow()).await;
    for most in [1, 5, 20] {
        let id = format!("c{most}");
        let cut = node(&site.client, "cut", json!({"conversation": id, "most": most})).await;
        assert!(text(&cut).len() < WHOLE.len(), "{cut:#}");
        // The message still streams, then it is journalled.
        for _ in 0..2 {
            let rest = node(&site.client, "resume", after(&cut)).await;
            assert_eq!(format!("{}{}", text(&cut), text(&rest)), WHOLE);
            assert_eq!(rest["response"]["status"], "completed");
        }
        let options = json!({"response": cut["response"]["id"]});
        let replayed = node(&site.client, "replay", options).await;
        assert_eq!(replayed["output_text"], WHOLE);
        let journal = site.client.wait_until_settled(&id, 1).await;
        assert_eq!(journal.of("user_msg").count(), 1);
    }
}

#[tokio::test]
async fn a_stream_goes_on_with_a_node_that_was_killed_in_mid_message() {
    let site = Site::new(ABIDE);
    let dead = site.start().await;
    site.client.define("a", &slow()).await;
    let cut = node(&site.client, "cut", json!({"conversation": "c", "most": 8})).await;
    dead.kill().await;
    let _node = site.start().await;
    let rest = node(&site.client, "resume", after(&cut)).await;
    assert_eq!(format!("{}{}", text(&cut), text(&rest)), WHOLE, "{rest:#}");
    site.client.wait_until_settled("c", 1).await;
}

#[tokio::test]
async fn a_client_approves_after_its_node_was_killed_while_the_call_waited() {
    let tools = ToolServer::start().await;
    let site = Site::new(ABIDE);
    let dead = site.start().await;
    site.client.define("a", &gated(&tools, &["mail"])).await;
    let asked = node(&site.client, "ask", json!({"conversation": "c"})).await;
    dead.kill().await;
    let _node = site.start().await;
    let given = node(&site.client, "answer", json!({"previous": asked["id"]})).await;
    assert_eq!(given["output_text"], "Done.", "{given:#}");
    assert_eq!(tools.requests.all().len(), 1);
}

#[tokio::test]
async fn a_chat_that_names_no_conversation_is_deleted_a_day_later() {
    let library = fake_clock::library().expect("libfaketime is needed: apt-get install faketime");
    let mut site = Site::new(ABIDE)
        .with_env("LD_PRELOAD", library)
        .with_env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .with_env("FAKETIME", "+0");
    let today = site.start().await;
    let body = json!({"model": "demo", "messages": [{"role": "user", "content": "Write a mail"}]});
    site.client.post("/openai/v1/chat/completions", &body).await.expect(200);
    let kept = json!({"model": "demo", "input": "hello", "conversation": "mine"});
    site.client.post("/openai/v1/responses", &kept).await.expect(200);
    let listed = async |client: &Client| {
        let page = client.get("/v1/conversations").await.expect(200);
        page["conversations"].as_array().unwrap().len()
    };
    assert_eq!(listed(&site.client).await, 2);
    today.kill().await;
    site.set_env("FAKETIME", "+25h");
    let _tomorrow = site.start().await;
    poll("the chat to be deleted", async || (listed(&site.client).await == 1).then_some(())).await;
    site.client.get("/v1/conversations/mine").await.expect(200);
}

#[tokio::test]
async fn clients_go_on_with_another_node_of_a_cluster() {
    let tools = ToolServer::start().await;
    let mut cluster = Plan::new(ABIDE).start(Redis::start().await, 3).await;
    cluster.client(0).define("slow", &slow()).await;
    cluster.client(0).define("gated", &gated(&tools, &["mail"])).await;
    let waits = json!({"model": "gated", "conversation": "waits"});
    let asked = node(cluster.client(0), "ask", waits).await;
    let streams = json!({"model": "slow", "conversation": "c", "most": 8});
    let cut = node(cluster.client(0), "cut", streams).await;
    cluster.kill(0).await;
    let rest = node(cluster.client(1), "resume", after(&cut)).await;
    assert_eq!(format!("{}{}", text(&cut), text(&rest)), WHOLE, "{rest:#}");
    let options = json!({"model": "gated", "previous": asked["id"]});
    let given = node(cluster.client(2), "answer", options).await;
    assert_eq!(given["output_text"], "Done.", "{given:#}");
    assert_eq!(tools.requests.all().len(), 1);
}
