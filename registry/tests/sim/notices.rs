//! Notices: what the end of a turn and a deletion owe to a webhook, which nodes deliver. A receiver that
//! fails is tried again; a node that dies may tell twice, and never not at all.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use abide_actors::journal::StoreError;
use abide_actors::notices::{NoticeKind, OwedNotice};
use abide_conversation::event::{Event, EventData};
use abide_conversation::{ConversationId, Scoped, Seq, Timestamp};
use abide_registry::alarms::planner::after;
use abide_registry::partition::PartitionSet;
use abide_registry::store::{Attempts, NoticeHead, NoticeQueue, Outbox as _, Settlement};

use crate::imports;
use crate::mutation::Mutation;
use crate::node::Node;
use crate::tasks::READ;
use crate::usage::own_events;
use crate::workers::has_programs;
use crate::world::World;

/// How often a node asks what is due.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// When a notice that was not taken is due again.
const RETRY_DELAY: Duration = Duration::from_millis(200);
/// How long a receiver takes at most, and how long a node takes then to note it.
const ANSWER_MS: u64 = 40;
/// How many of a hundred attempts fail.
const FAILING_PERCENT: u64 = 20;
/// The most queues of a partition that are read at once.
const MAX_QUEUES: usize = 10;

/// A notice that the receiver has taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    conversation: Scoped<ConversationId>,
    seq: Seq,
    body: String,
}

/// What events of a conversation owe.
pub fn owed(world: &World, id: &Scoped<ConversationId>, events: &[Event]) -> Vec<OwedNotice> {
    let ended = events.iter().filter(|event| is_told(event));
    let owed = ended.map(|event| notice(id, event.seq, event.at, body_of(event)));
    if has_programs(world.seed) { owed.collect() } else { Vec::new() }
}

/// What the deletion of a conversation owes.
pub fn owed_by_deletion(
    world: &World,
    id: &Scoped<ConversationId>,
    seq: Seq,
    at: Timestamp,
) -> Vec<OwedNotice> {
    let body = format!("deletion {}", world.number());
    let owed = notice(id, seq, at, body);
    if has_programs(world.seed) { vec![owed] } else { Vec::new() }
}

fn notice(id: &Scoped<ConversationId>, seq: Seq, at: Timestamp, body: String) -> OwedNotice {
    let webhook = Scoped::new(&id.tenant(), &"w.g".to_owned());
    OwedNotice { webhook, seq, kind: NoticeKind::TurnCompleted, at, body: Arc::from(body) }
}

fn is_told(event: &Event) -> bool {
    matches!(event.data, EventData::TurnEnded(_))
}

/// Tells events of one conversation apart, also those that a fail-over has taken back.
fn body_of(event: &Event) -> String {
    format!("end of {:?} at {}", event.turn_id, event.at)
}

impl Node {
    /// Delivers what conversations of this node's partitions owe.
    pub async fn courier_loop(self: Rc<Self>) {
        loop {
            let partitions = self.world.store.used(&self.seen().partitions);
            // What could not be read or noted is due again in the next round.
            let _ = self.deliver_due(&partitions).await;
            self.sleep(POLL_INTERVAL).await;
        }
    }

    async fn deliver_due(&self, partitions: &PartitionSet) -> Result<(), StoreError> {
        let redis = self.store.redis();
        for (partition, webhook) in
            self.ask(READ, redis.due_webhooks(partitions, self.now())).await?
        {
            let partition = [partition];
            let due = redis.due_queues(&webhook, &partition, self.now(), MAX_QUEUES);
            for (_, conversation) in self.ask(READ, due).await? {
                let webhook = webhook.clone();
                self.deliver_queue(&NoticeQueue { webhook, conversation }).await?;
            }
        }
        Ok(())
    }

    async fn deliver_queue(&self, queue: &NoticeQueue) -> Result<(), StoreError> {
        let mut head = self.ask(READ, self.store.redis().notice_head(queue)).await?;
        while let Some(due) = head.take().filter(|head| head.due <= self.now()) {
            let delivered = Settlement::Delivered { at: due.due };
            if self.world.mutation == Some(Mutation::SettlesBeforeTelling) {
                head = self.settle(queue, &due, &delivered).await?;
                self.tell(queue, &due).await;
                continue;
            }
            if !self.tell(queue, &due).await {
                let attempts = Attempts { count: due.attempts.count + 1, ..due.attempts.clone() };
                let due_again = after(self.now(), RETRY_DELAY);
                let retry = Settlement::Retry { due: due_again, attempts };
                self.settle(queue, &due, &retry).await?;
                return Ok(());
            }
            head = self.settle(queue, &due, &delivered).await?;
        }
        Ok(())
    }

    async fn settle(
        &self,
        queue: &NoticeQueue,
        head: &NoticeHead,
        settlement: &Settlement,
    ) -> Result<Option<NoticeHead>, StoreError> {
        self.sleep(Duration::from_millis(self.below(ANSWER_MS))).await;
        self.ask(READ, self.store.redis().settle_notice(queue, head, settlement)).await
    }

    /// Sends a notice. Returns whether the receiver has taken it.
    async fn tell(&self, queue: &NoticeQueue, head: &NoticeHead) -> bool {
        self.sleep(Duration::from_millis(self.below(ANSWER_MS))).await;
        let is_mutated = self.world.mutation == Some(Mutation::SettlesBeforeTelling);
        if !is_mutated && self.below(100) < FAILING_PERCENT {
            return false;
        }
        let conversation = queue.conversation.clone();
        let (seq, body) = (head.notice.seq, head.notice.body.clone());
        self.world.trace(|| format!("{} tells {body} of {conversation}", self.me()));
        self.world.store.count("notices");
        self.world.receipts.borrow_mut().push(Receipt { conversation, seq, body });
        true
    }
}

/// What is still owed to webhooks in a settled world.
pub fn left_owed(world: &World) -> Option<String> {
    let owed = world.store.owed();
    (owed > 0).then(|| format!("{owed} notices are owed, and nobody tells them"))
}

/// The first notice that was never told, or told before one that it follows.
pub fn check(
    world: &World,
    journals: &BTreeMap<&Scoped<ConversationId>, Vec<Event>>,
) -> Option<String> {
    if !has_programs(world.seed) {
        return None;
    }
    let receipts = world.receipts.borrow();
    for (id, events) in journals {
        let mut told_until = 0;
        for event in own_events(world, id, events).iter().filter(|event| is_told(event)) {
            let body = body_of(event);
            let is_it = |receipt: &Receipt| receipt.conversation == **id && receipt.body == body;
            let Some(first) = receipts.iter().position(is_it) else {
                return Some(format!("{id}: {body}: was never told"));
            };
            if first < told_until {
                return Some(format!("{id}: {body}: was told before what it follows"));
            }
            told_until = first;
        }
    }
    let mut deletions = world.store.observer.borrow().deletions.clone();
    // An import that is undone was no conversation yet.
    deletions.retain(|(id, _)| imports::events_of(world, id).is_none());
    let mut deleted: BTreeMap<&Scoped<ConversationId>, usize> = BTreeMap::new();
    deletions.iter().for_each(|(id, _)| *deleted.entry(id).or_default() += 1);
    deleted.into_iter().find_map(|(id, deletions)| {
        let mut told: Vec<_> = receipts
            .iter()
            .filter(|it| it.conversation == *id && it.body.starts_with("deletion "))
            .map(|it| &it.body)
            .collect();
        told.sort();
        told.dedup();
        (told.len() < deletions).then(|| format!("{id}: a deletion was never told"))
    })
}
