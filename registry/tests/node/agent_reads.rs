//! How often the store is asked for an agent.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use abide_actors::agents::Agents;
use abide_conversation::{AgentName, Scoped};
use futures::future::try_join_all;

use crate::flaky_store::FlakyStore;
use crate::revival::APPROVAL_AGENT;
use crate::test_node::TestNode;

#[tokio::test]
async fn those_who_ask_at_once_for_an_agent_share_what_was_read_after_they_asked() {
    let store = Arc::new(FlakyStore::default());
    let node = TestNode::with_store(store.clone(), APPROVAL_AGENT).await;
    let (agent, id) = (AgentName::new("a"), Scoped::parse("x").unwrap());
    let before = store.agent_reads.load(Ordering::SeqCst);
    let choices = (0..50).map(|_| node.catalog.choose(&agent, &id));
    assert!(try_join_all(choices).await.unwrap().iter().all(Option::is_some));
    assert_eq!(store.agent_reads.load(Ordering::SeqCst) - before, 2);
    let name = Scoped::parse("a").unwrap();
    try_join_all((0..50).map(|_| node.catalog.decisions(&name))).await.unwrap();
    assert_eq!(store.agent_reads.load(Ordering::SeqCst) - before, 4);
}
