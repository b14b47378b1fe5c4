//! One node's connection to Redis is cut, half-open or slow; the others go on, and the node
//! recovers.

use std::time::Duration;

use abide_tests::cluster::{Cluster, Plan};
use abide_tests::deadline::poll;
use abide_tests::proxy::Direction;
use abide_tests::redis::Redis;
use abide_tests::tool_server::ToolServer;
use serde_json::json;
use tokio::time::Instant;

use crate::ABIDE;
use crate::agents::{calls_once, http, human};
use crate::cluster_state::{
    LOAD_FACTOR, SHORT_LEASE_FLAGS, expect_unavailable, metric, send_until_accepted,
    wait_for_readiness, wait_until_connected,
};

/// Starts three nodes behind proxies; the last one runs a tool and waits for a person.
async fn start_proxied(tools: &ToolServer) -> Cluster {
    let cluster =
        Plan::new(ABIDE).with(&SHORT_LEASE_FLAGS).proxied().start(Redis::own().await, 3).await;
    wait_until_connected(&cluster).await;
    let run = |path| http("run", tools, path, json!({}));
    cluster.client(0).define("quick", &calls_once(vec![run("/answer")])).await;
    cluster.client(0).define("holds", &calls_once(vec![run("/hold"), human("ask")])).await;
    cluster.client(2).send_message("c", "holds", "go").await;
    tools.requests.nth(1).await;
    cluster.client(2).wait_for_pending("c", "ask", "elicitation").await;
    cluster
}

/// Fails unless the node is unavailable, the others take over its work, and it rejoins once healed.
async fn expect_takeover_and_recovery(cluster: &Cluster, tools: &ToolServer) {
    let began = Instant::now();
    let out = async {
        expect_unavailable(cluster.client(2), "never", "quick").await;
        wait_for_readiness(cluster.client(2), 503).await;
        expect_unavailable(cluster.client(2), "never", "quick").await;
    };
    let others = async {
        send_until_accepted(cluster.client(0), "beside", "quick", "m").await;
        cluster.client(1).wait_until_settled("beside", 1).await;
        let beside = began.elapsed();
        // The unavailable node may hold the conversation until its lease ends.
        tools.requests.nth(2 + 1).await;
        poll("an answer to be accepted", async || {
            let answer = cluster.client(0).resolve("c", "ask", json!({"result": 1})).await;
            assert!([200, 503].contains(&answer.status), "{answer:#?}");
            (answer.status == 200).then_some(())
        })
        .await;
        println!(
            "measured beside a node without its store: {beside:?}, its turn: {:?}",
            began.elapsed()
        );
        assert!(beside < Duration::from_secs(1) * LOAD_FACTOR, "{beside:?}");
    };
    tokio::join!(out, others);
    tools.release();
    cluster.client(1).wait_until_settled("c", 1).await;
    cluster.to_redis(2).heal().await;
    expect_recovered(cluster, tools).await;
}

async fn expect_recovered(cluster: &Cluster, tools: &ToolServer) {
    wait_for_readiness(cluster.client(2), 200).await;
    wait_until_connected(cluster).await;
    send_until_accepted(cluster.client(2), "after", "quick", "m").await;
    cluster.client(0).wait_until_settled("after", 1).await;
    cluster.client(2).wait_until_settled("c", 1).await;
    cluster.evidence(&[tools]).await.assert_no_violations();
}

#[tokio::test]
async fn a_node_that_redis_refuses_is_unavailable_until_it_is_accepted() {
    let tools = ToolServer::start().await;
    let cluster = start_proxied(&tools).await;
    cluster.to_redis(2).refuse().await;
    cluster.to_redis(2).cut();
    expect_takeover_and_recovery(&cluster, &tools).await;
}

#[tokio::test]
async fn a_node_whose_commands_are_lost_is_unavailable_until_they_arrive() {
    let tools = ToolServer::start().await;
    let cluster = start_proxied(&tools).await;
    cluster.to_redis(2).swallow(Direction::ToTarget);
    expect_takeover_and_recovery(&cluster, &tools).await;
}

#[tokio::test]
async fn a_node_whose_answers_are_lost_is_unavailable_until_they_arrive() {
    let tools = ToolServer::start().await;
    let cluster = start_proxied(&tools).await;
    // Its commands take effect, but it gets no answers.
    cluster.to_redis(2).swallow(Direction::ToClient);
    expect_unavailable(cluster.client(2), "unknown", "quick").await;
    wait_for_readiness(cluster.client(2), 503).await;
    send_until_accepted(cluster.client(0), "beside", "quick", "m").await;
    cluster.client(1).wait_until_settled("beside", 1).await;
    cluster.to_redis(2).heal().await;
    tools.release();
    wait_for_readiness(cluster.client(2), 200).await;
    cluster.client(0).resolve("c", "ask", json!({"result": 1})).await.expect(200);
    cluster.client(0).wait_until_settled("c", 1).await;
    expect_recovered(&cluster, &tools).await;
}

#[tokio::test]
async fn a_node_whose_redis_is_slow_is_only_slow() {
    let tools = ToolServer::start().await;
    let cluster = start_proxied(&tools).await;
    for way in [Direction::ToTarget, Direction::ToClient] {
        cluster.to_redis(2).delay(way, Duration::from_millis(150));
    }
    let began = Instant::now();
    send_until_accepted(cluster.client(2), "slow", "quick", "m").await;
    assert!(began.elapsed() > Duration::from_millis(300));
    cluster.client(0).wait_until_settled("slow", 1).await;
    let began = Instant::now();
    send_until_accepted(cluster.client(0), "beside", "quick", "m").await;
    cluster.client(0).wait_until_settled("beside", 1).await;
    assert!(began.elapsed() < Duration::from_secs(1) * LOAD_FACTOR);
    tools.release();
    cluster.client(0).resolve("c", "ask", json!({"result": 1})).await.expect(200);
    cluster.client(1).wait_until_settled("c", 1).await;
    assert_eq!(metric(cluster.client(2), "abide_burials_total").await, 0.0, "taken for dead");
    cluster.to_redis(2).heal().await;
    expect_recovered(&cluster, &tools).await;
}
