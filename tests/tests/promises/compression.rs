//! Nodes that compress what they store, beside nodes that do not.

use abide_tests::cluster::Plan;
use abide_tests::redis::Redis;
use serde_json::json;

use crate::ABIDE;
use crate::agents::{calls_once, human};

/// The magic number of zstd begins with it, and JSON with another one.
const FRAME: u8 = b'(';

#[tokio::test]
async fn what_a_killed_node_compressed_is_taken_up_by_one_that_does_not_and_back() {
    let plan = Plan::new(ABIDE).some_compress().with(&["--lease", "1s"]);
    let mut cluster = plan.start(Redis::process().await, 2).await;
    cluster.client(1).define("a", &calls_once(vec![human("ask")])).await;
    for (id, node) in [("plain", 0), ("compressed", 1)] {
        let (client, other) = (cluster.client(node), cluster.client(1 - node).clone());
        client.send_message(id, "a", "What is written by hand is of some length.").await;
        client.wait_for_pending(id, "ask", "elicitation").await;
        assert_eq!(cluster.holder(node, id).await, node);
        cluster.kill(node).await;
        other.wait_for_pending(id, "ask", "elicitation").await;
        other.resolve(id, "ask", json!({"result": 1})).await.expect(200);
        let journal = other.wait_until_settled(id, 1).await;
        assert_eq!(journal.outcomes(), ["completed"]);
        cluster.restart(node).await;
        let keys: Vec<String> = cluster.redis.ask(&["KEYS", &format!("*:j:{id}")]).await;
        let stored: Vec<Vec<u8>> = cluster.redis.ask(&["LRANGE", &keys[0], "0", "-1"]).await;
        let (compressed, plain): (Vec<_>, Vec<_>) = stored
            .iter()
            .filter(|event| event[0] == FRAME || event.len() >= 128)
            .partition(|event| event[0] == FRAME);
        assert!(compressed.len() >= 2 && plain.len() >= 2, "{compressed:?} {plain:?}");
    }
}
