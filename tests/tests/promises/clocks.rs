//! Nodes whose clocks are an hour apart go by the clock of the store.

use std::time::Duration;

use abide_tests::checks::alarms::late;
use abide_tests::cluster::Cluster;
use abide_tests::fake_clock;
use abide_tests::tool_server::ToolServer;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::agents::{calls_once, http, tool};
use crate::cluster_state::{
    LOAD_FACTOR, cluster, metric, time, wait_until_connected, wait_until_passivated,
};

/// Three nodes: the first has the right clock, the others are an hour ahead and an hour behind.
async fn cluster_with_skewed_clocks() -> Cluster {
    let library = fake_clock::library().expect("libfaketime is needed: apt-get install faketime");
    let mut cluster = cluster(1, &["--passivate-after", "50ms"]).await;
    for offset in ["+1h", "-1h"] {
        let off = |site: abide_tests::node::Site| {
            let site = site.with_env("LD_PRELOAD", library).with_env("FAKETIME", offset);
            // Durations are measured with the monotonic clock, which is not faked.
            site.with_env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        };
        cluster.join(off).await;
    }
    wait_until_connected(&cluster).await;
    cluster
}

#[tokio::test]
async fn everything_happens_at_the_time_of_the_store_wherever_it_happens() {
    let (mut cluster, tools) = (cluster_with_skewed_clocks().await, ToolServer::start().await);
    for node in [1, 2] {
        let log = cluster.log(node);
        assert!(log.contains("clock set to the store's time"), "the clock is not off: {log}");
    }
    let ask = tool("ask", json!({"executor": "human", "timeout": "3s"}));
    let agent = calls_once(vec![ask, http("run", &tools, "/slow", json!({}))]);
    cluster.client(1).define("a", &agent).await;
    let before = Timestamp::now();
    let places = [(0, 1), (1, 2), (2, 0)];
    for (index, via) in places {
        // Resolved through another node than the holder.
        let (expires, answered) = (format!("expires-{index}"), format!("answered-{index}"));
        for id in [&expires, &answered] {
            cluster.client(index).send_message(id, "a", "go").await;
        }
        let entry = cluster.client(via).wait_for_pending(&expires, "ask", "elicitation").await;
        let wait = time(&entry["expires_at"]).duration_since(time(&entry["suspended_at"]));
        assert_eq!(wait, SignedDuration::from_secs(3));
        cluster.client(via).wait_for_pending(&answered, "ask", "elicitation").await;
        cluster.client(via).resolve(&answered, "ask", json!({"result": 1})).await.expect(200);
        cluster.client(via).wait_until_settled(&answered, 1).await;
    }
    wait_until_passivated(cluster.client(2)).await;
    for (index, via) in places {
        let journal = cluster.client(via).wait_until_settled(&format!("expires-{index}"), 1).await;
        assert_eq!(journal.result("ask")["error_type"], "EXPIRED");
    }
    let evidence = cluster.evidence(&[&tools]).await;
    evidence.assert_no_violations();
    let after = Timestamp::now();
    for (id, journal) in &evidence.journals {
        // Rounding loses a millisecond, the way to the store a few more.
        let slack = Duration::from_millis(100) * LOAD_FACTOR;
        for event in &journal.0 {
            let at = time(&event["at"]);
            assert!(at > before - slack && at < after + slack, "{id}: {event}");
        }
    }
    assert_eq!(late(&evidence, Duration::from_millis(200) * LOAD_FACTOR), [""; 0]);
    for client in cluster.clients() {
        assert_eq!(metric(client, "abide_burials_total").await, 0.0, "a node was declared dead");
        assert_eq!(metric(client, "abide_late_messages_total").await, 0.0, "a call was late");
    }

    // A holder an hour ahead dies; one an hour behind takes over, and the deadline stays.
    cluster.client(1).send_message("moves", "a", "go").await;
    let entry = cluster.client(0).wait_for_pending("moves", "ask", "elicitation").await;
    cluster.kill(1).await;
    let moved = cluster.client(2).wait_for_pending("moves", "ask", "elicitation").await;
    assert_eq!(moved["expires_at"], entry["expires_at"]);
    cluster.client(2).wait_until_settled("moves", 1).await;
    let evidence = cluster.evidence(&[&tools]).await;
    evidence.assert_no_violations();
    assert_eq!(late(&evidence, Duration::from_millis(200) * LOAD_FACTOR), [""; 0]);
}
