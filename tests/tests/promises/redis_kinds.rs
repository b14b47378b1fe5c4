//! The promises over a Redis pair that fails over, and over a Redis cluster of three primaries.

use abide_tests::cluster::{Cluster, Plan};
use abide_tests::deadline::poll;
use abide_tests::redis::servers::Server;
use abide_tests::redis::{Redis, free_port};
use abide_tests::tool_server::ToolServer;
use futures::future::join_all;
use serde_json::json;

use crate::ABIDE;
use crate::agents::{calls_once, http};
use crate::cluster_state::{send_until_accepted, wait_for_readiness, wait_until_connected};

/// The first slot of each primary, and the one after the last.
const SLOTS: [u16; 4] = [0, 5_461, 10_923, 16_384];

/// Starts conversations on the first node that wait for an approval.
async fn start_suspended(cluster: &Cluster, tools: &ToolServer) {
    wait_until_connected(cluster).await;
    let gated = json!({"approval": "requires_approval"});
    let agent = calls_once(vec![http("run", tools, "/answer", gated)]);
    cluster.client(0).define("gated", &agent).await;
    let quick = calls_once(vec![http("run", tools, "/answer", json!({}))]);
    cluster.client(0).define("quick", &quick).await;
    for id in ["a", "b", "c"] {
        cluster.client(0).send_message(id, "gated", "go").await;
        cluster.client(1).wait_for_pending(id, "run", "approval").await;
    }
}

/// Kills the holder, and approves the calls through the other nodes.
async fn approve_elsewhere(cluster: &mut Cluster, tools: &ToolServer) {
    cluster.kill(0).await;
    for (n, id) in ["a", "b", "c"].into_iter().enumerate() {
        let client = cluster.client(1 + n % 2);
        let approve = async || {
            let answer = client.resolve(id, "run", json!({"approved": true})).await;
            assert!([200, 503].contains(&answer.status), "{answer:#?}");
            (answer.status == 200).then_some(())
        };
        poll("an approval to be accepted", approve).await;
        let journal = cluster.client(2).wait_until_settled(id, 1).await;
        assert_eq!(journal.outcomes(), ["completed"]);
    }
    cluster.evidence(&[tools]).await.assert_no_violations();
}

#[tokio::test]
async fn a_failover_in_mid_commit_loses_nothing_that_a_replica_acknowledged() {
    let (primary, tools) = (Redis::process().await, ToolServer::start().await);
    primary.ask::<()>(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]).await;
    let port = primary.address().rsplit_once(':').unwrap().1.to_owned();
    let flags = ["--replicaof", "127.0.0.1", &port, "--repl-diskless-sync-delay", "0"];
    let replica = Server::start(&flags).await;
    primary.wait_for_replica().await;
    let sentinel = Server::sentinel(primary.address()).await;
    let store = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port);
    let plan = Plan::new(ABIDE).with_store(&store).with(&["--durability", "replicas=1"]);
    let mut cluster = plan.start(primary, 3).await;
    start_suspended(&cluster, &tools).await;

    let clients: Vec<_> = cluster.clients().cloned().collect();
    let load = join_all((0..4).map(|task| {
        let clients = &clients;
        async move {
            for n in 0..10 {
                let message = format!("m{task}-{n}");
                send_until_accepted(
                    &clients[(task + n) % 3],
                    &format!("c{task}"),
                    "quick",
                    &message,
                )
                .await;
            }
        }
    }));
    let failover = async {
        tools.requests.nth(8).await;
        cluster.redis.kill().await;
        poll("the replica to be the primary", async || {
            let role: Vec<redis::Value> = replica.ask(&["ROLE"]).await.ok()?;
            (role.first() == Some(&redis::Value::BulkString(b"master".to_vec()))).then_some(())
        })
        .await;
        // Nothing is acknowledged until a replica follows the new primary.
        cluster.redis.restart().await;
        let new = replica.port.to_string();
        cluster.redis.ask::<()>(&["REPLICAOF", "127.0.0.1", &new]).await;
    };
    tokio::join!(load, failover);
    for client in cluster.clients() {
        wait_for_readiness(client, 200).await;
    }
    approve_elsewhere(&mut cluster, &tools).await;
}

#[tokio::test]
async fn three_primaries_carry_a_story_that_outlives_its_holder() {
    let tools = ToolServer::start().await;
    let mut servers = Vec::new();
    for index in 0..3 {
        let bus = free_port().to_string();
        let args = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"];
        let server = Server::start(&[&args[..], &["--cluster-port", &bus]].concat()).await;
        let (first, last) = (SLOTS[index].to_string(), (SLOTS[index + 1] - 1).to_string());
        server.ask::<()>(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]).await.unwrap();
        let epoch = (index + 1).to_string();
        server.ask::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]).await.unwrap();
        servers.push((server, bus));
    }
    let (first, others) = servers.split_first().unwrap();
    for (server, _) in others {
        let port = first.0.port.to_string();
        server.ask::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port, &first.1]).await.unwrap();
    }
    for (server, _) in &servers {
        poll("all slots to be served", async || {
            let info: String = server.ask(&["CLUSTER", "INFO"]).await.ok()?;
            let slots: Vec<redis::Value> = server.ask(&["CLUSTER", "SLOTS"]).await.ok()?;
            (info.contains("cluster_state:ok") && slots.len() == 3).then_some(())
        })
        .await;
    }
    let store = format!("redis+cluster://127.0.0.1:{}", first.0.port);
    let plan = Plan::new(ABIDE).with_store(&store).with(&["--durability", "os"]);
    // Only the three primaries are used; the harness's own Redis stays empty.
    let mut cluster = plan.start(Redis::process().await, 3).await;
    start_suspended(&cluster, &tools).await;
    for n in 0..8 {
        let client = cluster.client(n % 3);
        send_until_accepted(client, &format!("c{n}"), "quick", "m").await;
    }
    approve_elsewhere(&mut cluster, &tools).await;
    let keys: u64 = cluster.redis.ask(&["DBSIZE"]).await;
    assert_eq!(keys, 0);
}
