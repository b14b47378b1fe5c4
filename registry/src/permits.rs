//! Permits for the runs of tools whose limits hold in the whole cluster, as one node gives them.
//!
//! The node is chosen by the key and the members alone. A process's permits last as long as it says so,
//! or is a member; a process that is gone keeps them for [`LEASE`] more. When the members change, the
//! node that a key moves to gives nothing for [`LEASE`]: whoever runs something tells it meanwhile, and
//! the node that the key moves from has learned that it is not meant any more.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use abide_actors::identity::NodeName;
use abide_actors::permit_sync::PermitSync;
use tokio::time::Instant;

use crate::cluster_view::ClusterView;
use crate::member::{Member, ProcessId};
use crate::partition::rendezvous_weight;

/// Longer than two members can disagree about who the others are.
const LEASE: Duration = Duration::from_secs(5);
/// With more keys than these, those that nobody has or wants a permit of are forgotten.
const MAX_IDLE_KEYS: usize = 1_024;

/// The permits that this node has given.
#[derive(Default)]
pub struct PermitTable(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    keys: HashMap<String, Permits>,
    members: MembersOverTime,
}

/// The members as they were last seen, and before.
#[derive(Default)]
struct MembersOverTime {
    now: Vec<NodeName>,
    before: Vec<NodeName>,
    changed_at: Option<Instant>,
}

/// What is known of one key.
#[derive(Default)]
struct Permits {
    holders: BTreeMap<ProcessId, HolderPermits>,
    /// A place for each call that waits, in the order in which this node learned of it.
    queue: VecDeque<ProcessId>,
    /// When the last calls began, for the rate.
    starts: VecDeque<Instant>,
}

struct HolderPermits {
    seq: u64,
    held: u32,
    /// Permits that it is to be given with its next message.
    owed: u32,
    lease_until: Instant,
}

/// The member that gives the permits of a key.
pub fn giver<'v>(view: &'v ClusterView, key: &str) -> Option<&'v Member> {
    view.all().max_by_key(|member| weight(&member.holder.node, key))
}

fn weight(node: &NodeName, key: &str) -> [u8; 8] {
    rendezvous_weight(node, format_args!("permits {key}"))
}

impl PermitTable {
    /// Notes who the members are now.
    pub fn observe(&self, view: &ClusterView, now: Instant) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).members.observe(view, now);
    }

    /// Takes a message of a process, and returns how many more calls may begin there; `None` if this
    /// node is not the one that gives them.
    pub fn sync(
        &self,
        view: &ClusterView,
        from: &ProcessId,
        sync: &PermitSync,
        now: Instant,
    ) -> Option<u32> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.members.observe(view, now);
        if giver(view, &sync.key).is_none_or(|giver| giver.holder != view.me) {
            // What it knew is another node's to know now.
            inner.keys.remove(&sync.key);
            return None;
        }
        let is_settled = inner.members.has_settled(&view.me.node, &sync.key, now);
        if inner.keys.len() >= MAX_IDLE_KEYS {
            inner.keys.retain(|_, permits| !permits.is_idle(now));
        }
        let permits = inner.keys.entry(sync.key.clone()).or_default();
        let processes = view.all().map(|member| &member.process).collect();
        permits.forget_gone(&processes, now);
        if !permits.note(from, sync, now) {
            return Some(0);
        }
        if is_settled {
            permits.give(sync, now);
        }
        Some(permits.take_owed(from))
    }
}

impl MembersOverTime {
    fn observe(&mut self, view: &ClusterView, now: Instant) {
        let members: Vec<NodeName> = view.all().map(|member| member.holder.node.clone()).collect();
        if members != self.now {
            self.before = std::mem::replace(&mut self.now, members);
            self.changed_at = Some(now);
        }
    }

    /// Whether no other node can have given permits of the key that this one does not know of.
    fn has_settled(&self, me: &NodeName, key: &str, now: Instant) -> bool {
        let is_alone = self.now.len() <= 1 && self.before.len() <= 1;
        let had_it = self.before.iter().max_by_key(|node| weight(node, key)) == Some(me);
        let is_past = |at: Instant| now.duration_since(at) >= LEASE;
        is_alone || had_it || self.changed_at.is_some_and(is_past)
    }
}

impl Permits {
    /// Forgets the processes that are no members any more and have not renewed their permits.
    fn forget_gone(&mut self, members: &BTreeSet<&ProcessId>, now: Instant) {
        self.holders.retain(|process, it| members.contains(process) || now < it.lease_until);
        self.queue.retain(|process| self.holders.contains_key(process));
    }

    /// Notes what the process says. False for a message that is older than another one.
    fn note(&mut self, from: &ProcessId, sync: &PermitSync, now: Instant) -> bool {
        let lease_until = now + LEASE;
        let fresh = HolderPermits { seq: 0, held: 0, owed: 0, lease_until };
        let holder = self.holders.entry(from.clone()).or_insert(fresh);
        if sync.seq <= holder.seq {
            return false;
        }
        (holder.seq, holder.held, holder.lease_until) = (sync.seq, sync.held, lease_until);
        // Permits that it was owed are for calls that wait; those may have been cancelled.
        holder.owed = holder.owed.min(sync.waiting);
        let known = self.queue.iter().filter(|process| *process == from).count();
        let wanted = sync.waiting.saturating_sub(holder.owed) as usize;
        for _ in known..wanted {
            self.queue.push_back(from.clone());
        }
        for _ in wanted..known {
            if let Some(last) = self.queue.iter().rposition(|process| process == from) {
                self.queue.remove(last);
            }
        }
        if sync.held == 0 && sync.waiting == 0 {
            self.holders.remove(from);
        }
        true
    }

    /// Gives what is free to those who wait, in order.
    fn give(&mut self, sync: &PermitSync, now: Instant) {
        let is_past = |start: &Instant| now.duration_since(*start) >= sync.rate_span();
        while self.starts.front().is_some_and(is_past) {
            self.starts.pop_front();
        }
        while self.has_room(sync) {
            let Some(next) = self.queue.pop_front() else { return };
            let Some(holder) = self.holders.get_mut(&next) else { continue };
            holder.owed += 1;
            if sync.rate_count.is_some() {
                self.starts.push_back(now);
            }
        }
    }

    fn has_room(&self, sync: &PermitSync) -> bool {
        let taken: u64 =
            self.holders.values().map(|it| u64::from(it.held) + u64::from(it.owed)).sum();
        let is_free = sync.concurrency.is_none_or(|limit| taken < u64::from(limit));
        let is_slow = sync.rate_count.is_none_or(|count| self.starts.len() < count as usize);
        is_free && is_slow
    }

    /// The permits that the process gets with the answer. They count as held from now on.
    fn take_owed(&mut self, from: &ProcessId) -> u32 {
        let Some(holder) = self.holders.get_mut(from) else { return 0 };
        let owed = std::mem::take(&mut holder.owed);
        holder.held = holder.held.saturating_add(owed);
        owed
    }

    fn is_idle(&self, now: Instant) -> bool {
        // A rate is over a day at most; what began within the last one still counts.
        let day = Duration::from_secs(86_400);
        let is_recent = |start: &Instant| now.duration_since(*start) < day;
        self.holders.is_empty() && !self.starts.back().is_some_and(is_recent)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
