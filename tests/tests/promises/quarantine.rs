//! A conversation that keeps crashing its actor, or its process, is quarantined, harms no other, and
//! can be released.

use abide_registry::partition::Partition;
use abide_tests::client::Client;
use abide_tests::cluster::Cluster;
use abide_tests::deadline::poll;
use abide_tests::node::Site;
use abide_tests::tool_server::ToolServer;
use reqwest::Method;
use serde_json::json;

use crate::ABIDE;
use crate::agents::{calls_once, http, human};
use crate::cluster_state::{admin, cluster, wait_for_up_nodes, wait_until_connected};

/// Starts a cluster on whose first node these conversations and `good` have a running tool.
async fn start_working_cluster(tools: &ToolServer, bad: &[&str]) -> Cluster {
    let cluster = cluster(3, &[]).await;
    wait_until_connected(&cluster).await;
    let hold = calls_once(vec![http("hold", tools, "/hold", json!({}))]);
    cluster.client(0).define("a", &hold).await;
    for id in bad.iter().chain([&"good"]) {
        cluster.client(0).send_message(id, "a", "go").await;
    }
    tools.requests.nth(bad.len() + 1).await;
    cluster
}

/// Shifts the conversation's `seq` in Redis, so that every commit conflicts and its actors crash;
/// the opposite shift repairs it.
async fn shift_seq(cluster: &Cluster, id: &str, by: &str) {
    let key = format!("abide:{{{}}}:c:{id}", Partition::of(id));
    let _: i64 = cluster.redis.ask(&["HINCRBY", &key, "seq", by]).await;
}

/// Crashes a corrupted conversation once, and waits until these nodes see it quarantined.
async fn crash(cluster: &Cluster, id: &str, seen_by: &[usize]) {
    let killed = cluster.client(seen_by[0]).admin(Method::POST, &kill(id)).await;
    assert_eq!(killed.status, 202);
    expect_quarantined(cluster, id, seen_by).await;
}

async fn expect_quarantined(cluster: &Cluster, id: &str, seen_by: &[usize]) {
    for node in seen_by {
        let actor = poll(&format!("{id} to be quarantined"), async || {
            let path = format!("/admin/actors/{id}");
            let actor = cluster.client(*node).try_admin(Method::GET, &path).await?.body;
            (actor["state"] == "quarantined").then_some(actor)
        })
        .await;
        let why = &actor["why"];
        let waits_for = why["waits_for"].as_str().unwrap();
        assert!(waits_for.contains("its actor keeps crashing: "), "{why:#}");
        assert!(waits_for.contains("conflict") || waits_for.contains("journal"), "{why:#}");
        let can = format!("POST /admin/actors/{id}/retry");
        assert!(why["operators_can"].as_array().unwrap().contains(&json!(can)), "{why:#}");
        assert!(why["since"].is_string(), "{why:#}");
    }
}

fn kill(id: &str) -> String {
    format!("/admin/actors/{id}/kill")
}

#[tokio::test]
async fn a_crashing_conversation_is_quarantined_for_every_node_and_released_from_any() {
    let tools = ToolServer::start().await;
    let cluster = start_working_cluster(&tools, &["bad"]).await;
    shift_seq(&cluster, "bad", "1000").await;
    crash(&cluster, "bad", &[0, 1, 2]).await;
    for client in cluster.clients() {
        let cancel = client.cancel("bad").await;
        cancel.expect_problem(503, "unavailable");
        let good = admin(client, "/admin/actors/good").await;
        assert_eq!((&good["restarts"], &good["node"]), (&json!(0), &json!("node-0")));
    }
    // Released before it is repaired, it is quarantined again.
    let released = cluster.client(1).admin(Method::POST, &kill("bad")).await;
    assert_eq!(released.status, 202);
    expect_quarantined(&cluster, "bad", &[1, 0, 2]).await;
    assert_eq!(tools.requests.all().len(), 2, "a call that was not committed was made");

    shift_seq(&cluster, "bad", "-1000").await;
    let released = cluster.client(2).admin(Method::POST, &kill("bad")).await;
    assert_eq!(released.status, 202);
    let again = tools.requests.nth(3).await;
    assert_eq!(
        (&again.body["conversation_id"], &again.body["attempt"]),
        (&json!("bad"), &json!(2))
    );
    tools.release();
    for id in ["bad", "good"] {
        let journal = cluster.client(1).wait_until_settled(id, 1).await;
        assert_eq!(journal.outcomes(), ["completed"]);
    }
    cluster.evidence(&[&tools]).await.assert_no_violations();
}

#[tokio::test]
async fn a_quarantined_conversation_is_deleted_from_any_node_and_its_id_is_free() {
    let tools = ToolServer::start().await;
    let cluster = start_working_cluster(&tools, &["bad", "worse"]).await;
    for (id, from) in [("bad", 1), ("worse", 0)] {
        shift_seq(&cluster, id, "1000").await;
        crash(&cluster, id, &[0, 1]).await;
        let path = format!("/v1/conversations/{id}");
        let deleted = cluster.client(from).ask(Method::DELETE, &path, None, None).await;
        assert_eq!(deleted.unwrap().status, 204, "{id} from node {from}");
        for client in cluster.clients() {
            client.get(&path).await.expect_problem(404, "not-found");
            let actor = client.admin(Method::GET, &format!("/admin/actors/{id}")).await;
            actor.expect_problem(404, "not-found");
        }
    }
    tools.release();
    cluster.client(2).send_message("bad", "a", "go").await;
    for id in ["bad", "good"] {
        let journal = cluster.client(1).wait_until_settled(id, 1).await;
        assert_eq!(journal.outcomes(), ["completed"]);
    }
}

#[tokio::test]
async fn a_quarantined_conversation_whose_holder_dies_does_not_take_the_next_node_down() {
    let tools = ToolServer::start().await;
    let mut cluster = start_working_cluster(&tools, &["bad"]).await;
    shift_seq(&cluster, "bad", "1000").await;
    crash(&cluster, "bad", &[0, 1, 2]).await;
    cluster.kill(0).await;
    expect_quarantined(&cluster, "bad", &[1, 2]).await;
    wait_for_up_nodes(cluster.client(1), 2).await;
    let again = tools.requests.nth(3).await;
    assert_eq!(again.body["conversation_id"], "good");
    tools.release();
    cluster.client(2).wait_until_settled("good", 1).await;
    for client in [cluster.client(1), cluster.client(2)] {
        client.send_message(&format!("new-{}", client.public_address()), "a", "go").await;
    }
    // The last node takes it over, too, and keeps serving.
    let holder = admin(cluster.client(1), "/admin/actors/bad").await;
    assert_eq!(holder["state"], "quarantined");
    let next = cluster.holder(1, "bad").await;
    cluster.kill(next).await;
    let last = cluster.other(next);
    expect_quarantined(&cluster, "bad", &[last]).await;
    shift_seq(&cluster, "bad", "-1000").await;
    let released = cluster.client(last).admin(Method::POST, &kill("bad")).await;
    assert_eq!(released.status, 202);
    cluster.client(last).wait_until_settled("bad", 1).await;
    cluster.evidence(&[&tools]).await.assert_no_violations();
}

/// Waits until a listing of this node has the conversation as quarantined by the deaths of
/// processes.
async fn expect_listed(client: &Client, id: &str) {
    let path = "/admin/actors?state=quarantined";
    poll(&format!("{id} to be listed as quarantined"), async || {
        let listed = client.try_admin(Method::GET, path).await?.body["actors"].take();
        listed.as_array()?.iter().any(|actor| actor["conversation_id"] == id).then_some(())
    })
    .await;
    let actor = admin(client, &format!("/admin/actors/{id}")).await;
    let waits_for = actor["why"]["waits_for"].as_str().unwrap();
    assert!(waits_for.contains("processes in a row ended"), "{waits_for}");
}

/// Each of these processes dies of the call that the conversation makes, whoever runs it.
#[tokio::test]
async fn no_conversation_ends_more_than_five_processes() {
    let tools = ToolServer::start().await;
    let mut cluster = cluster(3, &[]).await;
    wait_until_connected(&cluster).await;
    let deadly = calls_once(vec![http("hold", &tools, "/hold", json!({}))]);
    let parked = calls_once(vec![human("ask")]);
    cluster.client(0).define("deadly", &deadly).await;
    cluster.client(0).define("parked", &parked).await;
    cluster.client(0).send_message("bad", "deadly", "go").await;
    cluster.client(0).send_message("asks", "parked", "go").await;
    for attempt in 1..=5 {
        tools.requests.nth(attempt).await;
        let holder = cluster.holder(cluster.other(usize::MAX), "bad").await;
        cluster.restart(holder).await;
        wait_until_connected(&cluster).await;
    }
    for client in cluster.clients() {
        expect_listed(client, "bad").await;
        client.cancel("bad").await.expect_problem(503, "unavailable");
    }
    // It stays where it is when its next holder dies, too, and takes none with it.
    let keeper = cluster.holder(0, "bad").await;
    cluster.restart(keeper).await;
    wait_until_connected(&cluster).await;
    for client in cluster.clients() {
        expect_listed(client, "bad").await;
    }
    assert_eq!(tools.requests.all().len(), 5, "a sixth process ran it");
    cluster.client(1).resolve("asks", "ask", json!({"result": "yes"})).await.expect(200);
    cluster.client(2).wait_until_settled("asks", 1).await;

    tools.release();
    cluster.client(2).repair("bad", "retry", None).await.expect(200);
    let journal = cluster.client(1).wait_until_settled("bad", 1).await;
    assert_eq!(journal.outcomes(), ["completed"]);
    cluster.evidence(&[&tools]).await.assert_no_violations();
}

#[tokio::test]
async fn no_conversation_of_an_embedded_store_ends_more_than_five_processes() {
    let tools = ToolServer::start().await;
    let site = Site::new(ABIDE);
    let mut node = site.start().await;
    let deadly = calls_once(vec![http("hold", &tools, "/hold", json!({}))]);
    site.client.define("deadly", &deadly).await;
    site.client.send_message("bad", "deadly", "go").await;
    for attempt in 1..=5 {
        tools.requests.nth(attempt).await;
        node.kill().await;
        node = site.start().await;
    }
    expect_listed(&site.client, "bad").await;
    node.kill().await;
    node = site.start().await;
    expect_listed(&site.client, "bad").await;
    assert_eq!(tools.requests.all().len(), 5, "a sixth process ran it");
    let deleted = site.client.ask(Method::DELETE, "/v1/conversations/bad", None, None).await;
    assert_eq!(deleted.unwrap().status, 204);
    tools.release();
    site.client.send_message("bad", "deadly", "go").await;
    assert_eq!(site.client.wait_until_settled("bad", 1).await.outcomes(), ["completed"]);
    node.kill().await;
}
