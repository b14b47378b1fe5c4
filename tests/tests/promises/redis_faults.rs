//! Redis is killed, full, stopped or empty: nothing acknowledged is lost, and no node needs a
//! restart.

use abide_tests::client::Client;
use abide_tests::cluster::Cluster;
use abide_tests::deadline::poll;
use abide_tests::tool_server::ToolServer;
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::json;

use crate::agents::{calls_once, http, human};
use crate::cluster_state::{
    SHORT_LEASE_FLAGS, admin, cluster, expect_unavailable, metric, send_until_accepted,
    sleep_until, wait_for_readiness, wait_for_up_nodes, wait_until_connected,
};

/// Starts three nodes, each with one conversation that runs a tool and one that waits for a person.
async fn start_busy_cluster(tools: &ToolServer) -> Cluster {
    let cluster = cluster(3, &SHORT_LEASE_FLAGS).await;
    wait_until_connected(&cluster).await;
    let client = cluster.client(0);
    client.define("quick", &calls_once(vec![http("run", tools, "/answer", json!({}))])).await;
    client.define("holds", &calls_once(vec![http("run", tools, "/hold", json!({}))])).await;
    client.define("asks", &calls_once(vec![human("ask")])).await;
    for (index, client) in cluster.clients().enumerate() {
        client.send_message(&format!("holds-{index}"), "holds", "go").await;
        client.send_message(&format!("asks-{index}"), "asks", "go").await;
        client.wait_for_pending(&format!("asks-{index}"), "ask", "elicitation").await;
    }
    tools.requests.nth(3).await;
    cluster
}

/// Finishes the running and the waiting conversations, each through another node than its holder.
async fn finish_all_work(cluster: &Cluster, tools: &ToolServer) {
    tools.release();
    for index in 0..3 {
        let client = cluster.client((index + 1) % 3);
        client.wait_until_settled(&format!("holds-{index}"), 1).await;
        client.resolve(&format!("asks-{index}"), "ask", json!({"result": 1})).await.expect(200);
        client.wait_until_settled(&format!("asks-{index}"), 1).await;
        send_until_accepted(client, &format!("new-{index}"), "quick", &format!("new-{index}"))
            .await;
    }
    cluster.evidence(&[tools]).await.assert_no_violations();
}

async fn wait_until_all_ready(cluster: &Cluster) {
    for client in cluster.clients() {
        wait_for_readiness(client, 200).await;
    }
}

/// The incarnations of all nodes, which change with a restart or when a node is declared dead.
async fn incarnations(client: &Client) -> Vec<String> {
    let nodes = admin(client, "/admin/nodes").await["nodes"].take();
    nodes.as_array().unwrap().iter().map(|node| node["incarnation"].to_string()).collect()
}

#[tokio::test]
async fn what_was_acknowledged_outlives_a_redis_that_is_killed_in_mid_load() {
    let tools = ToolServer::start().await;
    let mut cluster = start_busy_cluster(&tools).await;
    let before = incarnations(cluster.client(0)).await;
    let clients: Vec<Client> = cluster.clients().cloned().collect();
    let load = (0..6).map(|task| {
        let clients = clients.clone();
        async move {
            for n in 0..20 {
                let client = &clients[(task + n) % 3];
                send_until_accepted(client, &format!("c{task}"), "quick", &format!("m{task}-{n}"))
                    .await;
            }
        }
    });
    let mut load = Box::pin(join_all(load));
    for kill in 0..2 {
        let killed = tokio::select! {
            _ = &mut load => None,
            _ = tools.requests.nth(20 * (kill + 1)) => Some(()),
        };
        killed.expect("the load is over before Redis is killed");
        cluster.redis.kill().await;
        let away = async {
            for (index, client) in clients.iter().enumerate() {
                wait_for_readiness(client, 503).await;
                expect_unavailable(client, &format!("never-{index}"), "quick").await;
            }
        };
        tokio::select! {
            _ = &mut load => panic!("the load is over while Redis is away"),
            () = away => {}
        }
        cluster.redis.restart().await;
    }
    load.await;
    wait_until_all_ready(&cluster).await;
    finish_all_work(&cluster, &tools).await;
    for client in cluster.clients() {
        wait_for_up_nodes(client, 3).await;
    }
    let after = incarnations(cluster.client(0)).await;
    println!(
        "measured {} declared dead in two kills of Redis",
        after.iter().filter(|one| !before.contains(one)).count()
    );
}

#[tokio::test]
async fn a_redis_that_refuses_writes_makes_nodes_unready_until_it_takes_them() {
    let tools = ToolServer::start().await;
    let cluster = start_busy_cluster(&tools).await;
    cluster.redis.refuse_writes(true).await;
    for (index, client) in cluster.clients().enumerate() {
        expect_unavailable(client, &format!("never-{index}"), "quick").await;
        wait_for_readiness(client, 503).await;
        expect_unavailable(client, &format!("never-{index}"), "quick").await;
    }
    cluster.redis.refuse_writes(false).await;
    wait_until_all_ready(&cluster).await;
    for (index, client) in cluster.clients().enumerate() {
        send_until_accepted(client, &format!("c{index}"), "quick", &format!("m{index}")).await;
    }
    finish_all_work(&cluster, &tools).await;
}

#[tokio::test]
async fn a_full_redis_keeps_its_nodes_and_lets_them_read() {
    let tools = ToolServer::start().await;
    let cluster = start_busy_cluster(&tools).await;
    let before = incarnations(cluster.client(0)).await;
    cluster.redis.fill(true).await;
    // After twice the lease.
    let later = Timestamp::now().checked_add(SignedDuration::from_secs(4)).unwrap();
    for (index, client) in cluster.clients().enumerate() {
        expect_unavailable(client, &format!("never-{index}"), "quick").await;
    }
    sleep_until(later).await;
    for (index, client) in cluster.clients().enumerate() {
        expect_unavailable(client, &format!("never-{index}"), "quick").await;
        assert_eq!(client.admin(Method::GET, "/readyz").await.status, 200);
        assert_eq!(client.snapshot(&format!("asks-{index}")).await["state"], "awaiting_input");
    }
    assert_eq!(incarnations(cluster.client(0)).await, before);
    cluster.redis.fill(false).await;
    for (index, client) in cluster.clients().enumerate() {
        send_until_accepted(client, &format!("c{index}"), "quick", &format!("m{index}")).await;
    }
    finish_all_work(&cluster, &tools).await;
}

#[tokio::test]
async fn after_a_redis_that_was_stopped_no_node_takes_over_by_mistake() {
    let tools = ToolServer::start().await;
    let cluster = start_busy_cluster(&tools).await;
    let before = incarnations(cluster.client(0)).await;
    cluster.redis.stop().await;
    // After twice the lease.
    let later = Timestamp::now().checked_add(SignedDuration::from_secs(4)).unwrap();
    for (index, client) in cluster.clients().enumerate() {
        wait_for_readiness(client, 503).await;
        expect_unavailable(client, &format!("never-{index}"), "quick").await;
    }
    sleep_until(later).await;
    cluster.redis.cont().await;
    wait_until_all_ready(&cluster).await;
    assert_eq!(incarnations(cluster.client(1)).await, before);
    for (index, client) in cluster.clients().enumerate() {
        assert_eq!(metric(client, "abide_burials_total").await, 0.0, "a node was declared dead");
        let path = format!("/admin/actors/asks-{index}");
        let actor = admin(cluster.client((index + 1) % 3), &path).await;
        assert_eq!(actor["node"], cluster.name(index));
    }
    finish_all_work(&cluster, &tools).await;
}

#[tokio::test]
async fn after_a_redis_that_comes_back_empty_the_old_is_gone_and_the_new_works() {
    let tools = ToolServer::start().await;
    let mut cluster = start_busy_cluster(&tools).await;
    for round in 0..2 {
        match round {
            0 => cluster.redis.ask::<()>(&["FLUSHALL"]).await,
            _ => cluster.redis.restart_empty().await,
        }
        expect_empty_and_usable(&cluster, round).await;
    }
    tools.release();
    let old = admin(cluster.client(0), "/admin/actors").await.to_string();
    assert!(!old.contains("holds-") && !old.contains("asks-"), "{old}");
    for index in 0..3 {
        let journal =
            cluster.client((index + 1) % 3).wait_until_settled(&format!("new-1-{index}"), 1).await;
        assert_eq!(journal.outcomes(), ["completed"]);
        let gone = cluster.client(index).get("/v1/conversations/holds-0").await;
        gone.expect_problem(404, "not-found");
    }
}

/// Waits until a node answers that the conversation does not exist.
async fn wait_until_gone(client: &Client, method: Method, path: &str) {
    poll(&format!("{path} to be gone"), async || {
        let answer = client.ask(method.clone(), path, None, None).await?;
        // "Nothing was cancelled" is a valid answer, too. And a holder shows what it holds until it
        // renews its lease and learns that it holds nothing.
        let nothing = answer.body == json!({"cancelled": false});
        let is_held = method == Method::GET && answer.status == 200;
        assert!([404, 503].contains(&answer.status) || nothing || is_held, "{answer:#?}");
        (answer.status == 404).then_some(())
    })
    .await;
}

/// Fails unless the old conversations are gone on every node, and new ones work with the demo
/// agent.
async fn expect_empty_and_usable(cluster: &Cluster, round: usize) {
    let mut old: Vec<String> =
        (0..3).flat_map(|index| [format!("holds-{index}"), format!("asks-{index}")]).collect();
    if round > 0 {
        old.extend((0..3).map(|index| format!("new-0-{index}")));
    }
    for client in cluster.clients() {
        for id in &old {
            let path = format!("/v1/conversations/{id}");
            wait_until_gone(client, Method::GET, &path).await;
            wait_until_gone(client, Method::POST, &format!("{path}/cancel")).await;
        }
    }
    for (index, client) in cluster.clients().enumerate() {
        wait_for_readiness(client, 200).await;
        let id = format!("new-{round}-{index}");
        poll("the demo agent to be there again", async || {
            let body = json!({"text": "hello", "agent": "demo", "message_id": "m"});
            let path = format!("/v1/conversations/{id}/messages");
            let answer = client.ask(Method::POST, &path, None, Some(&body)).await?;
            (answer.status == 202).then_some(())
        })
        .await;
        client.wait_until_settled(&id, 1).await;
    }
    for client in cluster.clients() {
        wait_for_up_nodes(client, 3).await;
    }
}
