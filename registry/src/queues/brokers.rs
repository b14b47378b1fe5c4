//! The brokers of one node.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::broker_task::BrokerMsg;
use super::{MAX_BROKERS, MAX_BROKERS_OF_TENANT, QueueId, SLICE};

/// Nobody waits at a broker that was not asked for this long: who waits asks again in time.
const UNATTENDED: Duration = Duration::from_secs(2 * SLICE.as_secs());

/// The way to each broker of a node: at most [`MAX_BROKERS`], whatever names workers ask for. The one
/// that was asked longest ago makes room.
#[derive(Default)]
pub(super) struct Brokers(BTreeMap<QueueId, Known>);

struct Known {
    sender: mpsc::Sender<BrokerMsg>,
    asked_at: Instant,
}

impl Brokers {
    /// The broker of a queue, if it runs.
    pub(super) fn get(&self, queue: &QueueId) -> Option<mpsc::Sender<BrokerMsg>> {
        self.0.get(queue).map(|known| known.sender.clone())
    }

    /// The broker of a queue, if it runs; somebody asks it now.
    pub(super) fn ask(&mut self, queue: &QueueId, now: Instant) -> Option<mpsc::Sender<BrokerMsg>> {
        let known = self.0.get_mut(queue).filter(|known| !known.sender.is_closed())?;
        known.asked_at = now;
        Some(known.sender.clone())
    }

    /// Adds a broker. Returns false, and adds none, if there are too many.
    pub(super) fn insert(
        &mut self,
        queue: &QueueId,
        sender: mpsc::Sender<BrokerMsg>,
        now: Instant,
    ) -> bool {
        self.0.retain(|_, known| !known.sender.is_closed());
        let tenant = queue.tenant();
        let of_tenant = self.0.keys().filter(|queue| queue.is_of(&tenant)).count();
        let has_room = (of_tenant < MAX_BROKERS_OF_TENANT
            || self.end_unattended(now, |queue| queue.is_of(&tenant)))
            && (self.0.len() < MAX_BROKERS || self.end_unattended(now, |_| true));
        if has_room {
            self.0.insert(queue.clone(), Known { sender, asked_at: now });
        }
        has_room
    }

    /// Ends the broker that was asked longest ago among these, if nobody waits there.
    fn end_unattended(&mut self, now: Instant, is_among: impl Fn(&QueueId) -> bool) -> bool {
        let among = self.0.iter().filter(|(queue, _)| is_among(queue));
        let oldest = among.min_by_key(|(_, known)| known.asked_at);
        let unattended = oldest.filter(|(_, known)| now >= known.asked_at + UNATTENDED);
        let queue = unattended.map(|(queue, _)| queue.clone());
        queue.is_some_and(|queue| self.0.remove(&queue).is_some())
    }

    /// All brokers.
    pub(super) fn all(&self) -> Vec<(QueueId, mpsc::Sender<BrokerMsg>)> {
        let all = self.0.iter();
        all.map(|(queue, known)| (queue.clone(), known.sender.clone())).collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use abide_conversation::Scoped;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_tenant_that_asks_for_many_queues_takes_no_room_from_others() {
        let (sender, _messages) = mpsc::channel(1);
        let (mut brokers, now) = (Brokers::default(), Instant::now());
        let queue = |name: &str| -> QueueId { Scoped::parse(name).unwrap() };
        for n in 0..MAX_BROKERS_OF_TENANT {
            assert!(brokers.insert(&queue(&format!("acme/q{n}")), sender.clone(), now));
        }
        assert!(!brokers.insert(&queue("acme/more"), sender.clone(), now));
        assert!(brokers.insert(&queue("mail"), sender.clone(), now));
        let later = now + UNATTENDED;
        assert!(brokers.ask(&queue("acme/q0"), later).is_some());
        assert!(brokers.insert(&queue("acme/more"), sender.clone(), later));
        assert!(brokers.get(&queue("acme/q0")).is_some(), "it was asked just now");
        assert_eq!(brokers.all().len(), MAX_BROKERS_OF_TENANT + 1);
    }
}
