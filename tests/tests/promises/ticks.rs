//! Ticks of schedules and scheduled messages happen once, whichever nodes die before, and none is lost.

use std::collections::BTreeSet;
use std::time::Duration;

use abide_tests::client::Client;
use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::agents::{agent, steps};
use crate::cluster_state::{LOAD_FACTOR, cluster, time, wait_until_connected};

/// How many ticks are waited for.
const TICKS: usize = 8;
const DEADLINE: Duration = Duration::from_secs(60);

/// An agent that answers with a text.
fn answering() -> Value {
    agent(steps(&[]), Vec::new())
}

async fn put_schedule(client: &Client, name: &str, schedule: Value) {
    let path = format!("/v1/schedules/{name}");
    let put = client.ask(Method::PUT, &path, None, Some(&schedule)).await.unwrap();
    assert_eq!(put.status, 201, "{:#}", put.body);
}

/// The ticks whose messages a conversation has.
async fn ticks(client: &Client, id: &str) -> Vec<Timestamp> {
    let Some(journal) = client.try_journal(id).await else { return Vec::new() };
    let sent = journal.of("user_msg").map(|event| {
        let id = event["data"]["message_id"].as_str().unwrap();
        let tick = id.rsplit(':').next().unwrap();
        Timestamp::strptime("%Y%m%dT%H%M%S%z", tick.replace('Z', "+0000")).unwrap()
    });
    sent.collect()
}

#[tokio::test]
async fn each_tick_happens_once_while_nodes_are_killed() {
    let mut cluster = cluster(3, &[]).await;
    cluster.client(0).define("a", &answering()).await;
    let schedule = json!({"agent": "a", "every": "1s", "text": "tick", "conversation": "c",
        "missed": "all"});
    put_schedule(cluster.client(0), "often", schedule).await;
    let deadline = Instant::now() + DEADLINE * LOAD_FACTOR;
    let mut killed = 0;
    loop {
        let survivor = cluster.client(2);
        let seen = ticks(survivor, "c").await;
        // The second and the fourth tick each cost a node.
        if killed < 2 && seen.len() >= 2 * (killed + 1) {
            cluster.kill(killed).await;
            killed += 1;
        }
        if seen.len() >= TICKS && killed == 2 {
            break;
        }
        assert!(Instant::now() < deadline, "{seen:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let seen = ticks(cluster.client(2), "c").await;
    let distinct: BTreeSet<Timestamp> = seen.iter().copied().collect();
    assert_eq!(distinct.len(), seen.len(), "a tick happened twice: {seen:?}");
    let all: Vec<Timestamp> = distinct.into_iter().collect();
    assert_eq!(all, seen, "the ticks happened in order");
    for pair in all.windows(2) {
        assert_eq!(pair[1].duration_since(pair[0]).as_secs(), 1, "a tick was lost: {seen:?}");
    }
}

#[tokio::test]
async fn a_scheduled_message_is_delivered_once_though_its_node_is_killed() {
    let mut cluster = cluster(3, &["--passivate-after", "20ms"]).await;
    wait_until_connected(&cluster).await;
    let client = cluster.client(0).clone();
    client.define("a", &answering()).await;
    let ids: Vec<String> = (0..20).map(|n| format!("later-{n}")).collect();
    for id in &ids {
        let body = json!({"agent": "a", "text": "later", "deliver_in": "3s"});
        client.post(&format!("/v1/conversations/{id}/messages"), &body).await.expect(202);
    }
    cluster.kill(0).await;
    let client = cluster.client(1);
    for id in &ids {
        let journal = client.wait_until_settled(id, 1).await;
        let (scheduled, sent) = (
            journal.of("message_scheduled").next().unwrap(),
            journal.of("user_msg").next().unwrap(),
        );
        assert!(time(&sent["at"]) >= time(&scheduled["data"]["deliver_at"]));
        assert_eq!(journal.of("user_msg").count(), 1);
        assert_eq!(journal.outcomes(), ["completed"]);
    }
}

#[tokio::test]
async fn many_schedules_at_one_second_all_have_their_tick() {
    const SCHEDULES: usize = 300;
    let cluster = cluster(3, &["--passivate-after", "20ms"]).await;
    let client = cluster.client(0);
    client.define("a", &answering()).await;
    let soon = Timestamp::now() + jiff::SignedDuration::from_secs(8);
    let soon = Timestamp::from_second(soon.as_second()).unwrap();
    let names: Vec<String> = (0..SCHEDULES).map(|n| format!("s{n}")).collect();
    let schedule = json!({"agent": "a", "every": "24h", "start": soon.to_string(), "text": "tick"});
    for names in names.chunks(50) {
        let puts = names.iter().map(|name| put_schedule(client, name, schedule.clone()));
        futures::future::join_all(puts).await;
    }
    let tick = soon.strftime("%Y%m%dT%H%M%SZ").to_string();
    for name in &names {
        let id = format!("{name}-{tick}");
        let journal = client.wait_until_settled(&id, 1).await;
        assert_eq!(journal.of("user_msg").count(), 1);
    }
}
