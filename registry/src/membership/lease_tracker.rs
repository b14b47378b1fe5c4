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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cluster_view::tests::seen;

    fn tracker(lease_ms: u64) -> LeaseTracker {
        LeaseTracker::new(seen("a").member, Duration::from_millis(lease_ms))
    }

    /// Node `a` sees `a`, `b` and `c`, and has this connection to `b`.
    fn view(b: LinkState) -> ClusterView {
        let links = [("b", b), ("c", LinkState::Connected)];
        let links = links.map(|(process, link)| (ProcessId::new(process), link));
        let members = ["a", "b", "c"].map(seen).into();
        ClusterView::new(seen("a").member.holder, members, Arc::new(links.into()))
    }

    #[test]
    fn a_lease_is_renewed_well_before_its_end_and_counts_as_ended_before_others_think_so() {
        for (lease_ms, renewed_ms, valid_ms) in
            [(10_000, 1_000, 9_500), (5_000, 1_000, 4_500), (2_000, 400, 1_500), (600, 120, 300)]
        {
            let tracker = tracker(lease_ms);
            assert_eq!(tracker.renew_interval(), Duration::from_millis(renewed_ms));
            let requested = Instant::now();
            let valid = tracker.valid_until(requested).duration_since(requested);
            assert_eq!(valid, Duration::from_millis(valid_ms));
        }
    }

    #[test]
    fn a_member_is_a_suspect_while_its_address_refuses_until_it_is_marked() {
        let mut tracker = tracker(5_000);
        let mut suspects = |b, mark| {
            let view = view(b);
            let suspects = tracker.suspects(&view, &view.links);
            if mark {
                suspects.iter().for_each(|suspect| tracker.mark_declared_dead(suspect));
            }
            suspects.iter().map(|suspect| suspect.holder.to_string()).collect::<Vec<_>>()
        };
        let b = seen("b").member.holder.to_string();
        assert!(suspects(LinkState::Lost, false).is_empty());
        assert_eq!(suspects(LinkState::Refused, false), [b.as_str()]);
        assert_eq!(suspects(LinkState::Refused, true), [b.as_str()]);
        assert!(suspects(LinkState::Refused, false).is_empty(), "it is marked");
        assert!(suspects(LinkState::Connected, false).is_empty());
        assert_eq!(suspects(LinkState::Refused, false), [b.as_str()], "another process was there");
    }

    #[test]
    fn a_node_that_lost_its_membership_is_another_incarnation_and_leaves_itself_out() {
        let tracker = tracker(5_000);
        let next = tracker.next_incarnation(Incarnation::new("second"));
        let mut expected = tracker.me.clone();
        expected.holder.incarnation = Incarnation::new("second");
        assert_eq!(next, expected);
        assert_eq!(tracker.others(&view(LinkState::Lost)), [seen("b"), seen("c")]);
    }
}
