//! Moves a slot of a Redis Cluster, with its keys, while clients use them.

use super::redis_cluster::host_and_port;
use crate::random::SeededRandom;
use crate::redis::Redis;

/// Keys that are moved at a time.
const MOVED_KEYS: &str = "10";
/// How long one of the servers may take to move them, in milliseconds.
const MOVE_TIMEOUT_MS: &str = "5000";
/// How often a server without keys is passed over.
const MAX_TRIES: usize = 8;

/// Moves the slot of some key to the next of the servers, as an operator does: clients are redirected
/// key by key meanwhile. Does nothing if no server has a key.
pub(super) async fn move_a_slot(servers: &[&Redis], random: &mut SeededRandom) {
    for _ in 0..MAX_TRIES {
        // Below the number of servers, which fits.
        let source = random.below(servers.len() as u64) as usize;
        let target = servers[(source + 1) % servers.len()];
        let key: Option<String> = servers[source].ask(&["RANDOMKEY"]).await;
        if let Some(key) = key {
            let slot: u64 = servers[source].ask(&["CLUSTER", "KEYSLOT", &key]).await;
            return move_slot(servers, servers[source], target, &slot.to_string()).await;
        }
    }
}

async fn move_slot(servers: &[&Redis], source: &Redis, target: &Redis, slot: &str) {
    let [from, to] = [id(source).await, id(target).await];
    let set = |state, node| ["CLUSTER", "SETSLOT", slot, state, node];
    target.ask::<()>(&set("IMPORTING", &from)).await;
    source.ask::<()>(&set("MIGRATING", &to)).await;
    let (host, port) = host_and_port(target);
    loop {
        let ask = ["CLUSTER", "GETKEYSINSLOT", slot, MOVED_KEYS];
        let keys: Vec<String> = source.ask(&ask).await;
        if keys.is_empty() {
            break;
        }
        let mut command = vec!["MIGRATE", host, port, "", "0", MOVE_TIMEOUT_MS, "KEYS"];
        command.extend(keys.iter().map(String::as_str));
        source.ask::<String>(&command).await;
    }
    // The new owner first, so that the slot always has one.
    target.ask::<()>(&set("NODE", &to)).await;
    for server in servers {
        server.ask::<()>(&set("NODE", &to)).await;
    }
}

async fn id(server: &Redis) -> String {
    server.ask(&["CLUSTER", "MYID"]).await
}
