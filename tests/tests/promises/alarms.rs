//! Alarms ring once and in time, whoever dies before.

use std::time::Duration;

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
use crate::facts::{FACTOR, all_parked, cluster, moment, time, whole};

/// How late an alarm may be on a machine that has nothing else to do, and under load.
const IDLE: Duration = Duration::from_millis(200);
const LOADED: Duration = Duration::from_secs(1);

/// An agent that asks and waits so long.
fn asks(timeout: Duration) -> Value {
    let timeout = format!("{}ms", timeout.as_millis());
    calls_once(vec![tool("ask", json!({"executor": "human", "timeout": timeout}))])
}

/// Starts these conversations on one node, and returns when the last of them waits.
async fn wait(client: &Client, ids: &[String]) -> Vec<Timestamp> {
    join_all(ids.iter().map(|id| async move {
        client.send_message(id, "asks", "go").await;
        time(&client.wait_for_pending(id, "ask", "elicitation").await["expires_at"])
    }))
    .await
}

fn names(kind: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{kind}-{n}")).collect()
}

/// Waits until all have expired, each once, and returns what was seen of them.
async fn expired(cluster: &Cluster, ids: &[String]) -> Evidence {
    let client = cluster.client(cluster.other(usize::MAX));
    for id in ids {
        let journal = client.wait_until_settled(id, 1).await;
        assert_eq!(journal.result("ask")["error_type"], "EXPIRED");
    }
    let evidence = cluster.evidence(&[]).await;
    evidence.assert_no_violations();
    evidence
}

/// How late the last of them was.
fn latest(evidence: &Evidence, ids: &[String]) -> SignedDuration {
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
    whole(&cluster).await;
    cluster.client(0).define("asks", &asks(Duration::from_millis(2_500))).await;
    let mut all = Vec::new();
    for (place, client) in cluster.clients().enumerate() {
        let ids = names(&format!("c{place}"), 10);
        wait(client, &ids).await;
        all.extend(ids);
    }
    all_parked(cluster.client(0)).await;
    let evidence = expired(&cluster, &all).await;
    println!("measured the latest of 30 idle alarms: {:?}", latest(&evidence, &all));
    assert_eq!(late(&evidence, IDLE * FACTOR), [""; 0]);
}

#[tokio::test]
async fn the_alarms_of_a_node_that_dies_just_before_ring_in_time() {
    let mut cluster = cluster(3, &["--passivate-after", "20ms"]).await;
    whole(&cluster).await;
    cluster.client(0).define("asks", &asks(Duration::from_millis(2_500))).await;
    // Held by the first node, looked after by the last.
    let members = ["node-0", "node-1", "node-2"];
    let share = PartitionSet::of("node-2", &members);
    let mut ids = names("c", 60);
    ids.retain(|id| share.contains(Partition::of(id)));
    assert!(ids.len() > 5);
    let due = wait(cluster.client(0), &ids).await;
    let first = due.iter().min().unwrap();
    moment(first.checked_sub(SignedDuration::from_millis(150)).unwrap()).await;
    cluster.kill(2).await;
    let evidence = expired(&cluster, &ids).await;
    println!("measured the latest alarm of a node that died: {:?}", latest(&evidence, &ids));
    assert_eq!(late(&evidence, IDLE * FACTOR), [""; 0]);
}

#[tokio::test]
async fn what_was_due_while_nobody_lived_rings_at_the_start_and_no_deadline_is_moved() {
    let mut cluster = cluster(3, &[]).await;
    whole(&cluster).await;
    cluster.client(0).define("asks", &asks(Duration::from_millis(2_000))).await;
    let early = names("early", 6);
    let due = wait(cluster.client(0), &early).await;
    cluster.client(1).define("asks", &asks(Duration::from_millis(5_000))).await;
    let later = names("later", 6);
    let later_due = wait(cluster.client(1), &later).await;
    for node in 0..3 {
        cluster.kill(node).await;
    }
    moment(*due.iter().max().unwrap()).await;
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
    assert!(took < LOADED * FACTOR, "{took:?}");
    let evidence = expired(&cluster, &[early, later.clone()].concat()).await;
    let latest = latest(&evidence, &later);
    println!("measured the latest alarm after a restart: {latest:?}");
    // Those that were due when the nodes began to serve are late for a reason.
    let bound = IDLE * FACTOR + Duration::try_from(Timestamp::now().duration_since(at)).unwrap();
    assert!(latest < SignedDuration::try_from(bound).unwrap());
    if later_due.iter().all(|due| *due > at) {
        assert!(latest < SignedDuration::try_from(IDLE * FACTOR).unwrap(), "{latest:?}");
    }
}

#[tokio::test]
async fn three_hundred_at_once_ring_within_a_second_under_load() {
    let cluster = cluster(3, &["--passivate-after", "20ms"]).await;
    whole(&cluster).await;
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
    moment(due - LOADED / 2).await;
    let load = (0..3).map(|task| {
        let client = cluster.client(task % 3);
        async move {
            let mut said = 0;
            while Timestamp::now() < due + LOADED {
                client.send_message(&format!("load-{task}-{said}"), "speaks", "go").await;
                said += 1;
            }
            said
        }
    });
    let said: usize = join_all(load).await.into_iter().sum();
    let evidence = expired(&cluster, &all).await;
    let latest = latest(&evidence, &all);
    println!("measured the latest of 300 alarms at once beside {said} turns: {latest:?}");
    assert_eq!(late(&evidence, LOADED * FACTOR), [""; 0]);
}
