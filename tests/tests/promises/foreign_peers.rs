//! Connections from foreign peers are logged at a limited rate, counted, and harmless.

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
use crate::cluster_state::{LOAD_FACTOR, cluster, metric, node, wait_until_connected};

const REFUSED_METRIC: &str = "abide_peers_refused_total";

/// How long a conversation between the nodes may take while foreign peers connect.
const MAX_SERVE_TIME: Duration = Duration::from_secs(1);

/// Fails unless a conversation between the two nodes works in time.
async fn expect_served(cluster: &Cluster, id: &str) {
    let began = Instant::now();
    cluster.client(0).send_message(id, "a", "go").await;
    cluster.client(1).wait_for_pending(id, "ask", "elicitation").await;
    cluster.client(1).resolve(id, "ask", json!({"result": 1})).await.expect(200);
    cluster.client(1).wait_until_settled(id, 1).await;
    let took = began.elapsed();
    assert!(took < MAX_SERVE_TIME * LOAD_FACTOR, "{id} took {took:?}");
}

/// The number of log lines about peers refused for this cause.
fn refusal_lines(cluster: &Cluster, node: usize, cause: &str) -> usize {
    let cause = format!("\"cause\":\"{cause}\"");
    let is = |line: &&str| line.contains("peer rejected") && line.contains(&cause);
    cluster.log(node).lines().filter(is).count()
}

async fn refused_count(client: &Client, cause: &str) -> f64 {
    metric(client, &format!("{REFUSED_METRIC}{{cause=\"{cause}\"}}")).await
}

async fn pair() -> Cluster {
    let cluster = cluster(2, &[]).await;
    wait_until_connected(&cluster).await;
    cluster.client(0).define("a", &calls_once(vec![human("ask")])).await;
    cluster
}

async fn connect(cluster: &Cluster) -> TcpStream {
    let address = cluster.client(0).cluster_address().unwrap();
    within("a connection", TcpStream::connect(address)).await.unwrap()
}

#[tokio::test]
async fn garbage_and_silence_are_disconnected_and_logged_once() {
    let cluster = pair().await;
    let silent = join_all((0..10).map(|_| connect(&cluster))).await;
    for n in 0..50 {
        let mut foreign = connect(&cluster).await;
        // The node decides what it answers and when it hangs up.
        let _ = foreign.write_all(&[b'x'; 300]).await;
        let _ = within("the end", foreign.read_to_end(&mut Vec::new())).await;
        if n % 10 == 0 {
            expect_served(&cluster, &format!("c{n}")).await;
        }
    }
    for mut foreign in silent {
        let _ = within("the end", foreign.read_to_end(&mut Vec::new())).await;
    }
    let client = cluster.client(0);
    poll("the silent ones to be counted", async || {
        (refused_count(client, "silent").await == 10.0).then_some(())
    })
    .await;
    assert_eq!(refused_count(client, "garbage").await, 50.0);
    let lines = ["silent", "garbage"].map(|cause| refusal_lines(&cluster, 0, cause));
    // At most one line in ten seconds.
    assert!(lines.iter().all(|lines| (1..=3).contains(lines)), "{lines:?}");
    cluster.evidence(&[]).await.assert_no_violations();
}

#[tokio::test]
async fn a_flood_of_connections_and_of_bytes_does_not_delay_others() {
    let cluster = pair().await;
    let address = cluster.client(0).cluster_address().unwrap();
    let flood = |address: String| async move {
        let bytes = vec![0x16; 64 << 10];
        loop {
            let Ok(mut foreign) = TcpStream::connect(&address).await else { continue };
            while foreign.write_all(&bytes).await.is_ok() {}
        }
    };
    let mut floods = tokio::task::JoinSet::new();
    for _ in 0..4 {
        floods.spawn(flood(address.clone()));
    }
    let silent = join_all((0..300).map(|_| connect(&cluster))).await;
    for n in 0..5 {
        expect_served(&cluster, &format!("c{n}")).await;
    }
    let client = cluster.client(0);
    poll("the crowd to be counted", async || {
        (refused_count(client, "crowded").await > 200.0).then_some(())
    })
    .await;
    assert!((1..=3).contains(&refusal_lines(&cluster, 0, "crowded")));
    for index in 0..2 {
        assert_eq!(node(client, cluster.name(index)).await["state"], "up");
    }
    drop((silent, floods));
    cluster.evidence(&[]).await.assert_no_violations();
}

#[tokio::test]
async fn a_node_with_another_secret_is_refused_and_the_others_go_on() {
    let mut cluster = cluster(2, &[]).await;
    wait_until_connected(&cluster).await;
    let asks = tool("ask", json!({"executor": "human", "timeout": "3s"}));
    cluster.client(0).define("a", &calls_once(vec![asks])).await;
    let foreign = cluster
        .join(|site| {
            site.with_env("ABIDE_CLUSTER_SECRET", "not the same secret as that of the others")
        })
        .await;
    for index in 0..2 {
        poll("the foreign node to be refused", async || {
            (refused_count(cluster.client(index), "secret").await > 0.0).then_some(())
        })
        .await;
    }
    for n in 0..3 {
        expect_served(&cluster, &format!("c{n}")).await;
    }
    let ids: Vec<String> = (0..24).map(|n| format!("expires-{n}")).collect();
    for (n, id) in ids.iter().enumerate() {
        cluster.client(n % 2).send_message(id, "a", "go").await;
    }
    for id in &ids {
        let journal = cluster.client(0).wait_until_settled(id, 1).await;
        assert_eq!(journal.result("ask")["error_type"], "EXPIRED");
    }
    for index in 0..2 {
        assert!(
            (1..=3).contains(&refusal_lines(&cluster, index, "secret")),
            "{}",
            cluster.log(index)
        );
    }
    let evidence = cluster.evidence(&[]).await;
    evidence.assert_no_violations();
    let late = Duration::from_secs(1) * LOAD_FACTOR;
    assert_eq!(abide_tests::checks::alarms::late(&evidence, late), [""; 0]);
    cluster.terminate(foreign).await;
}
