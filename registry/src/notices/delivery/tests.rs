//! Deliveries over a memory store, with a clock that a test sets.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use abide_actors::clock::Clock;
use abide_actors::identity::{Incarnation, NodeName};
use abide_actors::journal::{Commit, ConversationSummary, Holder, Journal};
use abide_actors::node_lease::NodeLease;
use abide_actors::notices::{NearNotices, OwedNotice};
use abide_actors::webhooks::NoticeSender;
use abide_conversation::event::{EventData, RepairRequested};
use abide_conversation::state::ConversationStatus;
use abide_conversation::{AgentName, Event, Scoped, Seq};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::super::webhook_catalog::WebhookCatalog;
use super::super::webhook_catalog::tests::webhook;
use super::*;
use crate::cluster_client::ClusterClient;
use crate::cluster_view::ClusterView;
use crate::member::{LinkStates, ProcessId};
use crate::standalone::Standalone;
use crate::store::memory::Memory;
use crate::store::{NoticeCounts, Outbox, WebhookChange};

const HOUR: i64 = 3_600;

/// A clock that stands still until a test sets it.
#[derive(Default)]
struct SetClock(AtomicI64);

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.0.load(Ordering::SeqCst)).unwrap()
    }

    fn id(&self, prefix: &str) -> String {
        prefix.to_owned()
    }

    fn chance(&self) -> f64 {
        0.5
    }
}

struct Site {
    deps: CourierDeps,
    clock: Arc<SetClock>,
    store: Arc<Memory>,
}

fn queue(conversation: &str) -> NoticeQueue {
    let conversation = Scoped::parse(conversation).unwrap();
    NoticeQueue { webhook: webhook("ops").key(), conversation }
}

impl Site {
    /// A node whose one webhook has this URL.
    async fn start(url: &str) -> Self {
        let (store, clock) = (Arc::new(Memory::default()), Arc::new(SetClock::default()));
        let stored = Webhook { url: url.to_owned(), ..webhook("ops") };
        let changes = vec![WebhookEdit::Put(Box::new(stored))];
        store.change_webhooks(&WebhookChange { version: 0, changes }).await.unwrap();
        let catalog = Arc::new(WebhookCatalog::new(store.clone()));
        catalog.refresh(Duration::ZERO).await.unwrap();
        let me = Holder { node: NodeName::new("n"), incarnation: Incarnation::new("1") };
        let standalone = Arc::new(Standalone::default());
        let view = ClusterView::new(me.clone(), Vec::new(), LinkStates::default());
        let view = ClusterView { partitions: crate::partition::PartitionSet::all(), ..view };
        let cluster = ClusterClient::new(
            ProcessId::new("p"),
            Arc::new(NodeLease::new(me)),
            standalone.clone(),
            standalone,
            clock.clone(),
            watch::channel(Arc::new(view)).1,
            Arc::default(),
        );
        let deps = CourierDeps {
            store: store.clone(),
            clock: clock.clone(),
            catalog,
            sender: Arc::new(NoticeSender::new(clock.clone(), None).unwrap()),
            links: None,
            near: NearNotices::default(),
            cluster,
            health: Arc::default(),
        };
        Self { deps, clock, store }
    }

    fn set(&self, second: i64) {
        self.clock.0.store(second, Ordering::SeqCst);
    }

    /// Writes a conversation whose events are owed since now.
    async fn owe(&self, conversation: &str, last: u64) {
        let queue = queue(conversation);
        let me = self.deps.cluster.lease().me();
        let held = self.store.claim(&queue.conversation, &me, None).await.unwrap();
        let now = self.clock.now();
        let event = |seq| {
            let data = EventData::RepairRequested(RepairRequested { reason: String::new() });
            Event { seq: Seq::new(seq), at: now, turn_id: None, data }
        };
        let owed = |seq| OwedNotice {
            webhook: queue.webhook.clone(),
            seq: Seq::new(seq),
            kind: NoticeKind::TurnCompleted,
            at: now,
            body: Arc::from("{}"),
        };
        let summary = ConversationSummary {
            agent: AgentName::new("a"),
            status: ConversationStatus::Idle,
            last_seq: Seq::new(last),
            created_at: now,
            metadata: Default::default(),
            participants: Default::default(),
            alarm: None,
            active: false,
            listing: Default::default(),
        };
        let commit = Commit::new((1..=last).map(event).collect(), summary);
        let commit = Commit { owed: (1..=last).map(owed).collect(), ..commit };
        self.store.append(&queue.conversation, &held, commit).await.unwrap();
    }

    async fn counts(&self) -> NoticeCounts {
        self.store.notice_counts(&webhook("ops").key()).await.unwrap()
    }

    async fn due(&self, conversation: &str) -> i64 {
        let head = self.store.notice_head(&queue(conversation)).await.unwrap();
        head.unwrap().due.as_second()
    }
}

/// A receiver that answers 204. Returns its URL and the number of requests.
async fn receiver() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::default());
    let counted = count.clone();
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut buffer = [0; 4_096];
            while socket.read(&mut buffer).await.is_ok_and(|read| read > 0) {
                counted.fetch_add(1, Ordering::SeqCst);
                let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
                if socket.write_all(answer).await.is_err() {
                    break;
                }
            }
        }
    });
    (url, count)
}

#[tokio::test]
async fn a_receiver_that_is_down_for_a_week_is_tried_ever_less_and_what_it_is_owed_dies() {
    let site = Site::start("http://127.0.0.1:1/").await;
    site.owe("c", 2).await;
    for (at, due) in [(0, 5), (5, 35), (35, 155), (155, 1_055), (1_055, 4_655), (4_655, 19_055)] {
        site.set(at);
        assert_eq!(site.deps.deliver(&queue("c")).await, Outcome::Failed);
        assert_eq!(site.due("c").await, due);
        assert_eq!(site.deps.deliver(&queue("c")).await, Outcome::Idle, "it is not due");
    }
    site.owe("d", 1).await;
    // For a day now: one attempt an hour, whichever conversation it is for.
    site.set(25 * HOUR);
    assert_eq!(site.deps.deliver(&queue("c")).await, Outcome::Failed);
    assert_eq!(site.deps.deliver(&queue("d")).await, Outcome::Held);
    site.set(26 * HOUR);
    assert_eq!(site.deps.deliver(&queue("d")).await, Outcome::Failed);
    let oldest = Some(Timestamp::UNIX_EPOCH);
    assert_eq!(site.counts().await, NoticeCounts { owed: 3, dead: 0, oldest });
    site.set(42 * HOUR);
    site.deps.expire(&webhook("ops").key()).await.unwrap();
    let counts = site.counts().await;
    assert_eq!((counts.owed, counts.dead), (1, 2), "the one of d is younger");
    site.set(7 * 24 * HOUR);
    site.deps.expire(&webhook("ops").key()).await.unwrap();
    assert_eq!(site.counts().await.owed, 0);
}

#[tokio::test]
async fn when_a_failing_receiver_answers_all_that_it_is_owed_follows_in_order() {
    let (url, received) = receiver().await;
    let site = Site::start(&url).await;
    let key = webhook("ops").key();
    let failing = |webhook: &Webhook| {
        let at = Some(Timestamp::UNIX_EPOCH);
        Some(with_health(webhook, |health| health.failing_since = at))
    };
    assert!(site.deps.catalog.edit(&key, failing).await.unwrap());
    site.set(30 * HOUR);
    site.owe("c", 3).await;
    assert_eq!(site.deps.deliver(&queue("c")).await, Outcome::Delivered { has_more: false });
    assert_eq!(received.load(Ordering::SeqCst), 3);
    let health = site.deps.catalog.get(&key).unwrap().health.clone();
    assert_eq!((health.failing_since, health.next_probe_at), (None, None));
    assert_eq!(site.counts().await, NoticeCounts::default());
}

#[tokio::test]
async fn a_long_queue_gives_others_their_turn() {
    let (url, received) = receiver().await;
    let site = Site::start(&url).await;
    site.owe("c", 20).await;
    assert_eq!(site.deps.deliver(&queue("c")).await, Outcome::Delivered { has_more: true });
    assert_eq!(received.load(Ordering::SeqCst), MAX_IN_A_ROW);
    assert_eq!(site.deps.deliver(&queue("c")).await, Outcome::Delivered { has_more: false });
    assert_eq!(received.load(Ordering::SeqCst), 20);
}
