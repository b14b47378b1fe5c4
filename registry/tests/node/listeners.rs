//! A listener on another node hears everything in order, whatever happens in between.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide_actors::live::Signal;
use abide_conversation::ConversationId;
use abide_conversation::command::{IfBusy, ResolutionAnswer};
use abide_conversation::event::{EventData, TurnOutcome};
use abide_registry::live::StreamItem;
use abide_registry::peers::LinkState;
use abide_registry::protocol::Call;
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

/// What an event stream shows: each event once and in order, live or from the journal.
struct Listener {
    seqs: Arc<Mutex<Vec<u64>>>,
    /// How often it had to look at the journal.
    missed: Arc<AtomicU32>,
    _task: AbortOnDropHandle<()>,
}

impl Listener {
    async fn at(node: &TestNode, id: &str) -> Self {
        let (seqs, missed): (Arc<Mutex<Vec<u64>>>, Arc<AtomicU32>) = Default::default();
        let (heard, lost) = (seqs.clone(), missed.clone());
        let (store, id) = (node.store.clone(), ConversationId::new(id));
        let mut stream = node.hub.subscribe(&id);
        node.hub.announced(Duration::from_secs(1)).await;
        let task = tokio::spawn(async move {
            while let Some(news) = stream.next().await {
                let last = heard.lock().unwrap().last().copied().unwrap_or_default();
                let said = match &news {
                    StreamItem::Signal(said) => Some(&said.signal),
                    StreamItem::Missed => None,
                };
                match said {
                    Some(Signal::Committed(events)) if events[0].seq <= last + 1 => {
                        let new = events.iter().map(|event| event.seq).filter(|seq| *seq > last);
                        heard.lock().unwrap().extend(new);
                    }
                    None | Some(Signal::Revived | Signal::Committed(_)) => {
                        lost.fetch_add(1, Ordering::SeqCst);
                        let events = store.events(&id, last, 10_000).await.unwrap_or_default();
                        heard.lock().unwrap().extend(events.iter().map(|event| event.seq));
                        let last = heard.lock().unwrap().last().copied().unwrap_or_default();
                        stream.knows(last);
                    }
                    Some(_) => {}
                }
            }
        });
        Self { seqs, missed, _task: AbortOnDropHandle::new(task) }
    }

    /// Waits until it heard as much as is journalled, and checks that nothing was left out.
    async fn check(&self, node: &TestNode, id: &str) {
        let all = node.journal(id).await.len();
        let look = async {
            while self.seqs.lock().unwrap().len() < all {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(3), look).await;
        let seqs = self.seqs.lock().unwrap().clone();
        assert!(in_time.is_ok(), "of {all} it heard {seqs:?}");
        let running_node: Vec<u64> = (1..=all as u64).collect();
        assert_eq!(seqs, running_node);
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
    listener.seqs.lock().unwrap().extend(1..=begin as u64);
    let missed = listener.missed.load(Ordering::SeqCst);
    for n in 2..12 {
        cluster.node(1).send("x", "go").await.unwrap();
        cluster.node(1).turn_end("x", n).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    listener.check(cluster.node(0), "x").await;
    assert_eq!(listener.missed.load(Ordering::SeqCst), missed, "without a look at the journal");
    let mut texts = 0;
    while let Ok(Some(heard)) = tokio::time::timeout(Duration::ZERO, stream.next()).await {
        let text = |said: &Signal| matches!(said, Signal::Text(_));
        texts += usize::from(matches!(heard, StreamItem::Signal(said) if text(&said.signal)));
    }
    assert!(texts >= 10, "deltas too: {texts}");
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
    let mut tells = 0;
    cluster.network.set_fates(move |_, _, ask| {
        tells += usize::from(matches!(ask, Call::Tell(_)));
        match ask {
            Call::Tell(_) if tells % 3 == 0 => Fate::LoseReply,
            Call::Tell(_) if tells % 3 == 1 => Fate::RefuseAsFull,
            _ => Fate::Carry,
        }
    });
    for n in 1..20 {
        cluster.node(0).send("x", "go").await.unwrap();
        cluster.node(0).turn_end("x", n).await;
    }
    listener.check(cluster.node(0), "x").await;
    // Nothing is heard for so long that more waits than may.
    cluster.network.set_fates(|_, _, ask| match ask {
        Call::Tell(_) => Fate::Drop,
        _ => Fate::Carry,
    });
    for n in 20..60 {
        cluster.node(0).send("x", "go").await.unwrap();
        cluster.node(0).turn_end("x", n).await;
        let hub = &cluster.node(0).hub;
        for _ in 0..200 {
            let payload = json!({"n": n});
            let call = abide_conversation::CallId::new("c");
            let said = Signal::Progress { call, payload };
            abide_actors::live::LiveSink::publish(hub, &ConversationId::new("x"), said);
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
    let heard = listener.seqs.lock().unwrap().len();
    assert_eq!(heard, cluster.node(0).journal("x").await.len(), "at once, and not by looking");
}

fn suspended(data: &EventData) -> bool {
    matches!(data, EventData::Suspension(_))
}

#[tokio::test(start_paused = true)]
async fn a_client_on_another_node_keeps_a_client_call_open() {
    let mut cluster = TestCluster::new(3, LOCATING_AGENT).await;
    cluster.node(0).send("x", "go").await.unwrap();
    let asked = cluster.node(0).poll_for_event("x", suspended).await;
    let open = connect_client(cluster.node(1), "x");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(cluster.node(0).state("x").await.pending().len(), 1);
    // One side forgets the other for a moment.
    cluster.set_link_one_way(0, 1, LinkState::Lost);
    tokio::time::sleep(Duration::from_secs(1)).await;
    cluster.set_link_one_way(0, 1, LinkState::Connected);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(cluster.node(0).state("x").await.pending().len(), 1);
    cluster.kill(0, DeathMode::ConnectionRefused);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(cluster.node(1).state("x").await.pending().len(), 1, "also after a move");
    drop(open);
    let ended =
        cluster.node(2).poll_for_event("x", |data| matches!(data, EventData::ToolResult(_))).await;
    let waited = ended.at.duration_since(asked.at).as_secs();
    assert!((186..=188).contains(&waited), "{waited}: five seconds after the page left");
    assert_eq!(cluster.node(2).turn_end("x", 1).await, (TurnOutcome::Completed, None));
    cluster.node(2).check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_client_of_a_dead_node_no_longer_counts() {
    let mut cluster = TestCluster::new(2, LOCATING_AGENT).await;
    let open = connect_client(cluster.node(1), "x");
    cluster.node(1).hub.announced(Duration::from_secs(1)).await;
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).poll_for_event("x", suspended).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    cluster.kill(1, DeathMode::ConnectionRefused);
    drop(open);
    cluster.node(0).poll_for_event("x", |data| matches!(data, EventData::ToolResult(_))).await;
    let result = results(&cluster.node(0).journal("x").await, "c");
    assert_eq!(result[0]["error_type"], "NO_CLIENT");
    cluster.node(0).turn_end("x", 1).await;
    let late = cluster.node(0).resolve("x", "c", ResolutionAnswer::Result(json!({}))).await;
    assert!(late.is_err());
}
