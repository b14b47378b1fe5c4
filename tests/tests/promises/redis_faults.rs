//! Redis is killed, full, stopped or empty: nothing acknowledged is lost, nobody is restarted.

use abide_tests::client::Client;
use abide_tests::cluster::Cluster;
use abide_tests::deadline::poll;
use abide_tests::tool_server::ToolServer;
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::json;

use crate::agents::{calls_once, http, human};
use crate::facts::{
    SHORT, admin, all_up, cluster, insist, is_unavailable, metric, moment, readiness, whole,
};

/// Three nodes; on each, one conversation has a tool running and another waits for an answer.
async fn busy(tools: &ToolServer) -> Cluster {
    let cluster = cluster(3, &SHORT).await;
    whole(&cluster).await;
    let client = cluster.client(0);
    client.define("quick", &calls_once(vec![http("run", tools, "/answer", json!({}))])).await;
    client.define("holds", &calls_once(vec![http("run", tools, "/hold", json!({}))])).await;
    client.define("asks", &calls_once(vec![human("ask")])).await;
    for (place, client) in cluster.clients().enumerate() {
        client.send_message(&format!("holds-{place}"), "holds", "go").await;
        client.send_message(&format!("asks-{place}"), "asks", "go").await;
        client.wait_for_pending(&format!("asks-{place}"), "ask", "elicitation").await;
    }
    tools.requests.nth(3).await;
    cluster
}

/// What waited and what ran goes on, each through another node than the one that held it.
async fn goes_on(cluster: &Cluster, tools: &ToolServer) {
    tools.release();
    for place in 0..3 {
        let client = cluster.client((place + 1) % 3);
        client.wait_until_settled(&format!("holds-{place}"), 1).await;
        client.resolve(&format!("asks-{place}"), "ask", json!({"result": 1})).await.expect(200);
        client.wait_until_settled(&format!("asks-{place}"), 1).await;
        insist(client, &format!("new-{place}"), "quick", &format!("new-{place}")).await;
    }
    cluster.evidence(&[tools]).await.assert_no_violations();
}

async fn all_are_ready(cluster: &Cluster) {
    for client in cluster.clients() {
        readiness(client, 200).await;
    }
}

/// Nodes that were not started again, and never taken for dead, are the ones that there were.
async fn incarnations(client: &Client) -> Vec<String> {
    let nodes = admin(client, "/admin/nodes").await["nodes"].take();
    nodes.as_array().unwrap().iter().map(|node| node["incarnation"].to_string()).collect()
}

#[tokio::test]
async fn what_was_acknowledged_outlives_a_redis_that_is_killed_in_mid_load() {
    let tools = ToolServer::start().await;
    let mut cluster = busy(&tools).await;
    let before = incarnations(cluster.client(0)).await;
    let clients: Vec<Client> = cluster.clients().cloned().collect();
    let load = (0..6).map(|task| {
        let clients = clients.clone();
        async move {
            for n in 0..20 {
                let client = &clients[(task + n) % 3];
                insist(client, &format!("c{task}"), "quick", &format!("m{task}-{n}")).await;
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
            for (place, client) in clients.iter().enumerate() {
                readiness(client, 503).await;
                is_unavailable(client, &format!("never-{place}"), "quick").await;
            }
        };
        tokio::select! {
            _ = &mut load => panic!("the load is over while Redis is away"),
            () = away => {}
        }
        cluster.redis.restart().await;
    }
    load.await;
    all_are_ready(&cluster).await;
    goes_on(&cluster, &tools).await;
    for client in cluster.clients() {
        all_up(client, 3).await;
    }
    let after = incarnations(cluster.client(0)).await;
    println!(
        "measured {} taken for dead in two kills of Redis",
        after.iter().filter(|one| !before.contains(one)).count()
    );
}

#[tokio::test]
async fn a_redis_that_refuses_writes_makes_nodes_unready_until_it_takes_them() {
    let tools = ToolServer::start().await;
    let cluster = busy(&tools).await;
    for full in [false, true] {
        match full {
            false => cluster.redis.refuse_writes(true).await,
            true => cluster.redis.fill(true).await,
        }
        for (place, client) in cluster.clients().enumerate() {
            is_unavailable(client, &format!("never-{full}-{place}"), "quick").await;
            readiness(client, 503).await;
            is_unavailable(client, &format!("never-{full}-{place}"), "quick").await;
        }
        match full {
            false => cluster.redis.refuse_writes(false).await,
            true => cluster.redis.fill(false).await,
        }
        all_are_ready(&cluster).await;
        for (place, client) in cluster.clients().enumerate() {
            insist(client, &format!("c{place}"), "quick", &format!("{full}-{place}")).await;
        }
    }
    goes_on(&cluster, &tools).await;
}

#[tokio::test]
async fn after_a_redis_that_was_stopped_nobody_takes_over_by_mistake() {
    let tools = ToolServer::start().await;
    let cluster = busy(&tools).await;
    let before = incarnations(cluster.client(0)).await;
    cluster.redis.stop().await;
    // Twice the lease.
    let later = Timestamp::now().checked_add(SignedDuration::from_secs(4)).unwrap();
    for (place, client) in cluster.clients().enumerate() {
        readiness(client, 503).await;
        is_unavailable(client, &format!("never-{place}"), "quick").await;
    }
    moment(later).await;
    cluster.redis.cont().await;
    all_are_ready(&cluster).await;
    assert_eq!(incarnations(cluster.client(1)).await, before);
    for (place, client) in cluster.clients().enumerate() {
        assert_eq!(metric(client, "abide_burials_total").await, 0.0, "taken for dead");
        let path = format!("/admin/actors/asks-{place}");
        let kept = admin(cluster.client((place + 1) % 3), &path).await;
        assert_eq!(kept["node"], cluster.name(place));
    }
    goes_on(&cluster, &tools).await;
}

#[tokio::test]
async fn after_a_redis_that_comes_back_empty_the_old_is_gone_and_the_new_works() {
    let tools = ToolServer::start().await;
    let mut cluster = busy(&tools).await;
    for round in 0..2 {
        match round {
            0 => cluster.redis.ask::<()>(&["FLUSHALL"]).await,
            _ => cluster.redis.restart_empty().await,
        }
        begins_anew(&cluster, round).await;
    }
    tools.release();
    let old = admin(cluster.client(0), "/admin/actors").await.to_string();
    assert!(!old.contains("holds-") && !old.contains("asks-"), "{old}");
    for place in 0..3 {
        let journal =
            cluster.client((place + 1) % 3).wait_until_settled(&format!("new-1-{place}"), 1).await;
        assert_eq!(journal.outcomes(), ["completed"]);
        let gone = cluster.client(place).get("/v1/conversations/holds-0").await;
        gone.expect_problem(404, "not-found");
    }
}

/// Waits until it is found that there is no such conversation; a node may need a moment.
async fn is_gone(client: &Client, method: Method, path: &str) {
    poll(&format!("{path} to be gone"), async || {
        let answer = client.ask(method.clone(), path, None, None).await?;
        // That there is nothing to cancel promises nothing.
        let nothing = answer.body == json!({"cancelled": false});
        assert!([404, 503].contains(&answer.status) || nothing, "{answer:#?}");
        (answer.status == 404).then_some(())
    })
    .await;
}

/// The old conversations are gone on every node, and new ones work with the agent that every node
/// brings.
async fn begins_anew(cluster: &Cluster, round: usize) {
    let mut old: Vec<String> =
        (0..3).flat_map(|place| [format!("holds-{place}"), format!("asks-{place}")]).collect();
    if round > 0 {
        old.extend((0..3).map(|place| format!("new-0-{place}")));
    }
    for client in cluster.clients() {
        for id in &old {
            let path = format!("/v1/conversations/{id}");
            is_gone(client, Method::GET, &path).await;
            is_gone(client, Method::POST, &format!("{path}/cancel")).await;
        }
    }
    for (place, client) in cluster.clients().enumerate() {
        readiness(client, 200).await;
        let id = format!("new-{round}-{place}");
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
        all_up(client, 3).await;
    }
}
