//! How soon a conversation whose holder is gone answers elsewhere.

use std::time::{Duration, Instant};

use abide_tests::cluster::Cluster;
use abide_tests::tool_server::ToolServer;
use serde_json::json;

use crate::agents::{calls_once, http};
use crate::rig::{AFTER_LEASE, LEASE, SLACK, resolve, say, three, together};

/// The median that is promised on a machine of its own.
const KILLED: Duration = Duration::from_millis(250);

/// A conversation of node 0 that waits for an approval.
async fn parked(cluster: &Cluster, id: &str) {
    let first = cluster.client(0);
    say(first, id, "a", "go").await;
    first.wait_for_pending(id, "send", "approval").await;
}

/// Resolves it elsewhere, and says how long after `since` it was accepted.
async fn accepted(cluster: &Cluster, id: &str, since: Instant) -> Duration {
    let approved = json!({"approved": true});
    resolve(cluster.client(1), id, "send", approved).await.expect(200);
    since.elapsed()
}

async fn begun(lease: &str) -> (Cluster, ToolServer) {
    let (cluster, tools) = (three(lease, &[]).await, ToolServer::start().await);
    let gated = http("send", &tools, "/answer", json!({"approval": "requires_approval"}));
    cluster.client(0).define("a", &calls_once(vec![gated])).await;
    (cluster, tools)
}

#[tokio::test]
async fn a_resolution_is_accepted_elsewhere_soon_after_a_kill() {
    let (mut cluster, tools) = begun("5s").await;
    let mut took = Vec::new();
    for round in 0..20 {
        let id = format!("c{round}");
        parked(&cluster, &id).await;
        let killed = Instant::now();
        cluster.kill(0).await;
        took.push(accepted(&cluster, &id, killed).await);
        cluster.restart(0).await;
        together(&cluster).await;
    }
    took.sort();
    let median = (took[9] + took[10]) / 2;
    println!("measured a resolution after SIGKILL: median {median:?}, all {took:?}");
    assert!(median <= KILLED * SLACK, "the median of {took:?} is {median:?}");
    cluster.evidence(&[&tools]).await.assert_no_violations();
}

#[tokio::test]
async fn a_resolution_is_accepted_elsewhere_when_a_stopped_holders_lease_is_over() {
    let (cluster, tools) = begun("2s").await;
    let mut took = Vec::new();
    for round in 0..3 {
        let id = format!("c{round}");
        parked(&cluster, &id).await;
        cluster.stop(0).await;
        took.push(accepted(&cluster, &id, Instant::now()).await);
        cluster.cont(0);
        together(&cluster).await;
    }
    took.sort();
    println!("measured a resolution after SIGSTOP: all {took:?}, the lease is {LEASE:?}");
    assert!(took[1] <= LEASE + AFTER_LEASE * SLACK, "the median of {took:?}");
    cluster.evidence(&[&tools]).await.assert_no_violations();
}
