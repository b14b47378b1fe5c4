//! The way of one node to Redis is cut, half open or slow; the others go on, and it comes back.

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
use crate::facts::{FACTOR, SHORT, insist, is_unavailable, metric, readiness, whole};

/// Three nodes behind proxies; the last has a tool running, and asks.
async fn proxied(tools: &ToolServer) -> Cluster {
    let cluster = Plan::new(ABIDE).with(&SHORT).proxied().start(Redis::own().await, 3).await;
    whole(&cluster).await;
    let run = |path| http("run", tools, path, json!({}));
    cluster.client(0).define("quick", &calls_once(vec![run("/answer")])).await;
    cluster.client(0).define("holds", &calls_once(vec![run("/hold"), human("ask")])).await;
    cluster.client(2).send_message("c", "holds", "go").await;
    tools.requests.nth(1).await;
    cluster.client(2).wait_for_pending("c", "ask", "elicitation").await;
    cluster
}

/// The node is out, the others take over what it did; when its way is healed it is one of them.
async fn is_out_and_comes_back(cluster: &Cluster, tools: &ToolServer) {
    let began = Instant::now();
    let out = async {
        is_unavailable(cluster.client(2), "never", "quick").await;
        readiness(cluster.client(2), 503).await;
        is_unavailable(cluster.client(2), "never", "quick").await;
    };
    let others = async {
        insist(cluster.client(0), "beside", "quick", "m").await;
        cluster.client(1).wait_until_settled("beside", 1).await;
        let beside = began.elapsed();
        // The one that is out may have it for as long as its lease.
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
        assert!(beside < Duration::from_secs(1) * FACTOR, "{beside:?}");
    };
    tokio::join!(out, others);
    tools.release();
    cluster.client(1).wait_until_settled("c", 1).await;
    cluster.to_redis(2).heal().await;
    back(cluster, tools).await;
}

async fn back(cluster: &Cluster, tools: &ToolServer) {
    readiness(cluster.client(2), 200).await;
    whole(cluster).await;
    insist(cluster.client(2), "after", "quick", "m").await;
    cluster.client(0).wait_until_settled("after", 1).await;
    cluster.client(2).wait_until_settled("c", 1).await;
    cluster.evidence(&[tools]).await.assert_no_violations();
}

#[tokio::test]
async fn a_node_that_redis_refuses_is_out_until_it_is_let_in() {
    let tools = ToolServer::start().await;
    let cluster = proxied(&tools).await;
    cluster.to_redis(2).refuse().await;
    cluster.to_redis(2).cut();
    is_out_and_comes_back(&cluster, &tools).await;
}

#[tokio::test]
async fn a_node_whose_questions_are_lost_is_out_until_they_arrive() {
    let tools = ToolServer::start().await;
    let cluster = proxied(&tools).await;
    cluster.to_redis(2).swallow(Direction::ToTarget);
    is_out_and_comes_back(&cluster, &tools).await;
}

#[tokio::test]
async fn a_node_whose_answers_are_lost_is_out_or_carries_on_until_they_arrive() {
    let tools = ToolServer::start().await;
    let cluster = proxied(&tools).await;
    // What it asks is done, and it does not know.
    cluster.to_redis(2).swallow(Direction::ToClient);
    is_unavailable(cluster.client(2), "unknown", "quick").await;
    readiness(cluster.client(2), 503).await;
    insist(cluster.client(0), "beside", "quick", "m").await;
    cluster.client(1).wait_until_settled("beside", 1).await;
    cluster.to_redis(2).heal().await;
    tools.release();
    readiness(cluster.client(2), 200).await;
    cluster.client(0).resolve("c", "ask", json!({"result": 1})).await.expect(200);
    cluster.client(0).wait_until_settled("c", 1).await;
    back(&cluster, &tools).await;
}

#[tokio::test]
async fn a_node_whose_redis_is_slow_is_slow_and_no_more() {
    let tools = ToolServer::start().await;
    let cluster = proxied(&tools).await;
    for way in [Direction::ToTarget, Direction::ToClient] {
        cluster.to_redis(2).delay(way, Duration::from_millis(150));
    }
    let began = Instant::now();
    insist(cluster.client(2), "slow", "quick", "m").await;
    assert!(began.elapsed() > Duration::from_millis(300));
    cluster.client(0).wait_until_settled("slow", 1).await;
    let began = Instant::now();
    insist(cluster.client(0), "beside", "quick", "m").await;
    cluster.client(0).wait_until_settled("beside", 1).await;
    assert!(began.elapsed() < Duration::from_secs(1) * FACTOR);
    tools.release();
    cluster.client(0).resolve("c", "ask", json!({"result": 1})).await.expect(200);
    cluster.client(1).wait_until_settled("c", 1).await;
    assert_eq!(metric(cluster.client(2), "abide_burials_total").await, 0.0, "taken for dead");
    cluster.to_redis(2).heal().await;
    back(&cluster, &tools).await;
}
