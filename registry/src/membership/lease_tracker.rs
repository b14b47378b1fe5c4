//! What a node concludes from its view of the membership, without a clock and without a store.

use std::collections::HashSet;
use std::time::Duration;

use abide_actors::identity::Incarnation;
use tokio::time::Instant;

use crate::cluster_view::ClusterView;
use crate::member::{LinkState, LinkStates, Member, ObservedMember, ProcessId};

/// How often a lease is renewed while it lasts.
const RENEWALS_PER_LEASE: u32 = 5;
const MAX_RENEW_INTERVAL: Duration = Duration::from_secs(1);
/// How much earlier than the others a node counts itself as dead.
const SAFETY_MARGIN: Duration = Duration::from_millis(500);

/// A node's own membership, as far as the node knows it.
#[derive(Clone, Debug)]
pub struct LeaseTracker {
    /// The node as it describes itself.
    pub me: Member,
    /// How long the node may be silent before it counts as dead.
    pub lease: Duration,
    /// The processes that this node has declared dead and whose address still refuses connections.
    declared_dead: HashSet<ProcessId>,
}

impl LeaseTracker {
    /// The tracker of a node that has declared no other node dead.
    pub fn new(me: Member, lease: Duration) -> Self {
        Self { me, lease, declared_dead: HashSet::new() }
    }

    /// The time between two renewals.
    pub fn renew_interval(&self) -> Duration {
        (self.lease / RENEWALS_PER_LEASE).min(MAX_RENEW_INTERVAL)
    }

    /// Until when the node may act, by its own clock, after a renewal that it requested at that
    /// time.
    pub fn valid_until(&self, requested: Instant) -> Instant {
        requested + (self.lease - SAFETY_MARGIN.min(self.lease / 2))
    }

    /// The members to declare dead: those whose address refuses connections. Each is returned until
    /// it is marked; a process that then returns as another incarnation lives, even if this node
    /// cannot reach it.
    pub fn suspects(&mut self, view: &ClusterView, links: &LinkStates) -> Vec<Member> {
        let refuses = |process: &ProcessId| links.get(process) == Some(&LinkState::Refused);
        self.declared_dead.retain(refuses);
        let suspect = |member: &&Member| {
            refuses(&member.process) && !self.declared_dead.contains(&member.process)
        };
        view.others().filter(suspect).cloned().collect()
    }

    /// Notes that a suspect has been declared dead.
    pub fn mark_declared_dead(&mut self, suspect: &Member) {
        self.declared_dead.insert(suspect.process.clone());
    }

    /// This node as another incarnation in the same process.
    pub fn next_incarnation(&self, incarnation: Incarnation) -> Member {
        let mut next = self.me.clone();
        next.holder.incarnation = incarnation;
        next
    }

    /// The other members, as seen by a node that has lost its own membership. It leaves itself out,
    /// so that nothing is placed here.
    pub fn others(&self, view: &ClusterView) -> Vec<ObservedMember> {
        let others = view.members.iter().filter(|seen| seen.member.process != self.me.process);
        others.cloned().collect()
    }
}
