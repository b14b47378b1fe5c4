//! `Cluster` kills, stops, terminates and restarts single nodes. Each node has its own store here,
//! so the nodes do not form a cluster.

use std::time::Duration;

use abide_tests::cluster::{Cluster, Plan};
use abide_tests::redis::Redis;
use reqwest::Method;

use crate::ABIDE;

async fn independent_nodes(count: usize) -> Cluster {
    let plan = Plan::new(ABIDE).with_store("memory").with(&["--lease", "2s"]).proxied();
    plan.start(Redis::process().await, count).await
}

async fn is_up(cluster: &Cluster, node: usize) -> bool {
    let answer = cluster.client(node).try_admin(Method::GET, "/healthz").await;
    answer.is_some_and(|answer| answer.status == 200)
}

#[tokio::test]
async fn each_node_has_its_name_and_dies_alone() {
    let mut cluster = independent_nodes(3).await;
    for node in 0..3 {
        let nodes = cluster.client(node).admin(Method::GET, "/admin/nodes").await.expect(200);
        assert_eq!(nodes["nodes"][0]["name"], format!("node-{node}"));
        assert_eq!(cluster.name(node), format!("node-{node}"));
    }
    cluster.kill(1).await;
    assert!(!is_up(&cluster, 1).await);
    assert!(is_up(&cluster, 0).await && is_up(&cluster, 2).await);
    assert_eq!(cluster.other(0), 2);
    cluster.restart(1).await;
    assert!(is_up(&cluster, 1).await);
    let joined = cluster.join(|site| site.with(&["--passivate-after", "1s"])).await;
    assert_eq!(cluster.name(joined), "node-3");
    assert!(is_up(&cluster, joined).await);
}

#[tokio::test]
async fn a_stopped_node_answers_when_it_goes_on() {
    let cluster = independent_nodes(2).await;
    cluster.stop(0).await;
    assert_eq!(cluster.other(usize::MAX), 1);
    let mut answer = Box::pin(is_up(&cluster, 0));
    let silence = tokio::time::timeout(Duration::from_millis(100), &mut answer).await;
    assert!(silence.is_err(), "a stopped node answered");
    cluster.cont(0);
    assert!(answer.await);
    assert_eq!(cluster.other(usize::MAX), 0);
}

#[tokio::test]
async fn an_ended_node_is_gone_and_may_come_back() {
    let mut cluster = independent_nodes(2).await;
    cluster.terminate(0).await;
    assert!(!is_up(&cluster, 0).await);
    cluster.restart(0).await;
    assert!(is_up(&cluster, 0).await);
}

#[tokio::test]
async fn a_nodes_proxies_lead_to_redis_and_to_the_node() {
    let cluster = independent_nodes(2).await;
    let url = format!("redis://{}", cluster.to_redis(1).address());
    let client = ::redis::Client::open(url).unwrap();
    assert!(client.get_multiplexed_async_connection().await.is_ok());
    cluster.to_redis(1).refuse().await;
    assert!(client.get_multiplexed_async_connection().await.is_err());
    assert_ne!(cluster.to_redis(0).address(), cluster.to_redis(1).address());
    assert_ne!(cluster.to_node(0).address(), cluster.to_node(1).address());
}
