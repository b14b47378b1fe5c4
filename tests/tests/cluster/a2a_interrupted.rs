//! A2A's own clients whose node dies: in mid-message, and while a task waits, alone and of three.

use abide_tests::cluster::Plan;
use abide_tests::node::Site;
use abide_tests::redis::Redis;
use abide_tests::tool_server::ToolServer;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::a2a::{asks, last, text};
use crate::a2a_client::Sdk;
use crate::openai::{gated, scripted};

const WHOLE: &str = "one two three four five six seven eight nine ten eleven twelve";

/// An agent that writes `WHOLE`, slowly.
fn slow() -> Value {
    scripted(json!([{"text": WHOLE, "delay": "200ms"}]))
}

/// Panics unless the task is whole, as a subscriber that came late and as one that reads it see it.
async fn is_whole(sdk: Sdk, client: &abide_tests::client::Client, told: &Value, agent: &str) {
    let options = json!({"agent": agent, "task": told["task"]["id"]});
    let rest = sdk.run(client, "subscribe", options.clone()).await;
    assert_eq!((last(&rest), &rest["text"]), (&json!("TASK_STATE_COMPLETED"), &json!(WHOLE)));
    let read = sdk.run(client, "get", options).await;
    assert_eq!((&read["status"]["state"], text(&read)), (last(&rest), WHOLE.to_owned()));
}

#[tokio::test]
async fn a_task_goes_on_with_a_node_that_was_killed_in_mid_message() {
    let site = Site::new(ABIDE);
    let mut node = site.start().await;
    site.client.define("a", &slow()).await;
    for sdk in Sdk::BOTH {
        let options = json!({"context": sdk.name(), "most": 8});
        let cut = sdk.run(&site.client, "stream", options).await;
        assert!(cut["text"].as_str().unwrap().len() < WHOLE.len(), "{cut:#}");
        node.kill().await;
        node = site.start().await;
        is_whole(sdk, &site.client, &cut, "a").await;
        site.client.wait_until_settled(sdk.name(), 1).await;
    }
}

#[tokio::test]
async fn a_task_that_waits_outlives_its_node_and_is_answered_once() {
    let tools = ToolServer::start().await;
    let site = Site::new(ABIDE);
    let mut node = site.start().await;
    site.client.define("mails", &gated(&tools, &["mail"])).await;
    site.client.define("seats", &asks()).await;
    for sdk in Sdk::BOTH {
        let mut waiting = Vec::new();
        for (agent, answer) in
            [("mails", json!({"approved": true})), ("seats", json!({"result": "window"}))]
        {
            let asked = sdk.run(&site.client, "stream", json!({"agent": agent})).await;
            assert_eq!(last(&asked), "TASK_STATE_INPUT_REQUIRED");
            let task = &asked["task"]["id"];
            waiting.push(json!({"agent": agent, "task": task, "answer": answer}));
        }
        node.kill().await;
        node = site.start().await;
        for options in waiting {
            let read = sdk.run(&site.client, "get", options.clone()).await;
            assert_eq!(read["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
            let given = sdk.run(&site.client, "answer", options).await;
            assert_eq!(last(&given), "TASK_STATE_COMPLETED");
        }
    }
    assert_eq!(tools.requests.all().len(), 2, "each call ran once");
}

#[tokio::test]
async fn clients_go_on_with_another_node_of_three() {
    let tools = ToolServer::start().await;
    let mut cluster = Plan::new(ABIDE).start(Redis::start().await, 3).await;
    cluster.client(0).define("slow", &slow()).await;
    cluster.client(0).define("gated", &gated(&tools, &["mail"])).await;
    let asked = Sdk::Python.run(cluster.client(0), "stream", json!({"agent": "gated"})).await;
    assert_eq!(last(&asked), "TASK_STATE_INPUT_REQUIRED");
    let streams = json!({"agent": "slow", "most": 8});
    let cut = Sdk::Node.run(cluster.client(0), "stream", streams).await;
    cluster.kill(0).await;
    is_whole(Sdk::Python, cluster.client(1), &cut, "slow").await;
    let options = json!({"agent": "gated", "task": asked["task"]["id"],
        "answer": {"approved": true}});
    let given = Sdk::Node.run(cluster.client(2), "answer", options).await;
    assert_eq!((last(&given), &given["text"]), (&json!("TASK_STATE_COMPLETED"), &json!("Done.")));
    assert_eq!(tools.requests.all().len(), 1);
}
