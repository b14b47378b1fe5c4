//! What a broker decides: which worker is offered which call. It does no I/O.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::Duration;

use abide_conversation::state::QueueEntry;
use abide_conversation::{ConversationId, Scoped, Timestamp};
use tokio::time::Instant;

use super::offered::Offered;
use super::{Offer, TakeOffers};

/// How long nobody else is offered a call that a worker was offered. It takes the worker's node a
/// moment to have it leased; a call that was not is found in the index again.
const RESERVATION: Duration = Duration::from_secs(20);
/// How many calls of one tool a broker remembers; more are in the index.
const MAX_KNOWN: usize = 20_000;
/// With fewer calls of a tool than this a broker reads more, if there are more.
pub(super) const REFILL_BELOW: usize = 512;
/// How many workers wait at one broker.
const MAX_WAITING: usize = 10_000;

/// The state of a broker. `R` is how a worker is answered.
#[derive(Debug)]
pub(super) struct Broker<R> {
    tools: BTreeMap<String, ToolQueue>,
    /// Those that wait for a call, the first one first.
    waiting: VecDeque<Waiting<R>>,
    /// Calls that were offered, until their reservation ends.
    reserved: VecDeque<(Instant, Offer)>,
    known: HashSet<Offer>,
    offered: Offered,
    /// Whether the index was read since the broker began.
    is_ready: bool,
}

/// A worker that waits.
#[derive(Debug)]
struct Waiting<R> {
    take: TakeOffers,
    until: Instant,
    /// Whether it lost a call since it asked: it may be frozen.
    is_dismissed: bool,
    reply: R,
}

/// The calls of one tool: one of each conversation in turn.
#[derive(Debug, Default)]
struct ToolQueue {
    by_conversation: HashMap<Scoped<ConversationId>, VecDeque<(Timestamp, Offer)>>,
    rotation: VecDeque<Scoped<ConversationId>>,
    len: usize,
    has_more: bool,
}

/// The answer to a worker: what it is offered, nothing if its time is over. `None`: it must ask
/// again.
#[derive(Debug)]
pub(super) struct Answer<R> {
    pub(super) worker: String,
    pub(super) offers: Option<Vec<Offer>>,
    pub(super) reply: R,
}

impl<R> Default for Broker<R> {
    fn default() -> Self {
        Self {
            tools: BTreeMap::new(),
            waiting: VecDeque::new(),
            reserved: VecDeque::new(),
            known: HashSet::new(),
            offered: Offered::default(),
            is_ready: false,
        }
    }
}

impl<R> Broker<R> {
    /// A call waits. One that is known already changes nothing.
    pub(super) fn add(&mut self, conversation: Scoped<ConversationId>, entry: QueueEntry) {
        let QueueEntry { since, call, attempt, tool, .. } = entry;
        let offer = Offer { conversation, call, attempt };
        if self.known.contains(&offer) {
            return;
        }
        self.dismiss_loser(&offer);
        let queue = self.tools.entry(tool).or_default();
        if queue.len >= MAX_KNOWN {
            queue.has_more = true;
            return;
        }
        self.known.insert(offer.clone());
        queue.push(since, offer);
    }

    /// Ends the requests of the worker that had the attempt before this one. One that was frozen
    /// while it waited would lose the next call, too; one that lives asks again at once.
    fn dismiss_loser(&mut self, offer: &Offer) {
        let Some(loser) = self.offered.remove_previous(offer) else { return };
        for waiting in self.waiting.iter_mut().filter(|waiting| waiting.take.worker == loser) {
            waiting.is_dismissed = true;
        }
    }

    /// The index was read: it has these tools, and no other.
    pub(super) fn learn_tools(&mut self, has_more: &BTreeMap<String, bool>) {
        self.is_ready = true;
        for (tool, queue) in &mut self.tools {
            queue.has_more = has_more.get(tool).copied().unwrap_or(false);
        }
        self.tools.retain(|_, queue| queue.len > 0 || queue.has_more);
    }

    /// How many calls of a tool the broker has to offer.
    pub(super) fn len_of(&self, tool: &str) -> usize {
        self.tools.get(tool).map_or(0, |queue| queue.len)
    }

    /// Whether the broker should read the index before its usual time.
    pub(super) fn needs_more(&self) -> bool {
        let is_short = |queue: &ToolQueue| queue.has_more && queue.len < REFILL_BELOW;
        !self.is_ready || self.tools.values().any(is_short)
    }

    /// A worker asks for calls; it comes back if too many wait.
    pub(super) fn ask(&mut self, take: TakeOffers, reply: R, now: Instant) -> Result<(), R> {
        if self.waiting.len() >= MAX_WAITING {
            return Err(reply);
        }
        let until = now + take.wait;
        self.waiting.push_back(Waiting { take, until, is_dismissed: false, reply });
        Ok(())
    }

    /// A worker has gone.
    pub(super) fn withdraw(&mut self, id: &str) {
        self.waiting.retain(|waiting| waiting.take.id != id);
    }

    /// Whether somebody waits.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The next moment at which somebody's time is over.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        // Before the index was read nobody is sent away.
        self.waiting.iter().map(|waiting| waiting.until).min().filter(|_| self.is_ready)
    }

    /// Answers those for whom there is a call, and those whose time is over. `is_gone` says that
    /// nobody waits for the answer any more.
    pub(super) fn answer(&mut self, now: Instant, is_gone: impl Fn(&R) -> bool) -> Vec<Answer<R>> {
        while self.reserved.front().is_some_and(|(until, _)| *until <= now) {
            if let Some((_, offer)) = self.reserved.pop_front() {
                self.known.remove(&offer);
            }
        }
        let mut answers = Vec::new();
        for waiting in std::mem::take(&mut self.waiting) {
            if is_gone(&waiting.reply) {
                continue;
            }
            let offers = (!waiting.is_dismissed).then(|| self.take(&waiting.take, now));
            let is_over = self.is_ready && waiting.until <= now;
            if offers.as_ref().is_some_and(Vec::is_empty) && !is_over {
                self.waiting.push_back(waiting);
                continue;
            }
            answers.push(Answer { worker: waiting.take.worker, offers, reply: waiting.reply });
        }
        answers
    }

    fn take(&mut self, take: &TakeOffers, now: Instant) -> Vec<Offer> {
        let mut offers = Vec::new();
        while offers.len() < take.max {
            let Some(offer) = self.next(take.tools.as_deref()) else { break };
            self.reserved.push_back((now + RESERVATION, offer.clone()));
            self.offered.insert(&offer, &take.worker);
            offers.push(offer);
        }
        offers
    }

    /// The next call of one of these tools: of the tool whose next call waits longest.
    fn next(&mut self, tools: Option<&[String]>) -> Option<Offer> {
        let is_wanted = |tool: &String| tools.is_none_or(|tools| tools.contains(tool));
        let wanted = self.tools.iter_mut().filter(|(tool, _)| is_wanted(tool));
        let first = wanted.filter_map(|(_, queue)| Some((queue.front()?, queue)));
        first.min_by_key(|(since, _)| *since)?.1.pop()
    }
}

impl ToolQueue {
    fn push(&mut self, since: Timestamp, offer: Offer) {
        self.len += 1;
        let of_conversation = self.by_conversation.entry(offer.conversation.clone()).or_default();
        if of_conversation.is_empty() {
            self.rotation.push_back(offer.conversation.clone());
        }
        of_conversation.push_back((since, offer));
    }

    fn front(&self) -> Option<Timestamp> {
        let of_next = self.by_conversation.get(self.rotation.front()?)?;
        of_next.front().map(|(since, _)| *since)
    }

    fn pop(&mut self) -> Option<Offer> {
        let conversation = self.rotation.pop_front()?;
        let of_conversation = self.by_conversation.get_mut(&conversation)?;
        let (_, offer) = of_conversation.pop_front()?;
        self.len -= 1;
        if of_conversation.is_empty() {
            self.by_conversation.remove(&conversation);
        } else {
            self.rotation.push_back(conversation);
        }
        Some(offer)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
