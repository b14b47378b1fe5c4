//! A page on a root is a client of the children, too, and is told what they wait for.

use std::time::Duration;

use abide_actors::child_calls::ChildCalls;
use abide_actors::journal::InboxEntry;
use abide_actors::live::Signal;
use abide_conversation::Scoped;
use abide_conversation::command::ResolutionAnswer;
use abide_conversation::event::{EventData, TurnOutcome};
use abide_registry::live::{StreamItem, Subscription};
use abide_registry::membership::LinkState;
use abide_registry::placement::Policy;
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::sub_agents::{BOSS, check_all_settled, child, suspended};
use crate::test_cluster::{DeathMode, TestCluster};
use crate::test_node::{TestNode, connect_client, results};

/// A child that needs a page.
const LOCATING_KID: &str = r#"
name: kid
client_grace: 5s
suspension_timeout: 30m
model: {provider: scripted, script: [{calls: [{id: k, name: locate, args: {}}]}, {text: "{{ results.locate.result or results.locate.error }}"}]}
tools: [{name: locate, description: Where are you?, parameters: {type: object}, executor: client}]
"#;

fn is_result(data: &EventData) -> bool {
    matches!(data, EventData::ToolResult(_))
}

/// What the descendants of `x` wait for, as its snapshot shows it.
async fn calls_at_root(node: &TestNode, root: &str) -> Vec<InboxEntry> {
    let snapshot =
        node.conversations.snapshot(&Scoped::parse(root).unwrap()).await.unwrap().unwrap();
    snapshot.descendants.calls.iter().flat_map(ChildCalls::entries).collect()
}

/// The next time that a stream is told of a child. `None` after a second without.
async fn next_calls(stream: &mut Subscription) -> Option<ChildCalls> {
    let next = async {
        loop {
            match stream.next().await {
                StreamItem::Signal(shared) => {
                    if let Signal::Child(calls) = &shared.signal {
                        return ChildCalls::clone(calls);
                    }
                }
                StreamItem::Missed => {}
            }
        }
    };
    timeout(Duration::from_secs(1), next).await.ok()
}

#[tokio::test(start_paused = true)]
async fn a_childs_client_call_waits_for_a_page_on_the_root() {
    let node = TestNode::new(BOSS).await;
    node.define(LOCATING_KID).await;
    let page = connect_client(&node, "x");
    node.send("x", "go").await.unwrap();
    let kid = child(&node, "x").await;
    suspended(&node, &kid).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(
        node.state(&kid).await.pending_calls().len(),
        1,
        "the page on the root did not count"
    );
    drop(page);
    // The page reconnects in time.
    sleep(Duration::from_secs(4)).await;
    let page = connect_client(&node, "x");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(node.state(&kid).await.pending_calls().len(), 1, "the page that came back did not");
    let open = calls_at_root(&node, "x").await;
    let named: Vec<_> = open
        .iter()
        .map(|open| {
            (open.conversation_id.as_str(), open.agent.as_str(), open.pending.call_id.as_str())
        })
        .collect();
    assert_eq!(named, [(&*kid, "kid", "k")]);
    assert_eq!(calls_at_root(&node, &kid).await, [], "a child shows its own calls only");
    node.resolve(&kid, "k", ResolutionAnswer::Result(json!("here"))).await.unwrap();
    assert_eq!(node.turn_end("x", 1).await, (TurnOutcome::Completed, None));
    assert_eq!(results(&node.journal("x").await, "c"), [json!({"ok": true, "result": "here"})]);
    assert_eq!(calls_at_root(&node, "x").await, []);
    drop(page);
    check_all_settled(&node).await;
}

#[tokio::test(start_paused = true)]
async fn a_childs_client_call_without_any_page_ends_after_its_grace() {
    let node = TestNode::new(BOSS).await;
    node.define(LOCATING_KID).await;
    let page = connect_client(&node, "x");
    node.send("x", "go").await.unwrap();
    let kid = child(&node, "x").await;
    let is_suspension = |data: &EventData| matches!(data, EventData::Suspension(_));
    let suspension = node.poll_for_event(&kid, is_suspension).await;
    sleep(Duration::from_secs(60)).await;
    drop(page);
    let ended = node.poll_for_event(&kid, is_result).await;
    assert_eq!(ended.at.duration_since(suspension.at).as_secs(), 65);
    assert_eq!(results(&node.journal(&kid).await, "k")[0]["error_type"], "NO_CLIENT");
    check_all_settled(&node).await;
}

/// Sends messages to roots until one has its child on another node. Returns the root, the child, and
/// the numbers of their nodes.
async fn root_and_distant_child(cluster: &TestCluster) -> (String, String, [usize; 2]) {
    cluster.node(0).define(LOCATING_KID).await;
    for root in (0..20).map(|number| format!("x{number}")) {
        // Without a page, the call would end.
        let page = connect_client(cluster.node(0), &root);
        page.wait_until_announced(Duration::from_secs(1)).await;
        cluster.node(0).send(&root, "go").await.unwrap();
        let kid = child(cluster.node(0), &root).await;
        suspended(cluster.node(0), &kid).await;
        let (at, kid_at) = (cluster.live_on(&root), cluster.live_on(&kid));
        if let ([at], [kid_at]) = (&*at, &*kid_at)
            && at != kid_at
        {
            return (root, kid, [*at, *kid_at]);
        }
    }
    panic!("every child is live where its root is");
}

#[tokio::test(start_paused = true)]
async fn a_page_elsewhere_is_told_of_a_child_whose_node_dies_and_answers_it() {
    let mut cluster = TestCluster::with_policy(2, BOSS, Policy::Rendezvous).await;
    let (root, kid, [page_at, kid_at]) = root_and_distant_child(&cluster).await;
    let mut page = connect_client(cluster.node(page_at), &root);
    page.wait_until_announced(Duration::from_secs(1)).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(
        calls_at_root(cluster.node(page_at), &root).await.len(),
        1,
        "the call did not stay open"
    );
    cluster.kill(kid_at, DeathMode::ConnectionRefused);
    let calls = timeout(Duration::from_secs(60), async {
        loop {
            if let Some(calls) = next_calls(&mut page).await {
                return calls;
            }
        }
    });
    let calls = calls.await.expect("the page was not told of the child that was revived");
    assert_eq!((calls.conversation_id.as_str(), calls.pending.len()), (&*kid, 1));
    sleep(Duration::from_secs(60)).await;
    let node = cluster.node(page_at);
    assert_eq!(
        calls_at_root(node, &root).await.len(),
        1,
        "the call did not stay open after the move"
    );
    node.resolve(&kid, "k", ResolutionAnswer::Result(json!("here"))).await.unwrap();
    let calls = next_calls(&mut page).await.expect("the page was not told of the answer");
    assert_eq!((calls.conversation_id.as_str(), calls.pending), (&*kid, vec![]));
    assert_eq!(node.turn_end(&root, 1).await, (TurnOutcome::Completed, None));
    assert_eq!(results(&node.journal(&root).await, "c"), [json!({"ok": true, "result": "here"})]);
    cluster.check_writes();
}

#[tokio::test(start_paused = true)]
async fn a_page_is_told_live_of_a_child_on_another_node() {
    let cluster = TestCluster::with_policy(2, BOSS, Policy::Rendezvous).await;
    cluster.node(0).define(LOCATING_KID).await;
    // Some of the children are on the other node, whatever their names.
    for root in (0..8).map(|number| format!("x{number}")) {
        let mut page = connect_client(cluster.node(0), &root);
        page.wait_until_announced(Duration::from_secs(1)).await;
        cluster.node(1).send(&root, "go").await.unwrap();
        let kid = child(cluster.node(0), &root).await;
        let opened = next_calls(&mut page).await.expect("the page was not told of the call");
        assert_eq!((opened.conversation_id.as_str(), opened.pending.len()), (&*kid, 1));
        cluster.node(1).resolve(&kid, "k", ResolutionAnswer::Result(json!(1))).await.unwrap();
        let closed = next_calls(&mut page).await.expect("the page was not told of the answer");
        assert_eq!((closed.pending, opened.seq < closed.seq), (vec![], true));
        cluster.node(0).turn_end(&root, 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_cut_off_from_the_childs_node_is_told_to_read() {
    let cluster = TestCluster::with_policy(2, BOSS, Policy::Rendezvous).await;
    let (root, _, [page_at, kid_at]) = root_and_distant_child(&cluster).await;
    let mut page = connect_client(cluster.node(page_at), &root);
    page.mark_children(true);
    cluster.set_link(page_at, kid_at, LinkState::Lost);
    let mut reads = 0;
    let _ = timeout(Duration::from_millis(3_500), async {
        loop {
            reads += usize::from(matches!(page.next().await, StreamItem::Missed));
        }
    })
    .await;
    assert!(reads >= 3, "told to read {reads} times in 3.5 s");
}
