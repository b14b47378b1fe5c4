//! A listener on another node gets every event in order, whatever happens in between.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide_actors::live::Signal;
use abide_conversation::command::{IfBusy, ResolutionAnswer};
use abide_conversation::event::{EventData, TurnOutcome};
use abide_conversation::{Scoped, Seq};
use abide_registry::live::StreamItem;
use abide_registry::membership::LinkState;
use abide_registry::protocol::CallRequest;
use serde_json::json;
use tokio_util::task::AbortOnDropHandle;

use crate::revival::HOLD_AGENT;
use crate::test_cluster::{DeathMode, Fate, TestCluster};
use crate::test_node::{TestNode, connect_client, results, user_message};

const TALKING_AGENT: &str = r#"
name: a
model: {provider: scripted, script: [{text: "one two three four"}]}
"#;
const LOCATING_AGENT: &str = r#"
name: a
client_grace: 5s
suspension_timeout: 10m
model: {provider: scripted, script: [{calls: [{id: c, name: locate, args: {}}]}, {text: "Well."}]}
tools: [{name: locate, description: Where are you?, parameters: {type: object}, executor: client}]
"#;

/// An event stream, which gets each event once and in order, live or from the journal.
struct Listener {
    seqs: Arc<Mutex<Vec<Seq>>>,
    /// How often the listener had to read the journal.
    journal_reads: Arc<AtomicU32>,
    _task: AbortOnDropHandle<()>,
}

impl Listener {
    async fn at(node: &TestNode, id: &str) -> Self {
        let seqs = Arc::new(Mutex::new(Vec::new()));
        let journal_reads = Arc::new(AtomicU32::new(0));
        let (received, reads): (Arc<Mutex<Vec<Seq>>>, _) = (seqs.clone(), journal_reads.clone());
        let (store, id) = (node.store.clone(), Scoped::parse(id).unwrap());
        let mut stream = node.hub.subscribe(&id);
        stream.wait_until_announced(Duration::from_secs(1)).await;
        let task = tokio::spawn(async move {
            loop {
                let item = stream.next().await;
                let last = received.lock().unwrap().last().copied().unwrap_or_default();
                let signal = match &item {
                    StreamItem::Signal(signal) => Some(&signal.signal),
                    StreamItem::Missed => None,
                };
                match signal {
                    Some(Signal::Committed(events)) if events[0].seq <= last.next() => {
                        let new = events.iter().map(|event| event.seq).filter(|seq| *seq > last);
                        received.lock().unwrap().extend(new);
                    }
                    None | Some(Signal::Revived | Signal::Committed(_)) => {
                        reads.fetch_add(1, Ordering::SeqCst);
                        let events = store.events(&id, last, 10_000).await.unwrap_or_default();
                        received.lock().unwrap().extend(events.iter().map(|event| event.seq));
                        let last = received.lock().unwrap().last().copied().unwrap_or_default();
                        stream.mark_known(last);
                    }
                    Some(_) => {}
                }
            }
        });
        Self { seqs, journal_reads, _task: AbortOnDropHandle::new(task) }
    }

    /// Waits until the listener has as many events as the journal, and checks that none is missing.
    async fn check(&self, node: &TestNode, id: &str) {
        let all = node.journal(id).await.len();
        let caught_up = async {
            while self.seqs.lock().unwrap().len() < all {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(3), caught_up).await;
        let seqs = self.seqs.lock().unwrap().clone();
        assert!(in_time.is_ok(), "of {all} events the listener got {seqs:?}");
        let expected: Vec<_> = (1..=all as u64).map(Seq::new).collect();
        assert_eq!(seqs, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_listener_elsewhere_hears_everything_live_and_in_order() {
    let cluster = TestCluster::new(3, TALKING_AGENT).await;
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).turn_end("x", 1).await;
    let mut stream = connect_client(cluster.node(2), "x");
    let listener = Listener::at(cluster.node(2), "x").await;
    let begin = cluster.node(0).journal("x").await.len();
    listener.seqs.lock().unwrap().extend((1..=begin as u64).map(Seq::new));
    let journal_reads = listener.journal_reads.load(Ordering::SeqCst);
    for n in 2..12 {
        cluster.node(1).send("x", "go").await.unwrap();
        cluster.node(1).turn_end("x", n).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    listener.check(cluster.node(0), "x").await;
    assert_eq!(
        listener.journal_reads.load(Ordering::SeqCst),
        journal_reads,
        "the listener had to read the journal"
    );
    let mut texts = 0;
    while let Ok(received) = tokio::time::timeout(Duration::ZERO, stream.next()).await {
        let text = |signal: &Signal| matches!(signal, Signal::Text(_));
        texts +=
            usize::from(matches!(received, StreamItem::Signal(signal) if text(&signal.signal)));
    }
    assert!(texts >= 10, "only {texts} text deltas arrived");
}

#[tokio::test(start_paused = true)]
async fn a_listener_misses_nothing_when_the_conversation_moves_or_its_holder_dies() {
    let mut cluster = TestCluster::new(3, HOLD_AGENT).await;
    cluster.release_all();
    let listener = Listener::at(cluster.node(2), "x").await;
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).turn_end("x", 1).await;
    cluster.node(0).runtime.drain(Duration::from_secs(5)).await;
    cluster.node(1).send("x", "go").await.unwrap();
    cluster.node(1).turn_end("x", 2).await;
    listener.check(cluster.node(1), "x").await;
    assert_eq!(cluster.live_on("x"), [1]);
    cluster.node(1).deliver("x", user_message("go", IfBusy::Queue)).await.unwrap();
    cluster.kill(1, DeathMode::ConnectionRefused);
    cluster.node(2).turn_end("x", 3).await;
    listener.check(cluster.node(2), "x").await;
}

#[tokio::test(start_paused = true)]
async fn a_listener_misses_nothing_when_relays_are_lost_or_too_many() {
    let cluster = TestCluster::new(2, HOLD_AGENT).await;
    cluster.release_all();
    let listener = Listener::at(cluster.node(1), "x").await;
    let mut updates = 0;
    cluster.network.set_fates(move |_, _, ask| {
        updates += usize::from(matches!(ask, CallRequest::Tell(_)));
        match ask {
            CallRequest::Tell(_) if updates % 3 == 0 => Fate::LoseReply,
            CallRequest::Tell(_) if updates % 3 == 1 => Fate::RefuseAsFull,
            _ => Fate::Carry,
        }
    });
    for n in 1..20 {
        cluster.node(0).send("x", "go").await.unwrap();
        cluster.node(0).turn_end("x", n).await;
    }
    listener.check(cluster.node(0), "x").await;
    // No update arrives for so long that the outbox overflows.
    cluster.network.set_fates(|_, _, ask| match ask {
        CallRequest::Tell(_) => Fate::Drop,
        _ => Fate::Carry,
    });
    for n in 20..60 {
        cluster.node(0).send("x", "go").await.unwrap();
        cluster.node(0).turn_end("x", n).await;
        let hub = &cluster.node(0).hub;
        for _ in 0..200 {
            let payload = json!({"n": n});
            let call = abide_conversation::CallId::new("c");
            let signal = Signal::Progress { call, payload };
            abide_actors::live::LiveSink::publish(hub, &Scoped::parse("x").unwrap(), signal);
        }
    }
    cluster.network.carry_everything();
    listener.check(cluster.node(0), "x").await;
}

#[tokio::test(start_paused = true)]
async fn a_listener_hears_live_again_after_a_link_that_only_one_side_saw_break() {
    let cluster = TestCluster::new(2, TALKING_AGENT).await;
    let listener = Listener::at(cluster.node(1), "x").await;
    cluster.set_link_one_way(0, 1, LinkState::Lost);
    tokio::time::sleep(Duration::from_secs(1)).await;
    cluster.set_link_one_way(0, 1, LinkState::Connected);
    tokio::time::sleep(Duration::from_secs(1)).await;
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).turn_end("x", 1).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let received = listener.seqs.lock().unwrap().len();
    assert_eq!(
        received,
        cluster.node(0).journal("x").await.len(),
        "the events did not arrive live"
    );
}

fn suspended(data: &EventData) -> bool {
    matches!(data, EventData::Suspension(_))
}

#[tokio::test(start_paused = true)]
async fn a_client_on_another_node_keeps_a_client_call_open() {
    let mut cluster = TestCluster::new(3, LOCATING_AGENT).await;
    cluster.node(0).send("x", "go").await.unwrap();
    let suspension = cluster.node(0).poll_for_event("x", suspended).await;
    let client = connect_client(cluster.node(1), "x");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(cluster.node(0).state("x").await.pending_calls().len(), 1);
    // One side loses its link to the other for a moment.
    cluster.set_link_one_way(0, 1, LinkState::Lost);
    tokio::time::sleep(Duration::from_secs(1)).await;
    cluster.set_link_one_way(0, 1, LinkState::Connected);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(cluster.node(0).state("x").await.pending_calls().len(), 1);
    cluster.kill(0, DeathMode::ConnectionRefused);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(
        cluster.node(1).state("x").await.pending_calls().len(),
        1,
        "the call did not stay open after the move"
    );
    drop(client);
    let ended =
        cluster.node(2).poll_for_event("x", |data| matches!(data, EventData::ToolResult(_))).await;
    let waited = ended.at.duration_since(suspension.at).as_secs();
    assert!((186..=188).contains(&waited), "{waited}: five seconds after the page left");
    assert_eq!(cluster.node(2).turn_end("x", 1).await, (TurnOutcome::Completed, None));
    cluster.node(2).check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_client_of_a_dead_node_no_longer_counts() {
    let mut cluster = TestCluster::new(2, LOCATING_AGENT).await;
    let client = connect_client(cluster.node(1), "x");
    client.wait_until_announced(Duration::from_secs(1)).await;
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).poll_for_event("x", suspended).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    cluster.kill(1, DeathMode::ConnectionRefused);
    drop(client);
    cluster.node(0).poll_for_event("x", |data| matches!(data, EventData::ToolResult(_))).await;
    let result = results(&cluster.node(0).journal("x").await, "c");
    assert_eq!(result[0]["error_type"], "NO_CLIENT");
    cluster.node(0).turn_end("x", 1).await;
    let late = cluster.node(0).resolve("x", "c", ResolutionAnswer::Result(json!({}))).await;
    assert!(late.is_err());
}
