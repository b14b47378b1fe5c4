//! Cancelling or deleting a root also ends its descendants.

use abide_tests::cluster::Cluster;
use abide_tests::processes::Mark;
use reqwest::Method;
use serde_json::json;

use crate::agents::{agent, call, human};
use crate::sub_agent_scenario::{ALL_CONVERSATIONS, calls_agent, child};
use crate::three_nodes::{send_message, start_three};

/// Starts `root`, which calls `middle`, which calls `last`, which runs a command and asks a person.
async fn three_deep(cluster: &Cluster, mark: &Mark) -> [String; 2] {
    let command = format!("setsid sleep {mark} > /dev/null 2>&1 & sleep {mark}");
    let calls =
        json!([call("bash", "bash", json!({"command": command})), call("who", "who", json!({}))]);
    let model = json!({"provider": "scripted", "script": [{"calls": calls}]});
    let last = agent(model, vec![json!({"builtin": ["bash"]}), human("who")]);
    cluster.client(0).define("last", &last).await;
    cluster.client(0).define("middle", &calls_agent("last")).await;
    cluster.client(0).define("boss", &calls_agent("middle")).await;
    send_message(cluster.client(0), "root", "boss", "go").await;
    let middle = child(cluster.client(1), "root").await;
    let last = child(cluster.client(1), &middle).await;
    // The waiting shell and the two sleeps.
    mark.wait_for_count(3).await;
    cluster.client(2).wait_for_pending(&last, "who", "elicitation").await;
    let inbox = cluster.client(2).get("/v1/pending?conversation=root").await.expect(200);
    assert_eq!(inbox["pending"][0]["conversation_id"], last);
    assert_eq!(inbox["pending"][0]["root_conversation_id"], "root");
    [middle, last]
}

#[tokio::test]
async fn a_cancelled_root_stops_its_grandchilds_command_and_empties_the_inbox() {
    let (cluster, mark) =
        (start_three("5s", &["--placement", "rendezvous"]).await, Mark::default());
    let [middle, last] = three_deep(&cluster, &mark).await;
    let cancelled = cluster.client(2).cancel("root").await.expect(200);
    assert_eq!(cancelled, json!({"cancelled": true}));
    mark.wait_for_count(0).await;
    for id in ["root", &middle, &last] {
        let journal = cluster.client(1).wait_until_settled(id, 1).await;
        assert_eq!(journal.outcomes(), ["cancelled"], "{id}");
    }
    for client in cluster.clients() {
        assert_eq!(client.get("/v1/pending").await.expect(200)["pending"], json!([]));
    }
}

#[tokio::test]
async fn a_deleted_root_takes_its_children_along() {
    let (cluster, mark) =
        (start_three("5s", &["--placement", "rendezvous"]).await, Mark::default());
    let [middle, last] = three_deep(&cluster, &mark).await;
    let path = "/v1/conversations/root";
    let deleted = cluster.client(2).ask(Method::DELETE, path, None, None).await.unwrap();
    assert_eq!(deleted.status, 204, "{:#}", deleted.body);
    mark.wait_for_count(0).await;
    for client in cluster.clients() {
        for id in ["root", &middle, &last] {
            let gone = client.get(&format!("/v1/conversations/{id}")).await;
            gone.expect_problem(404, "not-found");
        }
        assert_eq!(client.get(ALL_CONVERSATIONS).await.expect(200)["conversations"], json!([]));
        assert_eq!(client.get("/v1/pending").await.expect(200)["pending"], json!([]));
    }
}
