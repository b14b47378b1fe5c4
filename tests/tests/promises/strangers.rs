//! Strangers at the door of the cluster: told of once, counted, and no harm to anybody.

use std::time::Duration;

use abide_tests::client::Client;
use abide_tests::cluster::Cluster;
use abide_tests::deadline::{poll, within};
use futures::future::join_all;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::agents::{calls_once, human, tool};
use crate::facts::{FACTOR, cluster, metric, node, whole};

const REFUSED: &str = "abide_peers_refused_total";

/// How long a request to another node may take beside all of them.
const SERVED: Duration = Duration::from_secs(1);

/// A conversation goes from one node to the other and back.
async fn is_served(cluster: &Cluster, id: &str) {
    let began = Instant::now();
    cluster.client(0).send_message(id, "a", "go").await;
    cluster.client(1).wait_for_pending(id, "ask", "elicitation").await;
    cluster.client(1).resolve(id, "ask", json!({"result": 1})).await.expect(200);
    cluster.client(1).wait_until_settled(id, 1).await;
    let took = began.elapsed();
    assert!(took < SERVED * FACTOR, "{id} took {took:?}");
}

/// The lines of a log that tell of strangers for this reason.
fn told(cluster: &Cluster, node: usize, cause: &str) -> usize {
    let cause = format!("\"cause\":\"{cause}\"");
    let is = |line: &&str| line.contains("a node is refused") && line.contains(&cause);
    cluster.log(node).lines().filter(is).count()
}

async fn counted(client: &Client, cause: &str) -> f64 {
    metric(client, &format!("{REFUSED}{{cause=\"{cause}\"}}")).await
}

async fn pair() -> Cluster {
    let cluster = cluster(2, &[]).await;
    whole(&cluster).await;
    cluster.client(0).define("a", &calls_once(vec![human("ask")])).await;
    cluster
}

async fn connect(cluster: &Cluster) -> TcpStream {
    let address = cluster.client(0).cluster_address().unwrap();
    within("a connection", TcpStream::connect(address)).await.unwrap()
}

#[tokio::test]
async fn garbage_and_silence_are_hung_up_on_and_told_of_once() {
    let cluster = pair().await;
    let silent = join_all((0..10).map(|_| connect(&cluster))).await;
    for n in 0..50 {
        let mut stranger = connect(&cluster).await;
        // What it hears, and when it is hung up on, is the door's.
        let _ = stranger.write_all(&[b'x'; 300]).await;
        let _ = within("the end", stranger.read_to_end(&mut Vec::new())).await;
        if n % 10 == 0 {
            is_served(&cluster, &format!("c{n}")).await;
        }
    }
    for mut stranger in silent {
        let _ = within("the end", stranger.read_to_end(&mut Vec::new())).await;
    }
    let client = cluster.client(0);
    poll("the silent ones to be counted", async || {
        (counted(client, "silent").await == 10.0).then_some(())
    })
    .await;
    assert_eq!(counted(client, "garbage").await, 50.0);
    let lines = ["silent", "garbage"].map(|cause| told(&cluster, 0, cause));
    // One in ten seconds.
    assert!(lines.iter().all(|lines| (1..=3).contains(lines)), "{lines:?}");
    cluster.evidence(&[]).await.assert_no_violations();
}

#[tokio::test]
async fn a_flood_of_connections_and_of_bytes_keeps_nobody_from_being_served() {
    let cluster = pair().await;
    let address = cluster.client(0).cluster_address().unwrap();
    let flood = |address: String| async move {
        let bytes = vec![0x16; 64 << 10];
        loop {
            let Ok(mut stranger) = TcpStream::connect(&address).await else { continue };
            while stranger.write_all(&bytes).await.is_ok() {}
        }
    };
    let mut floods = tokio::task::JoinSet::new();
    for _ in 0..4 {
        floods.spawn(flood(address.clone()));
    }
    let silent = join_all((0..300).map(|_| connect(&cluster))).await;
    for n in 0..5 {
        is_served(&cluster, &format!("c{n}")).await;
    }
    let client = cluster.client(0);
    poll("the crowd to be counted", async || {
        (counted(client, "crowded").await > 200.0).then_some(())
    })
    .await;
    assert!((1..=3).contains(&told(&cluster, 0, "crowded")));
    for place in 0..2 {
        assert_eq!(node(client, cluster.name(place)).await["state"], "up");
    }
    drop((silent, floods));
    cluster.evidence(&[]).await.assert_no_violations();
}

#[tokio::test]
async fn a_node_with_another_secret_is_refused_and_the_others_go_on() {
    let mut cluster = cluster(2, &[]).await;
    whole(&cluster).await;
    let asks = tool("ask", json!({"executor": "human", "timeout": "3s"}));
    cluster.client(0).define("a", &calls_once(vec![asks])).await;
    let stranger = cluster.join(|site| site.with_env("ABIDE_CLUSTER_SECRET", "not the same")).await;
    for place in 0..2 {
        poll("the stranger to be refused", async || {
            (counted(cluster.client(place), "secret").await > 0.0).then_some(())
        })
        .await;
    }
    for n in 0..3 {
        is_served(&cluster, &format!("c{n}")).await;
    }
    let ids: Vec<String> = (0..24).map(|n| format!("expires-{n}")).collect();
    for (n, id) in ids.iter().enumerate() {
        cluster.client(n % 2).send_message(id, "a", "go").await;
    }
    for id in &ids {
        let journal = cluster.client(0).wait_until_settled(id, 1).await;
        assert_eq!(journal.result("ask")["error_type"], "EXPIRED");
    }
    for place in 0..2 {
        assert!((1..=3).contains(&told(&cluster, place, "secret")), "{}", cluster.log(place));
    }
    let evidence = cluster.evidence(&[]).await;
    evidence.assert_no_violations();
    let late = Duration::from_secs(1) * FACTOR;
    assert_eq!(abide_tests::checks::alarms::late(&evidence, late), [""; 0]);
    cluster.terminate(stranger).await;
}
