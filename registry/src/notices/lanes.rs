//! Which queues are delivered next, so that no webhook and no conversation waits for another.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use abide_actors::notices::WebhookKey;
use abide_conversation::{ConversationId, Scoped};
use tokio::time::Instant;

use super::delivery::Outcome;
use crate::partition::Partition;
use crate::store::NoticeQueue;

/// How many deliveries run at once on a node.
pub(super) const MAX_DELIVERIES: usize = 512;
/// How many deliveries to one webhook run at once: it begins with few, has more while the receiver
/// answers, and fewer when it fails. So receivers that hang occupy little.
const FIRST_DELIVERIES: usize = 4;
const MAX_DELIVERIES_PER_WEBHOOK: usize = 32;
/// How many queues of one webhook wait in memory; the store has the others.
const MAX_WAITING: usize = 1_024;
/// Below this many waiting queues more are read.
const FEW_WAITING: usize = 64;
/// How many queues of a partition one read returns, besides those that are known.
const QUEUES_PER_PARTITION: usize = 16;

/// The queues of one webhook that are due.
#[derive(Debug)]
struct Lane {
    waiting: VecDeque<Scoped<ConversationId>>,
    /// Those that wait or are being delivered; `true` if more has come meanwhile.
    known: HashMap<Scoped<ConversationId>, bool>,
    running: usize,
    limit: usize,
    /// The partitions in which the store may have more that is due.
    partitions: HashSet<Partition>,
    is_reading: bool,
    /// Until when nothing is sent.
    held_until: Option<Instant>,
}

impl Default for Lane {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            known: HashMap::new(),
            running: 0,
            limit: FIRST_DELIVERIES,
            partitions: HashSet::new(),
            is_reading: false,
            held_until: None,
        }
    }
}

impl Lane {
    /// Returns whether there is room for it.
    fn push(&mut self, id: Scoped<ConversationId>) -> bool {
        if let Some(again) = self.known.get_mut(&id) {
            *again = true;
            return true;
        }
        let has_room = self.waiting.len() < MAX_WAITING;
        if has_room {
            self.known.insert(id.clone(), false);
            self.waiting.push_back(id);
        }
        has_room
    }

    fn is_held(&self, now: Instant) -> bool {
        self.held_until.is_some_and(|until| now < until)
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running == 0 && !self.is_reading
    }
}

/// A read of what is due for one webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LaneRead {
    pub(super) webhook: WebhookKey,
    pub(super) partitions: Vec<Partition>,
    /// How many of the first queues are known here already.
    pub(super) known: usize,
}

impl LaneRead {
    /// How many queues of a partition are read.
    pub(super) fn limit(&self) -> usize {
        QUEUES_PER_PARTITION + self.known
    }
}

/// A lane for each webhook.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: BTreeMap<WebhookKey, Lane>,
    running: usize,
    /// The lane that had the last turn.
    last: Option<WebhookKey>,
}

impl Lanes {
    /// Takes in a queue that something was added to.
    pub(super) fn push(&mut self, NoticeQueue { webhook, conversation }: NoticeQueue) {
        self.lanes.entry(webhook).or_default().push(conversation);
    }

    /// Takes in that something is due in the store.
    pub(super) fn expect(&mut self, partition: Partition, webhook: WebhookKey) {
        self.lanes.entry(webhook).or_default().partitions.insert(partition);
    }

    /// What to read from the store now.
    pub(super) fn next_reads(&mut self, now: Instant) -> Vec<LaneRead> {
        let mut reads = Vec::new();
        for (webhook, lane) in &mut self.lanes {
            let wants = !lane.is_reading
                && !lane.partitions.is_empty()
                && lane.waiting.len() < FEW_WAITING
                && !lane.is_held(now);
            if wants {
                lane.is_reading = true;
                let partitions = lane.partitions.drain().collect();
                let known = lane.known.len();
                reads.push(LaneRead { webhook: webhook.clone(), partitions, known });
            }
        }
        reads
    }

    /// Takes in what was read, the earliest first; nothing if the store failed. A partition that may
    /// have more is read again when little is left.
    pub(super) fn learn(&mut self, read: &LaneRead, due: Vec<Scoped<ConversationId>>) {
        let Some(lane) = self.lanes.get_mut(&read.webhook) else { return };
        lane.is_reading = false;
        let mut counts: HashMap<Partition, usize> = HashMap::new();
        for id in due {
            let partition = Partition::from(&id);
            let count = counts.entry(partition).or_default();
            *count += 1;
            // What is being delivered is due in the store until it is settled.
            let is_left = !lane.known.contains_key(&id) && !lane.push(id);
            if is_left || *count >= read.limit() {
                lane.partitions.insert(partition);
            }
        }
    }

    /// The next queue to deliver, each lane in its turn; it counts as running from now on.
    pub(super) fn next(&mut self, now: Instant) -> Option<NoticeQueue> {
        if self.running >= MAX_DELIVERIES {
            return None;
        }
        let is_ready = |lane: &Lane| {
            lane.running < lane.limit && !lane.waiting.is_empty() && !lane.is_held(now)
        };
        let last = self.last.take();
        let ready = |(webhook, lane): (&WebhookKey, &Lane)| is_ready(lane).then(|| webhook.clone());
        let mut later = self.lanes.iter().filter(|(webhook, _)| Some(*webhook) > last.as_ref());
        let webhook = later.find_map(ready).or_else(|| self.lanes.iter().find_map(ready));
        self.last = webhook.clone();
        let webhook = webhook?;
        let lane = self.lanes.get_mut(&webhook)?;
        let conversation = lane.waiting.pop_front()?;
        lane.running += 1;
        self.running += 1;
        Some(NoticeQueue { webhook, conversation })
    }

    /// Ends a running delivery. A lane that is held is held until then.
    pub(super) fn finish(&mut self, queue: NoticeQueue, outcome: Outcome, held_until: Instant) {
        self.running = self.running.saturating_sub(1);
        let NoticeQueue { webhook, conversation } = queue;
        let Some(lane) = self.lanes.get_mut(&webhook) else { return };
        lane.running = lane.running.saturating_sub(1);
        let again = lane.known.remove(&conversation).unwrap_or_default();
        match outcome {
            Outcome::Idle => {}
            Outcome::Delivered { has_more } => {
                lane.limit = (lane.limit + 1).min(MAX_DELIVERIES_PER_WEBHOOK);
                if has_more {
                    lane.push(conversation.clone());
                }
            }
            Outcome::Failed => lane.limit = (lane.limit / 2).max(1),
            Outcome::Held => {
                lane.held_until = Some(held_until);
                lane.waiting.clear();
                lane.known.clear();
            }
        }
        if again && outcome != Outcome::Held {
            lane.push(conversation);
        }
    }

    /// Forgets what waits for these webhooks no more, and every hold: health may have changed.
    pub(super) fn retain(&mut self, is_there: impl Fn(&WebhookKey) -> bool) {
        self.lanes.retain(|webhook, lane| is_there(webhook) || lane.running > 0);
        for lane in self.lanes.values_mut() {
            lane.held_until = None;
        }
    }

    /// Forgets the lanes in which nothing happens.
    pub(super) fn tidy(&mut self, now: Instant) {
        self.lanes.retain(|_, lane| {
            !lane.is_idle() || lane.is_held(now) || lane.limit < FIRST_DELIVERIES
        });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn queue(webhook: &str, n: usize) -> NoticeQueue {
        let conversation = Scoped::parse(&format!("c{n}")).unwrap();
        NoticeQueue { webhook: Scoped::parse(webhook).unwrap(), conversation }
    }

    fn drain(lanes: &mut Lanes) -> Vec<NoticeQueue> {
        std::iter::from_fn(|| lanes.next(Instant::now())).collect()
    }

    #[tokio::test]
    async fn a_webhook_with_much_does_not_delay_one_with_little() {
        let mut lanes = Lanes::default();
        (0..100).for_each(|n| lanes.push(queue("a.1", n)));
        lanes.push(queue("b.1", 0));
        let begun = drain(&mut lanes);
        assert_eq!(begun.len(), FIRST_DELIVERIES + 1);
        assert!(begun[..2].contains(&queue("b.1", 0)));
    }

    #[tokio::test]
    async fn a_receiver_that_answers_gets_more_at_once_and_one_that_fails_gets_fewer() {
        let (mut lanes, now) = (Lanes::default(), Instant::now());
        (0..500).for_each(|n| lanes.push(queue("a.1", n)));
        let mut running = drain(&mut lanes);
        for _ in 0..100 {
            lanes.finish(running.remove(0), Outcome::Delivered { has_more: false }, now);
            running.extend(drain(&mut lanes));
        }
        assert_eq!(running.len(), MAX_DELIVERIES_PER_WEBHOOK);
        for queue in running {
            lanes.finish(queue, Outcome::Failed, now);
        }
        assert_eq!(drain(&mut lanes).len(), 1);
    }

    #[tokio::test]
    async fn a_conversation_is_delivered_once_at_a_time_and_again_if_more_came_meanwhile() {
        let (mut lanes, now) = (Lanes::default(), Instant::now());
        lanes.push(queue("a.1", 1));
        lanes.push(queue("a.1", 1));
        assert_eq!(drain(&mut lanes).len(), 1);
        lanes.push(queue("a.1", 1));
        assert_eq!(drain(&mut lanes), []);
        lanes.finish(queue("a.1", 1), Outcome::Idle, now);
        assert_eq!(drain(&mut lanes), [queue("a.1", 1)]);
        lanes.finish(queue("a.1", 1), Outcome::Idle, now);
        assert_eq!(drain(&mut lanes), []);
    }

    #[tokio::test]
    async fn what_waits_in_memory_is_bounded_and_the_rest_is_read_when_little_is_left() {
        let (mut lanes, now) = (Lanes::default(), Instant::now());
        let webhook = queue("a.1", 0).webhook;
        lanes.expect(Partition::of("x"), webhook.clone());
        let read = lanes.next_reads(now).remove(0);
        assert_eq!(lanes.next_reads(now), [], "a read is under way");
        let due = (0..5_000).map(|n| queue("a.1", n).conversation).collect();
        lanes.learn(&read, due);
        assert_eq!(lanes.lanes[&webhook].waiting.len(), MAX_WAITING);
        assert_eq!(lanes.next_reads(now), [], "enough waits");
        let mut delivered = 0;
        while delivered < MAX_WAITING {
            let queue = lanes.next(now).unwrap();
            lanes.finish(queue, Outcome::Delivered { has_more: false }, now);
            delivered += 1;
        }
        assert_eq!(lanes.next_reads(now).len(), 1, "the store has more");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failing_webhook_is_held() {
        let mut lanes = Lanes::default();
        (0..3).for_each(|n| lanes.push(queue("a.1", n)));
        let first = lanes.next(Instant::now()).unwrap();
        let until = Instant::now() + std::time::Duration::from_secs(60);
        lanes.finish(first, Outcome::Held, until);
        lanes.push(queue("a.1", 7));
        assert_eq!(drain(&mut lanes), []);
        tokio::time::advance(std::time::Duration::from_secs(61)).await;
        assert_eq!(drain(&mut lanes), [queue("a.1", 7)]);
    }
}
