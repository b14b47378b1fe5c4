//! What a broker remembers of its offers: who had the attempt before a given one.

use std::collections::{HashMap, VecDeque};

use super::Offer;

/// How many offers a broker remembers.
const MAX_OFFERED: usize = 20_000;

/// The workers of the last [`MAX_OFFERED`] offers.
#[derive(Debug, Default)]
pub(super) struct Offered {
    /// By the offer that follows if the worker loses the call.
    worker_by_next: HashMap<Offer, String>,
    /// What is in `worker_by_next`, or was, the oldest first.
    order: VecDeque<Offer>,
}

impl Offered {
    pub(super) fn insert(&mut self, offer: &Offer, worker: &str) {
        if self.order.len() >= MAX_OFFERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.worker_by_next.remove(&oldest);
        }
        let next = Offer { attempt: offer.attempt.next(), ..offer.clone() };
        self.order.push_back(next.clone());
        self.worker_by_next.insert(next, worker.to_owned());
    }

    /// The worker that was offered the attempt before this one; it is forgotten.
    pub(super) fn remove_previous(&mut self, offer: &Offer) -> Option<String> {
        self.worker_by_next.remove(offer)
    }
}
