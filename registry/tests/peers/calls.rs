//! Calls between connected nodes, and what bounds them.

use crate::rig::pair;

#[tokio::test]
async fn two_nodes_call_each_other() {
    let (mut a, mut b) = pair().await;
    assert_eq!(a.call("p-b", 256, 10_000).await, Ok(256));
    assert_eq!(b.call("p-a", 256, 10_000).await, Ok(256));
}
