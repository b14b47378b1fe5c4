//! Keeps this node a member: renews its lease, publishes the view, declares suspects dead.

use std::sync::Arc;
use std::time::Duration;

use abide_actors::clock::Clock;
use abide_actors::credentials::Credentials;
use abide_actors::identity::{Incarnation, NodeName};
use abide_actors::journal::{Holder, StoreError};
use abide_actors::node_lease::NodeLease;
use abide_conversation::Timestamp;
use ractor::ActorRef;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::lease_tracker::LeaseTracker;
use super::{Membership, MembershipStatus};
use crate::cluster_view::ClusterView;
use crate::host::{HostMsg, LiveTable};
use crate::member::{LinkStates, Member, MemberState, ObservedMember};
use crate::partition::ShareCache;

/// The shortest time between two renewals that are requested because the view is out of date: many
/// tasks may request one at once.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_millis(20);

/// How long after a renewal that failed the next one is attempted: it bounds how long the return of
/// the store goes unnoticed.
const FAILED_RENEWAL_DELAY: Duration = Duration::from_millis(100);

/// Called at every renewal with the store's time, and how long the answer took.
pub type OnStoreTime = Box<dyn Fn(Timestamp, Duration) + Send + Sync>;

/// The heartbeat of one node.
pub struct Heartbeat {
    pub membership: Arc<dyn Membership>,
    pub lease: Arc<NodeLease>,
    pub clock: Arc<dyn Clock>,
    pub credentials: Arc<dyn Credentials>,
    pub on_time: OnStoreTime,
    pub tracker: LeaseTracker,
    pub shares: ShareCache,
    /// The other members, for the mesh that connects to them.
    pub members: watch::Sender<Vec<Member>>,
    pub view: watch::Sender<Arc<ClusterView>>,
}

/// What the heartbeat observes and acts on once the node is complete.
pub struct HeartbeatInputs {
    pub host: ActorRef<HostMsg>,
    pub table: Arc<LiveTable>,
    pub links: watch::Receiver<LinkStates>,
    pub state: watch::Receiver<MemberState>,
    /// Notified by tasks that think that the view is out of date.
    pub refresh: Arc<Notify>,
}

impl Heartbeat {
    /// Makes this node a member and publishes the first view.
    pub async fn enter(&mut self) -> Result<(), StoreError> {
        let requested = Instant::now();
        match self.membership.enter(&self.tracker.me).await? {
            entered @ MembershipStatus::Alive { .. } => {
                self.learn(requested, entered, LinkStates::default());
                Ok(())
            }
            MembershipStatus::Evicted => Err(StoreError::Fenced),
        }
    }

    /// Runs until it is dropped.
    pub async fn run(mut self, mut inputs: HeartbeatInputs) {
        let interval = self.tracker.renew_interval();
        let mut failures = 0_u64;
        loop {
            let links = inputs.links.borrow_and_update().clone();
            self.declare_suspects_dead(&links).await;
            self.tracker.me.state = *inputs.state.borrow_and_update();
            self.tracker.me.live_actors = inputs.table.len();
            self.tracker.me.auth = self.credentials.fingerprint();
            match self.renew(&inputs, links).await {
                Ok(()) if failures == 0 => {}
                Ok(()) => {
                    tracing::info!(failures, "lease renewal succeeds again");
                    failures = 0;
                    // If the host has ended, the node is ending.
                    let _ = inputs.host.cast(HostMsg::StoreReturned);
                }
                Err(error) => {
                    if failures == 0 {
                        tracing::warn!(%error, "lease renewal failed");
                    }
                    failures += 1;
                    self.lease.note_failure(error);
                }
            }
            let change = async {
                let refresh = async {
                    tokio::time::sleep(MIN_REFRESH_INTERVAL).await;
                    inputs.refresh.notified().await;
                };
                tokio::select! {
                    // The senders live as long as the node.
                    Ok(()) = inputs.links.changed() => {}
                    Ok(()) = inputs.state.changed() => {}
                    () = refresh => {}
                }
            };
            let within = if failures > 0 { interval.min(FAILED_RENEWAL_DELAY) } else { interval };
            // Renew after a change or after the interval.
            let _ = tokio::time::timeout(within, change).await;
        }
    }

    /// Declares members dead whose address refuses connections, each once: a process that returns
    /// as another incarnation lives, even if this node cannot reach it.
    async fn declare_suspects_dead(&mut self, links: &LinkStates) {
        let view = self.view.borrow().clone();
        for member in self.tracker.suspects(&view, links) {
            match self.in_time(self.membership.declare_dead_if(&member.holder, true)).await {
                Ok(_) => {
                    tracing::info!(node = %member.holder, "node declared dead");
                    self.tracker.mark_declared_dead(&member);
                }
                Err(error) => tracing::debug!(%error, "suspect not declared dead"),
            }
        }
    }

    async fn renew(
        &mut self,
        inputs: &HeartbeatInputs,
        links: LinkStates,
    ) -> Result<(), StoreError> {
        let requested = Instant::now();
        match self.in_time(self.membership.renew(&self.tracker.me)).await? {
            alive @ MembershipStatus::Alive { .. } => {
                if self.learn(requested, alive, links) {
                    tracing::info!("lease renewed after it had lapsed: conversations resume");
                    // If the host has ended, the node is ending.
                    let _ = inputs.host.cast(HostMsg::Resume);
                }
                Ok(())
            }
            MembershipStatus::Evicted => self.rejoin(inputs, links).await,
        }
    }

    /// Joins as another incarnation, which holds nothing of what the former one held.
    async fn rejoin(
        &mut self,
        inputs: &HeartbeatInputs,
        links: LinkStates,
    ) -> Result<(), StoreError> {
        metrics::counter!("abide_burials_total").increment(1);
        self.step_down(&links);
        // A host that has ended holds nothing.
        let _ = inputs.host.cast(HostMsg::AbandonAll);
        let me = self.tracker.next_incarnation(Incarnation::new(self.clock.id("inc")));
        let requested = Instant::now();
        match self.in_time(self.membership.enter(&me)).await? {
            MembershipStatus::Evicted => {
                let name = &self.tracker.me.holder.node;
                let reason = format!("another live process has the name {name}");
                Err(StoreError::Unavailable(reason))
            }
            entered @ MembershipStatus::Alive { .. } => {
                tracing::warn!(holder = %me.holder, "this node had been declared dead and has rejoined");
                self.tracker.me = me;
                self.learn(requested, entered, links);
                // An actor that was started in between holds nothing either, and finds out by any
                // message.
                let _ = inputs.host.cast(HostMsg::Resume);
                Ok(())
            }
        }
    }

    /// Lets the present incarnation start and place nothing more.
    fn step_down(&mut self, links: &LinkStates) {
        self.lease.renew(self.tracker.me.holder.clone(), Instant::now());
        let me = self.tracker.me.holder.clone();
        let others = self.tracker.others(&self.view.borrow());
        self.publish_view(me, others, links.clone());
    }

    async fn in_time<T>(
        &self,
        request: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        match tokio::time::timeout(self.tracker.lease, request).await {
            Ok(result) => result,
            Err(_) => Err(StoreError::Unavailable("the store took too long".to_owned())),
        }
    }

    /// Extends the lease and publishes members and view. Returns whether the lease had lapsed.
    fn learn(&mut self, requested: Instant, status: MembershipStatus, links: LinkStates) -> bool {
        let MembershipStatus::Alive { now, members } = status else { return false };
        let me = self.tracker.me.holder.clone();
        let lapsed = self.lease.renew(me.clone(), self.tracker.valid_until(requested));
        (self.on_time)(now, requested.elapsed());
        let others = members.iter().map(|seen| &seen.member);
        let others: Vec<Member> =
            others.filter(|member| member.process != self.tracker.me.process).cloned().collect();
        self.members.send_if_modified(|known| {
            let same =
                |a: &Member, b: &Member| (&a.process, &a.address) == (&b.process, &b.address);
            let differs =
                known.len() != others.len() || known.iter().zip(&others).any(|(a, b)| !same(a, b));
            if differs {
                *known = others;
            }
            differs
        });
        self.publish_view(me, members, links);
        lapsed
    }

    fn publish_view(&mut self, me: Holder, members: Vec<ObservedMember>, links: LinkStates) {
        let share = |me: &NodeName, members: &[&NodeName]| self.shares.share(me, members);
        let view = ClusterView::with_partitions(me, members, links, share);
        self.view.send_replace(Arc::new(view));
    }
}

/// Whether this node reports a member as a suspect: it is late, or cannot be reached.
pub fn is_suspect(view: &ClusterView, seen: &ObservedMember) -> bool {
    let is_late = seen.silent_ms > seen.member.lease_ms / 2;
    is_late || !view.reaches(&seen.member)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cluster_view::tests::seen;
    use crate::member::LinkState;

    #[test]
    fn a_member_that_is_silent_for_half_its_lease_or_cannot_be_reached_is_a_suspect() {
        for (link, silent_ms, expected) in [
            (LinkState::Connected, 2_500, false),
            (LinkState::Connected, 2_501, true),
            (LinkState::Lost, 0, true),
            (LinkState::Refused, 2_501, true),
        ] {
            let mut b = seen("b");
            b.silent_ms = silent_ms;
            let links = Arc::new([(b.member.process.clone(), link)].into());
            let members = vec![seen("a"), b.clone()];
            let view = ClusterView::new(seen("a").member.holder, members, links);
            assert_eq!(is_suspect(&view, &b), expected, "{link:?}, {silent_ms}");
        }
    }
}
