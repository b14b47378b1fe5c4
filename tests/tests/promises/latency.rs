//! Measures how soon a conversation whose holder is gone is resolved on another node.

use std::time::{Duration, Instant};

use abide_tests::cluster::Cluster;
use abide_tests::tool_server::ToolServer;
use serde_json::json;

use crate::agents::{calls_once, http};
use crate::three_nodes::{
    AFTER_LEASE, LEASE, SLACK_FACTOR, resolve, send_message, start_three, wait_until_all_up,
};

/// The largest median on a machine without other load.
const MAX_MEDIAN_RECOVERY: Duration = Duration::from_millis(250);

/// Starts a conversation on node 0 that waits for an approval.
async fn start_parked(cluster: &Cluster, id: &str) {
    let first = cluster.client(0);
    send_message(first, id, "a", "go").await;
    first.wait_for_pending(id, "send", "approval").await;
}

/// Resolves the call through another node. Returns the time from `since` to the acceptance.
async fn resolve_elsewhere(cluster: &Cluster, id: &str, since: Instant) -> Duration {
    let approved = json!({"approved": true});
    resolve(cluster.client(1), id, "send", approved).await.expect(200);
    since.elapsed()
}

async fn start_with_gated_agent(lease: &str) -> (Cluster, ToolServer) {
    let (cluster, tools) = (start_three(lease, &[]).await, ToolServer::start().await);
    let gated = http("send", &tools, "/answer", json!({"approval": "requires_approval"}));
    cluster.client(0).define("a", &calls_once(vec![gated])).await;
    (cluster, tools)
}

#[tokio::test]
async fn a_resolution_is_accepted_elsewhere_soon_after_a_kill() {
    let (mut cluster, tools) = start_with_gated_agent("5s").await;
    let mut took = Vec::new();
    for round in 0..20 {
        let id = format!("c{round}");
        start_parked(&cluster, &id).await;
        let killed = Instant::now();
        cluster.kill(0).await;
        took.push(resolve_elsewhere(&cluster, &id, killed).await);
        cluster.restart(0).await;
        wait_until_all_up(&cluster).await;
    }
    took.sort();
    let median = (took[9] + took[10]) / 2;
    println!("measured a resolution after SIGKILL: median {median:?}, all {took:?}");
    assert!(median <= MAX_MEDIAN_RECOVERY * SLACK_FACTOR, "the median of {took:?} is {median:?}");
    cluster.evidence(&[&tools]).await.assert_no_violations();
}

#[tokio::test]
async fn a_resolution_is_accepted_elsewhere_when_a_stopped_holders_lease_is_over() {
    let (cluster, tools) = start_with_gated_agent("2s").await;
    let mut took = Vec::new();
    for round in 0..3 {
        let id = format!("c{round}");
        start_parked(&cluster, &id).await;
        cluster.stop(0).await;
        took.push(resolve_elsewhere(&cluster, &id, Instant::now()).await);
        cluster.cont(0);
        wait_until_all_up(&cluster).await;
    }
    took.sort();
    println!("measured a resolution after SIGSTOP: all {took:?}, the lease is {LEASE:?}");
    assert!(took[1] <= LEASE + AFTER_LEASE * SLACK_FACTOR, "the median of {took:?}");
    cluster.evidence(&[&tools]).await.assert_no_violations();
}
