//! Planes of several processes over a network without loss, in which each link delivers when the test
//! says so.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use abide_actors::live::{LiveSink as _, Signal};
use abide_conversation::{CallId, ConversationId, Scoped};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::super::relay::{Outbox, Outgoing, next_batch, pack};
use super::super::{Hub, MAX_WAITING_SIGNALS, StreamItem, Subscription};
use crate::member::ProcessId;
use crate::protocol::{LiveUpdate, Register};

/// More messages than any test leaves undelivered.
const LINK_CAPACITY: usize = 10_000;

type Link = (ProcessId, ProcessId);

/// The connected processes and the messages under way between them.
#[derive(Default)]
struct Network {
    hubs: BTreeMap<ProcessId, Hub>,
    legacy: BTreeSet<ProcessId>,
    links: BTreeMap<Link, mpsc::Receiver<Outgoing>>,
}

impl Network {
    fn of(names: &[&str]) -> Self {
        let mut network = Self::default();
        for name in names {
            network.hubs.insert(process(name), Hub::default());
        }
        network.connect();
        network
    }

    fn hub(&self, name: &str) -> &Hub {
        &self.hubs[&process(name)]
    }

    /// Opens the links that are missing, and has every process see the others.
    fn connect(&mut self) {
        let all: BTreeSet<ProcessId> = self.hubs.keys().cloned().collect();
        for (from, hub) in &self.hubs {
            for to in all.iter().filter(|to| *to != from) {
                self.links.entry((from.clone(), to.clone())).or_insert_with(|| {
                    let (messages, receiver) = mpsc::channel(LINK_CAPACITY);
                    let overflowed = Arc::new(AtomicBool::new(false));
                    hub.plane().outboxes.insert(to.clone(), Outbox { messages, overflowed });
                    receiver
                });
            }
            let others = all.iter().filter(|it| *it != from && !self.legacy.contains(it));
            let legacy = self.legacy.iter().filter(|it| *it != from);
            hub.plane().set_processes(from, &others.cloned().collect(), legacy.cloned().collect());
        }
    }

    /// Ends a process as those that were connected to it see it.
    fn end(&mut self, name: &str) -> Hub {
        let gone = process(name);
        let hub = self.hubs.remove(&gone).unwrap();
        self.links.retain(|(from, to), _| *from != gone && *to != gone);
        for other in self.hubs.values() {
            other.plane().forget(&gone);
        }
        self.connect();
        hub
    }

    /// Delivers what waits on one link. `false` if nothing does.
    fn deliver(&mut self, link: &Link) -> bool {
        let mut batch = Vec::new();
        let Some(receiver) = self.links.get_mut(link) else { return false };
        while let Ok(message) = receiver.try_recv() {
            batch.push(message);
        }
        if batch.is_empty() {
            return false;
        }
        let (mut update, mut register) = (LiveUpdate::default(), Register::default());
        pack(batch, &mut update, &mut register);
        let (from, to) = (&self.hubs[&link.0], &self.hubs[&link.1]);
        let answer = to.register(&link.0, register).unwrap();
        from.plane().learn(answer);
        assert!(to.apply(&link.0, update));
        true
    }

    /// Delivers everything, until nothing is under way.
    fn settle(&mut self) {
        let links: Vec<_> = self.links.keys().cloned().collect();
        while links.iter().any(|link| self.deliver(link)) {}
    }

    fn sweep(&self) {
        self.hubs.values().for_each(|hub| hub.plane().sweep_publications());
    }

    /// How many conversations any process still knows of.
    fn known(&self) -> usize {
        let known = |hub: &Hub| {
            let plane = hub.plane();
            plane.channels.len() + plane.directory.len()
        };
        self.hubs.values().map(known).sum()
    }
}

fn process(name: &str) -> ProcessId {
    ProcessId::new(name)
}

fn id(text: &str) -> Scoped<ConversationId> {
    Scoped::parse(text).unwrap()
}

/// The process that keeps a conversation's entry while these are connected.
fn keeper(id: &Scoped<ConversationId>, all: &[&str]) -> String {
    let others = all[1..].iter().map(|name| process(name)).collect();
    let placement = super::DirectoryPlacement::new(&process(all[0]), &others).unwrap();
    placement.keeper(id).to_string()
}

/// A conversation whose entry that process keeps while these are connected.
fn kept_by(process: &str, all: &[&str]) -> Scoped<ConversationId> {
    let mut ids = (0..).map(|n| id(&format!("x{n}")));
    ids.find(|id| keeper(id, all) == process).unwrap()
}

fn publish(hub: &Hub, id: &Scoped<ConversationId>, number: usize) {
    let signal = Signal::Progress { call: CallId::new("c"), payload: json!(number) };
    hub.publish(id, signal);
}

/// The numbers that a listener received; `null` for a request to read the journal.
fn received(stream: &mut Subscription) -> Vec<Value> {
    let number = |item| match item {
        StreamItem::Missed => Value::Null,
        StreamItem::Signal(shared) => match &shared.signal {
            Signal::Progress { payload, .. } => payload.clone(),
            _ => Value::Null,
        },
    };
    std::iter::from_fn(|| stream.try_next()).map(number).collect()
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_registration_travels_with_the_next_message_or_after_a_second() {
    let (sender, mut messages) = mpsc::channel(10);
    let started = tokio::time::Instant::now();
    let end = |name| sender.try_send(Outgoing::UnregisterListener(id(name))).unwrap();
    end("a");
    let later = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        end("b");
        sender.try_send(Outgoing::RegisterListener(id("c"))).unwrap();
    };
    let (batch, ()) = tokio::join!(next_batch(&mut messages), later);
    assert_eq!((batch.len(), started.elapsed().as_millis()), (3, 300), "{batch:?}");
    end("d");
    assert_eq!(next_batch(&mut messages).await.len(), 1);
    assert_eq!(started.elapsed().as_millis(), 1_300);
    sender.try_send(Outgoing::Signal(id("e"), Signal::Revived)).unwrap();
    assert_eq!(next_batch(&mut messages).await.len(), 1);
    assert_eq!(started.elapsed().as_millis(), 1_300);
    drop(sender);
    assert_eq!(next_batch(&mut messages).await.len(), 0);
}

#[tokio::test]
async fn a_conversation_without_listeners_is_told_to_one_process_however_many_there_are() {
    let names: Vec<String> = (0..30).map(|n| format!("n{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut network = Network::of(&names);
    let (here, x) = (names[0], kept_by(names[1], &names));
    for number in 0..10 {
        publish(network.hub(here), &x, number);
    }
    let mut told = BTreeMap::new();
    for ((from, to), waiting) in &mut network.links {
        while waiting.try_recv().is_ok() {
            *told.entry((from.clone(), to.clone())).or_insert(0) += 1;
        }
    }
    assert_eq!(told, BTreeMap::from([((process(here), process(names[1])), 1)]));
}

#[tokio::test(start_paused = true)]
async fn what_is_published_before_the_listener_elsewhere_is_known_waits_for_it() {
    for keeper in ["a", "b", "c"] {
        let mut network = Network::of(&["a", "b", "c"]);
        let x = kept_by(keeper, &["a", "b", "c"]);
        let mut stream = network.hub("c").subscribe(&x);
        network.settle();
        assert!(network.hub("a").may_be_heard(&x), "it is not known that nobody listens");
        publish(network.hub("a"), &x, 1);
        publish(network.hub("a"), &x, 2);
        network.settle();
        publish(network.hub("a"), &x, 3);
        network.settle();
        assert_eq!(received(&mut stream), [1, 2, 3], "kept by {keeper}");
        drop(stream);
        network.settle();
        publish(network.hub("a"), &x, 4);
        let link = (process("a"), process("c"));
        assert!(network.links.get_mut(&link).unwrap().try_recv().is_err(), "nobody listens there");
        assert!(!network.hub("a").may_be_heard(&x));
        tokio::time::advance(Duration::from_secs(60)).await;
        network.sweep();
        network.settle();
        assert_eq!(network.known(), 0, "kept by {keeper}");
    }
}

#[tokio::test]
async fn without_other_processes_only_a_stream_here_hears() {
    let (hub, x) = (Hub::default(), id("x"));
    assert!(!hub.may_be_heard(&x));
    let stream = hub.subscribe(&x);
    assert!(hub.may_be_heard(&x));
    drop(stream);
    assert!(!hub.may_be_heard(&x) && hub.plane().channels.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_signal_waits_at_most_a_second_for_a_listener_that_does_not_answer() {
    let mut network = Network::of(&["a", "b", "c"]);
    let x = kept_by("b", &["a", "b", "c"]);
    let mut near = network.hub("a").subscribe(&x);
    let mut far = network.hub("c").subscribe(&x);
    network.settle();
    publish(network.hub("a"), &x, 1);
    assert_eq!(received(&mut near), [1], "listeners here wait for nobody");
    tokio::time::advance(Duration::from_secs(1)).await;
    network.sweep();
    publish(network.hub("a"), &x, 2);
    network.settle();
    assert_eq!(received(&mut far), [] as [Value; 0], "it was not known when these were sent");
    publish(network.hub("a"), &x, 3);
    network.settle();
    assert_eq!(received(&mut far), [3]);
}

#[tokio::test(start_paused = true)]
async fn signals_wait_again_when_another_process_keeps_the_directory() {
    let all = ["a", "b", "c"];
    let mut network = Network::of(&all);
    let mut ids = (0..).map(|n| id(&format!("x{n}")));
    let x = ids.find(|id| keeper(id, &all) == "b" && keeper(id, &["a", "c"]) == "c").unwrap();
    publish(network.hub("a"), &x, 1);
    network.settle();
    network.end("b");
    let mut stream = network.hub("c").subscribe(&x);
    publish(network.hub("a"), &x, 2);
    network.settle();
    assert_eq!(received(&mut stream), [2]);
}

#[tokio::test(start_paused = true)]
async fn too_many_signals_that_wait_become_one_request_to_read_the_journal() {
    let mut network = Network::of(&["a", "b", "c"]);
    let x = kept_by("b", &["a", "b", "c"]);
    let mut stream = network.hub("c").subscribe(&x);
    network.settle();
    let last = MAX_WAITING_SIGNALS + 1;
    (0..=last).for_each(|number| publish(network.hub("a"), &x, number));
    network.settle();
    assert_eq!(received(&mut stream), [json!(null), json!(last - 1), json!(last)]);
}

#[tokio::test(start_paused = true)]
async fn a_process_without_a_directory_is_told_of_every_listener_and_tells_of_its_own() {
    let mut network = Network::of(&["a", "b", "old"]);
    network.legacy.insert(process("old"));
    network.connect();
    let x = kept_by("b", &["a", "b"]);
    let mut stream = network.hub("a").subscribe(&x);
    network.settle();
    let told = network.hub("old").plane().channels[&x].remote_processes.clone();
    assert_eq!(told, BTreeSet::from([process("a")]));
    // Its own way: a listener is announced to all, a signal is sent to those that announced theirs.
    let listen = LiveUpdate { listen: vec![x.clone()], ..LiveUpdate::default() };
    assert!(network.hub("a").apply(&process("old"), listen));
    publish(network.hub("a"), &x, 1);
    network.settle();
    assert_eq!(received(&mut stream), [1]);
    let mut there = network.hub("old").subscribe(&x);
    publish(network.hub("a"), &x, 2);
    network.settle();
    assert_eq!(received(&mut there), [2]);
}

/// The state of one run of the random test.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_came_before_a_signal_reaches_exactly_those_who_listen() {
    for seed in 0..60 {
        run(seed).await;
    }
}

/// Lets listeners and processes come and go, conversations move, and messages overtake each other on
/// different links; then publishes once and looks who received it.
async fn run(seed: u64) {
    let mut random = Random(seed);
    let names = ["a", "b", "c", "d"];
    let mut network = Network::of(&names);
    let mut streams: HashMap<(usize, usize), Subscription> = HashMap::new();
    let ids = [id("x"), id("acme/x"), id("y")];
    for _ in 0..80 {
        let (n, which) = (random.below(names.len()), random.below(ids.len()));
        let is_here = network.hubs.contains_key(&process(names[n]));
        match random.below(8) {
            0 | 1 if is_here => {
                let stream = network.hub(names[n]).subscribe(&ids[which]);
                streams.entry((n, which)).or_insert(stream);
            }
            2 => drop(streams.remove(&(n, which))),
            3 if is_here => publish(network.hub(names[n]), &ids[which], 0),
            4 if is_here && network.hubs.len() > 1 => {
                streams.retain(|(at, _), _| *at != n);
                network.end(names[n]);
            }
            4 if !is_here => {
                network.hubs.insert(process(names[n]), Hub::default());
                network.connect();
            }
            5 => {
                tokio::time::advance(Duration::from_secs(20)).await;
                network.sweep();
            }
            _ => {
                let link = (process(names[n]), process(names[random.below(names.len())]));
                network.deliver(&link);
            }
        }
    }
    network.settle();
    for (which, id) in ids.iter().enumerate() {
        let publisher =
            network.hubs.values().nth(random.below(network.hubs.len())).unwrap().clone();
        streams.values_mut().for_each(|stream| drop(received(stream)));
        // As the inbox does, which makes no signal that nobody hears.
        if publisher.may_be_heard(id) {
            publish(&publisher, id, 7);
        }
        network.settle();
        for ((n, listened), stream) in &mut streams {
            let expected = if *listened == which { vec![json!(7)] } else { Vec::new() };
            assert_eq!(received(stream), expected, "seed {seed}: {id} at {}", names[*n]);
        }
    }
    streams.clear();
    network.settle();
    tokio::time::advance(Duration::from_secs(60)).await;
    network.sweep();
    network.settle();
    assert_eq!(network.known(), 0, "seed {seed}: something is kept forever");
}
