//! Alarms fire once and in time, whichever nodes die before.

use std::time::Duration;

use abide_actors::identity::NodeName;
use abide_registry::partition::{Partition, PartitionSet};
use abide_tests::checks::Evidence;
use abide_tests::checks::alarms::late;
use abide_tests::client::Client;
use abide_tests::cluster::Cluster;
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::agents::{agent, calls_once, tool};
use crate::cluster_state::{
    LOAD_FACTOR, cluster, sleep_until, time, wait_until_connected, wait_until_passivated,
};

/// How late an alarm may be on an idle machine.
const IDLE_TOLERANCE: Duration = Duration::from_millis(200);
/// How late an alarm may be under load.
const LOADED_TOLERANCE: Duration = Duration::from_secs(1);

/// An agent that asks a person, with this time-out.
fn asks(timeout: Duration) -> Value {
    let timeout = format!("{}ms", timeout.as_millis());
    calls_once(vec![tool("ask", json!({"executor": "human", "timeout": timeout}))])
}

/// Starts these conversations on one node, and waits until all are suspended. Returns their
/// deadlines.
async fn start_suspended(client: &Client, ids: &[String]) -> Vec<Timestamp> {
    join_all(ids.iter().map(|id| async move {
        client.send_message(id, "asks", "go").await;
        time(&client.wait_for_pending(id, "ask", "elicitation").await["expires_at"])
    }))
    .await
}

fn names(kind: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{kind}-{n}")).collect()
}

/// Waits until all have expired, and checks that each did once. Returns the evidence.
async fn expect_expired(cluster: &Cluster, ids: &[String]) -> Evidence {
    let client = cluster.client(cluster.other(usize::MAX));
    for id in ids {
        let journal = client.wait_until_settled(id, 1).await;
        assert_eq!(journal.result("ask")["error_type"], "EXPIRED");
    }
    let evidence = cluster.evidence(&[]).await;
    evidence.assert_no_violations();
    evidence
}

/// The largest delay of an expiry.
fn largest_delay(evidence: &Evidence, ids: &[String]) -> SignedDuration {
    let late = ids.iter().map(|id| {
        let journal = &evidence.journals[id];
        let due = time(&journal.about("suspension", "ask").next().unwrap()["data"]["expires_at"]);
        time(&journal.about("tool_result", "ask").next().unwrap()["at"]).duration_since(due)
    });
    late.max().unwrap()
}

#[tokio::test]
async fn parked_conversations_expire_in_time_and_each_once() {
    let cluster = cluster(3, &["--passivate-after", "20ms"]).await;
    wait_until_connected(&cluster).await;
    cluster.client(0).define("asks", &asks(Duration::from_millis(2_500))).await;
    let mut all = Vec::new();
    for (index, client) in cluster.clients().enumerate() {
        let ids = names(&format!("c{index}"), 10);
        start_suspended(client, &ids).await;
        all.extend(ids);
    }
    wait_until_passivated(cluster.client(0)).await;
    let evidence = expect_expired(&cluster, &all).await;
    println!("measured the latest of 30 idle alarms: {:?}", largest_delay(&evidence, &all));
    assert_eq!(late(&evidence, IDLE_TOLERANCE * LOAD_FACTOR), [""; 0]);
}

#[tokio::test]
async fn the_alarms_of_a_node_that_dies_just_before_fire_in_time() {
    let mut cluster = cluster(3, &["--passivate-after", "20ms"]).await;
    wait_until_connected(&cluster).await;
    cluster.client(0).define("asks", &asks(Duration::from_millis(2_500))).await;
    // Held by the first node; their alarms belong to the last one.
    let members = ["node-0", "node-1", "node-2"].map(NodeName::new);
    let share = PartitionSet::of(&members[2], &members.each_ref());
    let mut ids = names("c", 60);
    ids.retain(|id| share.contains(Partition::of(id)));
    assert!(ids.len() > 5);
    let due = start_suspended(cluster.client(0), &ids).await;
    let first = due.iter().min().unwrap();
    sleep_until(first.checked_sub(SignedDuration::from_millis(150)).unwrap()).await;
    cluster.kill(2).await;
    let evidence = expect_expired(&cluster, &ids).await;
    println!("measured the latest alarm of a node that died: {:?}", largest_delay(&evidence, &ids));
    assert_eq!(late(&evidence, IDLE_TOLERANCE * LOAD_FACTOR), [""; 0]);
}

#[tokio::test]
async fn alarms_that_were_due_without_a_node_fire_at_the_start_and_no_deadline_moves() {
    let mut cluster = cluster(3, &[]).await;
    wait_until_connected(&cluster).await;
    cluster.client(0).define("asks", &asks(Duration::from_millis(2_000))).await;
    let early = names("early", 6);
    let due = start_suspended(cluster.client(0), &early).await;
    cluster.client(1).define("asks", &asks(Duration::from_millis(5_000))).await;
    let later = names("later", 6);
    let later_due = start_suspended(cluster.client(1), &later).await;
    for node in 0..3 {
        cluster.kill(node).await;
    }
    sleep_until(*due.iter().max().unwrap()).await;
    for node in 0..3 {
        cluster.restart(node).await;
    }
    let (started, at) = (Instant::now(), Timestamp::now());
    for (id, due) in later.iter().zip(&later_due) {
        let snapshot = cluster.client(2).snapshot(id).await;
        if let Some(waits) = snapshot["pending"].as_array().unwrap().first() {
            assert_eq!(time(&waits["expires_at"]), *due, "a restart moved a deadline");
        }
    }
    for id in &early {
        cluster.client(0).wait_until_settled(id, 1).await;
    }
    let took = started.elapsed();
    println!("measured alarms that were due before the start: {took:?} after it");
    assert!(took < LOADED_TOLERANCE * LOAD_FACTOR, "{took:?}");
    let evidence = expect_expired(&cluster, &[early, later.clone()].concat()).await;
    let latest = largest_delay(&evidence, &later);
    println!("measured the latest alarm after a restart: {latest:?}");
    // Alarms that were due before the nodes served are rightly late.
    let bound = IDLE_TOLERANCE * LOAD_FACTOR
        + Duration::try_from(Timestamp::now().duration_since(at)).unwrap();
    assert!(latest < SignedDuration::try_from(bound).unwrap());
    if later_due.iter().all(|due| *due > at) {
        assert!(
            latest < SignedDuration::try_from(IDLE_TOLERANCE * LOAD_FACTOR).unwrap(),
            "{latest:?}"
        );
    }
}

#[tokio::test]
async fn three_hundred_alarms_at_once_fire_within_a_second_under_load() {
    let cluster = cluster(3, &["--passivate-after", "20ms"]).await;
    wait_until_connected(&cluster).await;
    let speaks = json!({"provider": "scripted", "script": [{"text": "Done."}]});
    cluster.client(0).define("speaks", &agent(speaks, vec![])).await;
    let due = Timestamp::now().checked_add(SignedDuration::from_secs(8)).unwrap();
    let mut all = Vec::new();
    for batch in 0..12 {
        let left = Duration::try_from(due.duration_since(Timestamp::now())).unwrap();
        let client = cluster.client(batch % 3);
        client.define("asks", &asks(left)).await;
        let ids = names(&format!("c{batch}"), 25);
        join_all(ids.iter().map(|id| client.send_message(id, "asks", "go"))).await;
        all.extend(ids);
    }
    assert!(Timestamp::now() < due, "the machine is too slow to have them due at once");
    sleep_until(due - LOADED_TOLERANCE / 2).await;
    let load = (0..3).map(|task| {
        let client = cluster.client(task % 3);
        async move {
            let mut sent = 0;
            while Timestamp::now() < due + LOADED_TOLERANCE {
                client.send_message(&format!("load-{task}-{sent}"), "speaks", "go").await;
                sent += 1;
            }
            sent
        }
    });
    let sent: usize = join_all(load).await.into_iter().sum();
    let evidence = expect_expired(&cluster, &all).await;
    let latest = largest_delay(&evidence, &all);
    println!("measured the latest of 300 alarms at once during {sent} turns: {latest:?}");
    assert_eq!(late(&evidence, LOADED_TOLERANCE * LOAD_FACTOR), [""; 0]);
}
