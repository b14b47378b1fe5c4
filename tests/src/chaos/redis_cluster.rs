//! A Redis Cluster of three primaries, each alone or with a replica that takes over.

use crate::deadline::poll;
use crate::redis::{Redis, free_port};

/// The first slot of each primary, and the one after the last.
const SLOTS: [u16; 4] = [0, 5_461, 10_923, 16_384];

/// Starts the primaries, and a replica of each of them if there are to be any. The replica of a primary
/// has the place of the primary in the second half.
pub(super) async fn start(has_replicas: bool) -> Vec<Redis> {
    let primaries = SLOTS.len() - 1;
    let count = if has_replicas { 2 * primaries } else { primaries };
    let mut servers: Vec<Redis> = Vec::new();
    for index in 0..count {
        let bus = free_port().to_string();
        let flags = ["--cluster-enabled", "yes", "--cluster-port", &bus];
        let times = ["--cluster-node-timeout", "2000", "--repl-diskless-sync-delay", "0"];
        // The slots of a dead primary are unavailable; the others are served.
        let coverage = ["--cluster-require-full-coverage", "no"];
        let server =
            Redis::process_on_disk(&[&flags[..], &times[..], &coverage[..]].concat()).await;
        if index < primaries {
            let (first, last) = (SLOTS[index].to_string(), (SLOTS[index + 1] - 1).to_string());
            server.ask::<()>(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]).await;
            let epoch = (index + 1).to_string();
            server.ask::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]).await;
        }
        if let Some(first) = servers.first() {
            let (host, port) = host_and_port(&server);
            first.ask::<()>(&["CLUSTER", "MEET", host, port, &bus]).await;
        }
        servers.push(server);
    }
    let (primaries, replicas) = servers.split_at(primaries);
    for (primary, replica) in primaries.iter().zip(replicas) {
        let id: String = primary.ask(&["CLUSTER", "MYID"]).await;
        poll("a replica to know its primary", async || {
            replica.try_ask::<()>(&["CLUSTER", "REPLICATE", &id]).await.ok()
        })
        .await;
    }
    wait_until_whole(&servers.iter().collect::<Vec<_>>()).await;
    servers
}

/// Waits until each of the servers sees all slots served by three primaries, and until each replica has
/// what its primary has: a node that starts earlier exits at once, as it does without a Redis.
pub(super) async fn wait_until_whole(servers: &[&Redis]) {
    let has_replicas = servers.len() >= SLOTS.len();
    let known = format!("cluster_known_nodes:{}", servers.len());
    let expected = ["cluster_state:ok", "cluster_slots_ok:16384", &known, "cluster_size:3"];
    for server in servers {
        poll("all slots to be served", async || {
            let info: String = server.try_ask(&["CLUSTER", "INFO"]).await.ok()?;
            let replication: String = server.try_ask(&["INFO", "replication"]).await.ok()?;
            let is_linked = if replication.contains("role:master") {
                !has_replicas || replication.contains("state=online")
            } else {
                replication.contains("master_link_status:up")
            };
            (is_linked && expected.iter().all(|line| info.contains(line))).then_some(())
        })
        .await;
    }
}

/// The ports of the servers that have slots, as this one sees it.
pub(super) async fn primaries(witness: &Redis) -> Vec<String> {
    let nodes: String = poll("a server to name the primaries", async || {
        witness.try_ask(&["CLUSTER", "NODES"]).await.ok()
    })
    .await;
    let port_of_primary = |line: &str| {
        // The slots follow eight other fields, of which the second is the address.
        let mut fields = line.split(' ');
        let address = fields.nth(1)?.split('@').next()?;
        fields.nth(6)?;
        Some(address.rsplit(':').next()?.to_owned())
    };
    nodes.lines().filter_map(port_of_primary).collect()
}

/// The two parts of a server's address.
pub(super) fn host_and_port(server: &Redis) -> (&str, &str) {
    server.address().rsplit_once(':').unwrap_or_default()
}
