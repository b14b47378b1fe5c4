//! A listener on another node hears everything in order, whatever happens in between.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide_actors::live::Signal;
use abide_conversation::ConversationId;
use abide_conversation::command::{IfBusy, ResolutionAnswer};
use abide_conversation::event::{EventData, TurnOutcome};
use abide_registry::live::StreamItem;
use abide_registry::membership::LinkState;
use abide_registry::protocol::CallRequest;
use serde_json::json;
use tokio_util::task::AbortOnDropHandle;

use crate::revival::HOLDS;
use crate::rig::{Rig, page, results, say};
use crate::town::{Fate, Killed, Town};

const TALKS: &str = r#"
name: a
model: {provider: scripted, script: [{text: "one two three four"}]}
"#;
const LOCATES: &str = r#"
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
    async fn at(rig: &Rig, id: &str) -> Self {
        let (seqs, missed): (Arc<Mutex<Vec<u64>>>, Arc<AtomicU32>) = Default::default();
        let (heard, lost) = (seqs.clone(), missed.clone());
        let (store, id) = (rig.store.clone(), ConversationId::new(id));
        let mut stream = rig.hub.subscribe(&id);
        rig.hub.wait_until_announced(Duration::from_secs(1)).await;
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
                        stream.mark_known(last);
                    }
                    Some(_) => {}
                }
            }
        });
        Self { seqs, missed, _task: AbortOnDropHandle::new(task) }
    }

    /// Waits until it heard as much as is journalled, and checks that nothing was left out.
    async fn check(&self, rig: &Rig, id: &str) {
        let all = rig.journal(id).await.len();
        let look = async {
            while self.seqs.lock().unwrap().len() < all {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(3), look).await;
        let seqs = self.seqs.lock().unwrap().clone();
        assert!(in_time.is_ok(), "of {all} it heard {seqs:?}");
        let whole: Vec<u64> = (1..=all as u64).collect();
        assert_eq!(seqs, whole);
    }
}

#[tokio::test(start_paused = true)]
async fn a_listener_elsewhere_hears_everything_live_and_in_order() {
    let town = Town::new(3, TALKS).await;
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).ended("x", 1).await;
    let mut stream = page(town.node(2), "x");
    let listener = Listener::at(town.node(2), "x").await;
    let begin = town.node(0).journal("x").await.len();
    listener.seqs.lock().unwrap().extend(1..=begin as u64);
    let missed = listener.missed.load(Ordering::SeqCst);
    for n in 2..12 {
        town.node(1).send("x", "go").await.unwrap();
        town.node(1).ended("x", n).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    listener.check(town.node(0), "x").await;
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
    let mut town = Town::new(3, HOLDS).await;
    town.release_all();
    let listener = Listener::at(town.node(2), "x").await;
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).ended("x", 1).await;
    town.node(0).life.drain(Duration::from_secs(5)).await;
    town.node(1).send("x", "go").await.unwrap();
    town.node(1).ended("x", 2).await;
    listener.check(town.node(1), "x").await;
    assert_eq!(town.lives_at("x"), [1]);
    town.node(1).ask("x", say("go", IfBusy::Queue)).await.unwrap();
    town.kill(1, Killed::Refused);
    town.node(2).ended("x", 3).await;
    listener.check(town.node(2), "x").await;
}

#[tokio::test(start_paused = true)]
async fn a_listener_misses_nothing_when_relays_are_lost_or_too_many() {
    let town = Town::new(2, HOLDS).await;
    town.release_all();
    let listener = Listener::at(town.node(1), "x").await;
    let mut tells = 0;
    town.net.judge(move |_, _, ask| {
        tells += usize::from(matches!(ask, CallRequest::Tell(_)));
        match ask {
            CallRequest::Tell(_) if tells % 3 == 0 => Fate::Swallowed,
            CallRequest::Tell(_) if tells % 3 == 1 => Fate::Full,
            _ => Fate::Carried,
        }
    });
    for n in 1..20 {
        town.node(0).send("x", "go").await.unwrap();
        town.node(0).ended("x", n).await;
    }
    listener.check(town.node(0), "x").await;
    // Nothing is heard for so long that more waits than may.
    town.net.judge(|_, _, ask| match ask {
        CallRequest::Tell(_) => Fate::Dropped,
        _ => Fate::Carried,
    });
    for n in 20..60 {
        town.node(0).send("x", "go").await.unwrap();
        town.node(0).ended("x", n).await;
        let hub = &town.node(0).hub;
        for _ in 0..200 {
            let payload = json!({"n": n});
            let call = abide_conversation::CallId::new("c");
            let said = Signal::Progress { call, payload };
            abide_actors::live::LiveSink::publish(hub, &ConversationId::new("x"), said);
        }
    }
    town.net.trust();
    listener.check(town.node(0), "x").await;
}

#[tokio::test(start_paused = true)]
async fn a_listener_hears_live_again_after_a_link_that_only_one_side_saw_break() {
    let town = Town::new(2, TALKS).await;
    let listener = Listener::at(town.node(1), "x").await;
    town.link_one_way(0, 1, LinkState::Lost);
    tokio::time::sleep(Duration::from_secs(1)).await;
    town.link_one_way(0, 1, LinkState::Connected);
    tokio::time::sleep(Duration::from_secs(1)).await;
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).ended("x", 1).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let heard = listener.seqs.lock().unwrap().len();
    assert_eq!(heard, town.node(0).journal("x").await.len(), "at once, and not by looking");
}

fn suspended(data: &EventData) -> bool {
    matches!(data, EventData::Suspension(_))
}

#[tokio::test(start_paused = true)]
async fn a_page_on_another_node_keeps_a_client_call_open() {
    let mut town = Town::new(3, LOCATES).await;
    town.node(0).send("x", "go").await.unwrap();
    let asked = town.node(0).until_unseen("x", suspended).await;
    let open = page(town.node(1), "x");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(town.node(0).state("x").await.pending_calls().len(), 1);
    // One side forgets the other for a moment.
    town.link_one_way(0, 1, LinkState::Lost);
    tokio::time::sleep(Duration::from_secs(1)).await;
    town.link_one_way(0, 1, LinkState::Connected);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(town.node(0).state("x").await.pending_calls().len(), 1);
    town.kill(0, Killed::Refused);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(town.node(1).state("x").await.pending_calls().len(), 1, "also after a move");
    drop(open);
    let ended =
        town.node(2).until_unseen("x", |data| matches!(data, EventData::ToolResult(_))).await;
    let waited = ended.at.duration_since(asked.at).as_secs();
    assert!((186..=188).contains(&waited), "{waited}: five seconds after the page left");
    assert_eq!(town.node(2).ended("x", 1).await, (TurnOutcome::Completed, None));
    town.node(2).check("x").await;
}

#[tokio::test(start_paused = true)]
async fn a_page_on_a_node_that_died_counts_no_more() {
    let mut town = Town::new(2, LOCATES).await;
    let open = page(town.node(1), "x");
    town.node(1).hub.wait_until_announced(Duration::from_secs(1)).await;
    town.node(0).send("x", "go").await.unwrap();
    town.node(0).until_unseen("x", suspended).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    town.kill(1, Killed::Refused);
    drop(open);
    town.node(0).until_unseen("x", |data| matches!(data, EventData::ToolResult(_))).await;
    let result = results(&town.node(0).journal("x").await, "c");
    assert_eq!(result[0]["error_type"], "NO_CLIENT");
    town.node(0).ended("x", 1).await;
    let late = town.node(0).resolve("x", "c", ResolutionAnswer::Result(json!({}))).await;
    assert!(late.is_err());
}
