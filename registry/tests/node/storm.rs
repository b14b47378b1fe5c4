//! Random failures of three nodes in random order: no acknowledged message is lost, and nothing is
//! doubled.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use abide_actors::request::{IdempotencyKey, Reply, Request, RequestError, ResolveRequest};
use abide_conversation::command::{IfBusy, ResolutionAnswer};
use abide_conversation::event::{Event, EventData};
use abide_conversation::{CallId, Principal, Scoped, Seq, TurnId, wanted};
use abide_registry::membership::LinkState;
use abide_registry::placement::Policy;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::sub_agents::all_conversations;
use crate::test_cluster::{DeathMode, Fate, TestCluster};
use crate::test_node::user_message;

const AGENT: &str = r#"
name: a
suspension_timeout: 4s
model:
  provider: scripted
  script:
    - calls:
        - {id: c, name: nap, args: {ms: 700}}
        - {id: o, name: once, args: {ms: 400}}
        - {id: g, name: gate, args: {ms: 300}}
        - {id: k, name: ask, args: {prompt: "How long?"}}
    - {text: "Well."}
tools:
  - {name: nap, run: {native: nap}}
  - {name: once, run: {native: nap}, on_interrupt: fail}
  - {name: gate, run: {native: nap}, approval: requires_approval, on_interrupt: fail}
  - {name: ask, run: {agent: kid}, run_timeout: 30s}
"#;
const KID: &str = r#"
name: kid
model:
  provider: scripted
  script: [{calls: [{id: n, name: nap, args: {ms: 500}}]}, {text: "Long."}]
tools: [{name: nap, run: {native: nap}}]
"#;
const CONVERSATIONS: u64 = 6;
const STEPS: u64 = 60;
/// The seeds of an ordinary run; `ABIDE_STORM=FIRST..END` selects others.
const SEEDS: std::ops::Range<u64> = 0..6;

/// A generator that yields the same sequence for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }
}

/// A message that was sent, and its reply.
struct SentMessage {
    id: String,
    text: String,
    reply: JoinHandle<Result<Reply, RequestError>>,
}

struct Storm {
    cluster: TestCluster,
    random: Random,
    sent: Vec<SentMessage>,
    resolved: Vec<(String, JoinHandle<Result<Reply, RequestError>>)>,
}

impl Storm {
    async fn run_random_steps(&mut self) {
        for step in 0..STEPS {
            let pause = self.random.below(400);
            sleep(Duration::from_millis(pause)).await;
            let running = self.cluster.running();
            let node = self.random.pick(&running);
            match self.random.below(20) {
                0..=7 => self.say(node, step),
                8..=10 => self.resolve(node).await,
                11 => {
                    let id = format!("x{}", self.random.below(CONVERSATIONS));
                    let conversations = self.cluster.node(node).conversations.clone();
                    tokio::spawn(
                        async move { conversations.kill(&Scoped::parse(&id).unwrap()).await },
                    );
                }
                12 if running.len() > 1 => {
                    let mode =
                        self.random.pick(&[DeathMode::ConnectionRefused, DeathMode::HalfOpen]);
                    self.cluster.kill(node, mode);
                }
                13 if running.len() > 1 => {
                    let drain_timeout = Duration::from_millis(self.random.below(2_000));
                    self.cluster.shut_down(node, drain_timeout).await;
                }
                14 | 15 => {
                    if let Some(dead) = (0..3).find(|number| !self.cluster.is_running(*number)) {
                        self.cluster.start(dead).await;
                    }
                }
                16 => self.cluster.set_membership_down(node, self.random.below(2) == 0),
                17 => {
                    let other = self.random.pick(&running);
                    let link = self.random.pick(&[
                        LinkState::Connected,
                        LinkState::Lost,
                        LinkState::Refused,
                    ]);
                    if other != node && self.random.below(3) == 0 {
                        self.cluster.set_link_one_way(node, other, link);
                    } else if other != node {
                        self.cluster.set_link(node, other, link);
                    }
                }
                18 => self.change_network(),
                _ => {
                    let lost = &self.cluster.store(node).lose_replies;
                    lost.store(true, Ordering::SeqCst);
                }
            }
        }
    }

    fn say(&mut self, node: usize, step: u64) {
        let id = format!("x{}", self.random.below(CONVERSATIONS));
        let text = format!("m{step}");
        let key = IdempotencyKey {
            key: format!("message:{text}"),
            fingerprint: text.clone(),
            field: "message_id".into(),
        };
        let repeats = if self.random.below(2) == 0 { vec![key] } else { Vec::new() };
        let conversations = self.cluster.node(node).conversations.clone();
        let (to, request) = (Scoped::parse(&id).unwrap(), user_message(&text, IfBusy::Queue));
        let reply = tokio::spawn(async move { conversations.deliver(&to, request, repeats).await });
        self.sent.push(SentMessage { id, text, reply });
    }

    async fn resolve(&mut self, node: usize) {
        let id = format!("x{}", self.random.below(CONVERSATIONS));
        let state = self.cluster.node(node).state(&id).await;
        let Some(pending) = state.pending_calls().into_iter().next() else { return };
        let request = Request::Resolve(ResolveRequest {
            call: CallId::new(pending.call_id.as_str()),
            suspension: None,
            by: Principal::new("bob"),
            answer: ResolutionAnswer::Approval { approved: true, reason: None, args: None },
            remember: None,
        });
        let conversations = self.cluster.node(node).conversations.clone();
        let to = Scoped::parse(&id).unwrap();
        let reply =
            tokio::spawn(async move { conversations.deliver(&to, request, Vec::new()).await });
        self.resolved.push((id, reply));
    }

    /// Makes the network lose, delay or garble some calls from now on, or none.
    fn change_network(&mut self) {
        let mut random = Random(self.random.below(u64::MAX));
        let bad = self.random.below(4);
        self.cluster.network.set_fates(move |_, _, _| {
            if random.below(10) < bad {
                let by = Duration::from_millis(random.below(20_000));
                random.pick(&[
                    Fate::LoseReply,
                    Fate::Drop,
                    Fate::Delay(by),
                    Fate::Garble,
                    Fate::RefuseAsFull,
                ])
            } else {
                Fate::Carry
            }
        });
    }

    async fn restore_everything(&mut self) {
        self.cluster.network.carry_everything();
        for number in 0..3 {
            if self.cluster.is_running(number) {
                self.cluster.set_membership_down(number, false);
            } else {
                self.cluster.start(number).await;
            }
            self.cluster.store(number).lose_replies.store(false, Ordering::SeqCst);
        }
        for (a, b) in [(0, 1), (1, 2), (0, 2)] {
            self.cluster.set_link(a, b, LinkState::Connected);
        }
        self.cluster.wait_for_full_view().await;
    }

    async fn check(self) {
        let Self { cluster, sent, resolved, .. } = self;
        let mut acknowledged = Vec::new();
        let mut texts = Vec::new();
        for SentMessage { id, text, reply } in sent {
            if let Ok(Reply::Sent { turn_id, seq, .. }) = reply.await.unwrap() {
                acknowledged.push((id.clone(), turn_id, seq));
            }
            texts.push((id, text));
        }
        for (id, reply) in resolved {
            if let Ok(Reply::Resolved { seq }) = reply.await.unwrap() {
                let events = cluster.node(0).journal(&id).await;
                let is_resolution = |event: &Event| matches!(event.data, EventData::Resolution(_));
                assert!(
                    events.iter().any(|event| event.seq == seq && is_resolution(event)),
                    "{id} {seq}"
                );
            }
        }
        let ids: BTreeSet<String> = texts.iter().map(|(id, _)| id.clone()).collect();
        for id in &ids {
            check_settled(&cluster, id).await;
        }
        for id in all_conversations(cluster.node(0)).await.iter().filter(|id| !ids.contains(*id)) {
            check_settled(&cluster, id).await;
            let events = cluster.node(0).journal(id).await;
            let prompts = events.iter().filter(|event| matches!(event.data, EventData::UserMsg(_)));
            assert!(prompts.count() <= 1, "{id} has two prompts");
        }
        for (id, turn, seq) in &acknowledged {
            let events = cluster.node(0).journal(id).await;
            assert!(
                events.iter().any(|event| is_message(event, turn, *seq)),
                "{id} {turn}: acknowledged and lost"
            );
        }
        for (id, text) in &texts {
            let events = cluster.node(0).journal(id).await;
            let sent = events.iter().filter(|event| match &event.data {
                EventData::UserMsg(user) => user.message.text() == *text,
                _ => false,
            });
            assert!(sent.count() <= 1, "{id} {text}: doubled");
        }
        cluster.check_writes();
        assert!(acknowledged.len() >= 5, "only {} messages were acknowledged", acknowledged.len());
    }
}

fn is_message(event: &Event, turn: &TurnId, seq: Seq) -> bool {
    let in_turn = event.turn_id.as_ref() == Some(turn);
    event.seq == seq && in_turn && matches!(event.data, EventData::UserMsg(_))
}

/// Waits until a conversation has nothing to do, and checks its journal and its tool runs.
async fn check_settled(cluster: &TestCluster, id: &str) {
    let settling = async {
        loop {
            let state = cluster.node(0).state(id).await;
            if wanted(&state).is_empty() && state.turn.is_none() {
                return;
            }
            sleep(Duration::from_millis(500)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(1_200), settling).await;
    let (state, holder) = (cluster.node(0).state(id).await, cluster.holder(id).await);
    assert!(in_time.is_ok(), "{id} never settled; {holder:?} holds it: {state:?}");
    if !state.exists() {
        return;
    }
    cluster.node(0).check(id).await;
    for event in cluster.node(0).journal(id).await {
        let EventData::AssistantMsg(reply) = &event.data else { continue };
        for call in reply.message.tool_calls.iter().filter(|call| call.name != "nap") {
            let runs = cluster.run_count(id, call.id.as_str());
            assert!(runs <= 1, "{} of {id} ran {runs} times", call.id);
        }
    }
}

fn seeds() -> std::ops::Range<u64> {
    let named = std::env::var("ABIDE_STORM").ok();
    let ends = named.as_deref().and_then(|text| text.split_once(".."));
    ends.map_or(SEEDS, |(first, end)| first.parse().unwrap()..end.parse().unwrap())
}

#[test]
#[allow(clippy::print_stderr)]
fn nothing_acknowledged_is_lost_and_nothing_is_doubled_in_any_storm() {
    for seed in seeds() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        let policies = [Policy::Local, Policy::Rendezvous, Policy::LeastLoaded];
        let policy = policies[usize::try_from(seed).unwrap() % 3];
        let storm = async {
            let cluster = TestCluster::with_policy(3, AGENT, policy).await;
            cluster.node(0).define(KID).await;
            let mut storm =
                Storm { cluster, random: Random(seed), sent: Vec::new(), resolved: Vec::new() };
            storm.run_random_steps().await;
            storm.restore_everything().await;
            storm.check().await;
        };
        let run = std::panic::AssertUnwindSafe(|| runtime.block_on(storm));
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("failed with seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
