//! What a node concludes from what it sees of its membership: no clock, no store.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::Instant;

use crate::cluster_view::ClusterView;
use crate::member::{LinkState, LinkStates, Member, ObservedMember};

/// A lease is renewed so many times while it lasts, and at least every second.
const RENEWALS: u32 = 5;
const AT_LEAST_EVERY: Duration = Duration::from_secs(1);
/// How much earlier than all others a node believes itself dead.
const MARGIN: Duration = Duration::from_millis(500);

/// A node's membership, as far as the node knows.
#[derive(Clone, Debug)]
pub struct LeaseTracker {
    /// The node, as it describes itself.
    pub me: Member,
    /// How long it may be silent before it is dead.
    pub lease: Duration,
    /// The processes that it has declared dead.
    buried: HashSet<String>,
}

impl LeaseTracker {
    /// Of a node that has declared nobody dead.
    pub fn new(me: Member, lease: Duration) -> Self {
        Self { me, lease, buried: HashSet::new() }
    }

    /// How long to wait between two renewals.
    pub fn every(&self) -> Duration {
        (self.lease / RENEWALS).min(AT_LEAST_EVERY)
    }

    /// Until when the node may act, by its own clock, after a renewal that was asked for then.
    pub fn until(&self, asked: Instant) -> Instant {
        asked + (self.lease - MARGIN.min(self.lease / 2))
    }

    /// Whom to declare dead: those whose address refuses the node. Once each time: one that comes
    /// back as another incarnation lives, whatever this node can reach.
    pub fn suspects(&mut self, view: &ClusterView, links: &LinkStates) -> Vec<Member> {
        let refuses = |process: &String| links.get(process) == Some(&LinkState::Refused);
        self.buried.retain(refuses);
        let suspect =
            |member: &&Member| refuses(&member.process) && !self.buried.contains(&member.process);
        view.others().filter(suspect).cloned().collect()
    }

    /// A suspect is declared dead.
    pub fn buried(&mut self, suspect: &Member) {
        self.buried.insert(suspect.process.clone());
    }

    /// The same process in another life.
    pub fn risen(&self, incarnation: String) -> Member {
        let mut risen = self.me.clone();
        risen.holder.incarnation = incarnation;
        risen
    }

    /// Whom a node sees that is no member any more: nothing is placed on it.
    pub fn others(&self, view: &ClusterView) -> Vec<ObservedMember> {
        let others = view.members.iter().filter(|seen| seen.member.process != self.me.process);
        others.cloned().collect()
    }
}
