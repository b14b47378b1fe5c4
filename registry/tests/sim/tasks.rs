//! The background tasks of a simulated node: its membership, its alarms, and the take-over of
//! orphans.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use abide_actors::identity::Incarnation;
use abide_actors::journal::StoreError;
use abide_conversation::{
    Action, Command, ConversationId, Scoped, State, Timestamp, decide, replay,
};
use abide_registry::alarms::planner::{AlarmPlanner, after};
use abide_registry::cluster_view::ClusterView;
use abide_registry::membership::LinkStates;
use abide_registry::membership::lease_tracker::LeaseTracker;
use abide_registry::membership::{MemberState, MembershipStatus};
use abide_registry::placement::{Orphan, is_orphan};
use abide_registry::takeover::{SWEEP_INTERVAL, may_orphan};
use tokio::time::Instant;

use crate::actor::{Outcome, Request, compose};
use crate::executor::{OneShot, either};
use crate::host::HostMsg;
use crate::mutation::Mutation;
use crate::node::Node;
use crate::partition_cache::partitions_of;
use crate::workers::has_programs;
use crate::world::LEASE_MS;

const LEASE: Duration = Duration::from_millis(LEASE_MS);
/// The shortest time between two renewals.
const MIN_RENEW_INTERVAL: Duration = Duration::from_millis(20);
/// How long after a renewal that failed the next one is attempted.
const FAILED_RENEWAL_DELAY: Duration = Duration::from_millis(100);
/// How long a wake may take.
pub const WAKE_TIMEOUT: Duration = Duration::from_millis(2_000);
/// How long to wait before an unavailable store is tried again.
pub const UNAVAILABLE_DELAY: Duration = Duration::from_millis(300);
/// The longest that a read of the store may take.
pub const READ: Duration = Duration::from_millis(1_500);

impl Node {
    /// Enters the membership, and then starts the node's tasks.
    pub fn begin(self: &Rc<Self>) {
        let node = self.clone();
        self.spawn(async move {
            let mut lease_tracker = LeaseTracker::new(node.member(), LEASE);
            loop {
                let (asked_at, me) = (node.instant(), lease_tracker.me.clone());
                match node.ask(LEASE, node.store.enter(&me)).await {
                    Ok(MembershipStatus::Alive { members, .. }) => {
                        node.apply_view(&lease_tracker, asked_at, members, LinkStates::default());
                        break;
                    }
                    // The product's program would end here, and be started again.
                    Ok(MembershipStatus::Evicted) => {
                        lease_tracker.me = lease_tracker.next_incarnation(node.incarnation())
                    }
                    Err(_) => node.sleep(MIN_RENEW_INTERVAL).await,
                }
            }
            node.spawn(node.clone().host());
            node.spawn(node.clone().wake_loop());
            node.spawn(node.clone().takeover_loop());
            node.spawn(node.clone().put_revisions());
            if has_programs(node.world.seed) {
                node.spawn(node.clone().courier_loop());
                node.spawn(node.clone().tick_loop());
            }
            node.clone().keep_membership(lease_tracker).await;
        });
    }

    fn incarnation(&self) -> Incarnation {
        Incarnation::new(format!("i{}-{}", self.process_id, self.world.number()))
    }

    async fn keep_membership(self: Rc<Self>, mut lease_tracker: LeaseTracker) {
        let mut is_failing = false;
        loop {
            let (heartbeat_inputs, view_doubts) =
                (self.heartbeat_inputs.count(), self.view_doubts.count());
            let links = self.links.borrow().clone();
            for suspect in lease_tracker.suspects(&self.seen(), &links) {
                let declared_dead =
                    self.ask(LEASE, self.store.declare_dead(&suspect.holder, true)).await;
                if declared_dead.is_ok() {
                    self.world.trace(|| format!("{} declares {} dead", self.me(), suspect.holder));
                    lease_tracker.mark_declared_dead(&suspect);
                }
            }
            (lease_tracker.me.state, lease_tracker.me.live_actors) =
                (self.state.get(), self.table.borrow().len());
            // A failed renewal is tried again in the next round.
            let has_failed = self.renew(&mut lease_tracker, links).await.is_err();
            if std::mem::replace(&mut is_failing, has_failed) && !has_failed {
                self.cast(HostMsg::StoreReturned);
            }
            let change = async {
                let doubt = async {
                    self.sleep(MIN_RENEW_INTERVAL).await;
                    self.view_doubts.after(view_doubts).await;
                };
                let _ = either(self.heartbeat_inputs.after(heartbeat_inputs), doubt).await;
            };
            let interval = lease_tracker.renew_interval();
            let within = if is_failing { interval.min(FAILED_RENEWAL_DELAY) } else { interval };
            self.world.exec.within(self.ms(within), change).await;
        }
    }

    async fn renew(
        self: &Rc<Self>,
        lease_tracker: &mut LeaseTracker,
        links: LinkStates,
    ) -> Result<(), StoreError> {
        let (asked_at, me) = (self.instant(), lease_tracker.me.clone());
        match self.ask(LEASE, self.store.renew(&me)).await? {
            MembershipStatus::Alive { members, .. } => {
                if self.apply_view(lease_tracker, asked_at, members, links) {
                    self.cast(HostMsg::Resume);
                }
            }
            MembershipStatus::Evicted => {
                self.world.trace(|| format!("{} was declared dead", self.me()));
                self.lease.borrow_mut().renew(lease_tracker.me.holder.clone(), asked_at, asked_at);
                let (me, others) =
                    (lease_tracker.me.holder.clone(), lease_tracker.others(&self.seen()));
                self.publish_view(ClusterView::with_partitions(
                    me,
                    others,
                    links.clone(),
                    partitions_of,
                ));
                self.cast(HostMsg::Abandon);
                let rejoined_as = lease_tracker.next_incarnation(self.incarnation());
                let (asked_at, me) = (self.instant(), rejoined_as.clone());
                let entered = self.ask(LEASE, self.store.enter(&me));
                if let MembershipStatus::Alive { members, .. } = entered.await? {
                    lease_tracker.me = rejoined_as;
                    self.apply_view(lease_tracker, asked_at, members, links);
                    self.cast(HostMsg::Resume);
                }
            }
        }
        Ok(())
    }

    /// Renews the lease and publishes the new view. Returns whether the lease had lapsed.
    fn apply_view(
        &self,
        lease_tracker: &LeaseTracker,
        asked_at: Instant,
        members: Vec<abide_registry::membership::ObservedMember>,
        links: LinkStates,
    ) -> bool {
        let (me, until) = (lease_tracker.me.holder.clone(), lease_tracker.valid_until(asked_at));
        let lapsed = self.lease.borrow_mut().renew(me.clone(), until, self.instant());
        self.publish_view(ClusterView::with_partitions(me, members, links, partitions_of));
        lapsed
    }

    fn publish_view(&self, view: ClusterView) {
        let before = self.view.replace(Rc::new(view));
        crate::invariants::check_partition_moves(&self.world, &before, &self.seen());
        self.views.change();
    }

    /// Wakes the conversations of this node's partitions whose alarm is due.
    async fn wake_loop(self: Rc<Self>) {
        let read = async |node: &Node, until: Timestamp, limit: usize| {
            let partitions = node.seen().partitions.clone();
            node.ask(READ, node.store.due_alarms(&partitions, until, limit)).await
        };
        let wake = async |node: Rc<Node>, id: Scoped<ConversationId>| node.wake(&id).await;
        self.act_on_alarms(read, wake).await;
    }

    /// Acts on what is due in this node's partitions. An action that fails is begun again.
    pub async fn act_on_alarms<K>(
        self: Rc<Self>,
        read: impl AsyncFn(&Node, Timestamp, usize) -> Result<Vec<(Scoped<K>, Timestamp)>, StoreError>,
        act: impl AsyncFn(Rc<Node>, Scoped<K>) -> bool + Copy + 'static,
    ) where
        K: 'static,
        Scoped<K>: Clone + Ord,
    {
        let planner = Rc::new(RefCell::new((AlarmPlanner::default(), 0_usize)));
        loop {
            let partitions = self.seen().partitions.clone();
            let poll = planner.borrow_mut().0.next_poll(self.now(), &partitions);
            if let Some(poll) = poll {
                let answer = read(&self, poll.until, poll.limit).await;
                let planner = &mut planner.borrow_mut().0;
                match answer {
                    Ok(alarms) => planner.learn(poll, partitions, alarms),
                    Err(_) => planner.retry_poll(partitions, after(self.now(), UNAVAILABLE_DELAY)),
                }
            }
            let under_way = planner.borrow().1;
            let (due, wait) = planner.borrow_mut().0.plan(self.now(), under_way);
            for (id, _) in due {
                planner.borrow_mut().1 += 1;
                let (node, planner) = (self.clone(), planner.clone());
                self.spawn(async move {
                    let is_done = act(node.clone(), id.clone()).await;
                    let mut planner = planner.borrow_mut();
                    planner.1 -= 1;
                    planner.0.finish(id, is_done, node.now());
                });
            }
            self.sleep(wait).await;
        }
    }

    async fn wake(self: &Rc<Self>, id: &Scoped<ConversationId>) -> bool {
        if self.world.mutation == Some(Mutation::WakeBypassesRouter) {
            return self.close(id).await;
        }
        let request = Request::from(Action::Wake);
        let woken = self.world.exec.within(self.ms(WAKE_TIMEOUT), self.deliver(id, request)).await;
        matches!(woken, Some(Outcome::Done(_)))
    }

    /// A mutation: reads, decides without the actor, and writes whatever has happened since.
    async fn close(&self, id: &Scoped<ConversationId>) -> bool {
        let Ok(Some(stored)) = self.ask(READ, self.store.load(id)).await else {
            return false;
        };
        let state: State = replay(stored.state, &stored.events);
        let command = Command { at: self.now(), action: Action::Wake };
        let Ok(events) = decide(&state, command) else { return false };
        if events.is_empty() {
            return true;
        }
        self.sleep(Duration::from_millis(self.below(50))).await;
        let next = replay(state.clone(), &events);
        let commit = compose(&state, &next, events, None, next.seq);
        self.store.append_unchecked(id, commit).await.is_ok()
    }

    /// Takes over active conversations whose holder is gone.
    async fn takeover_loop(self: Rc<Self>) {
        loop {
            let view = self.seen();
            self.take_over_orphans().await;
            let changed = async {
                loop {
                    let seen = self.views.count();
                    if may_orphan(&view, &self.seen()) {
                        return;
                    }
                    self.views.after(seen).await;
                }
            };
            self.world.exec.within(self.ms(SWEEP_INTERVAL), changed).await;
        }
    }

    async fn take_over_orphans(self: &Rc<Self>) {
        let active = loop {
            let view = self.seen();
            match self.ask(READ, self.store.active(&view.partitions)).await {
                Ok(active) => break active,
                Err(_) => self.sleep(UNAVAILABLE_DELAY).await,
            }
        };
        let mut starts = Vec::new();
        for (id, held) in active {
            let holder = held.map(|held| held.holder);
            let here = self.lives_here(&id);
            let (me, view) = (self.me(), self.seen());
            let orphan = match is_orphan(holder.as_ref(), &me, here, &view) {
                Orphan::Yes => true,
                Orphan::No => false,
                Orphan::IfDead(holder) => self.is_dead(holder).await.unwrap_or(false),
            };
            if orphan {
                self.world.trace(|| format!("{me} takes up {id}"));
                let (node, done) = (self.clone(), OneShot::new(&self.world.exec));
                starts.push(done.clone());
                self.spawn(async move { done.send(node.start_anywhere(&id).await) });
            }
        }
        for done in starts {
            done.wait().await;
        }
    }

    /// Drains and ends, like a program that is shut down: work that is not done in time is cut off
    /// and goes on elsewhere.
    pub async fn shut_down(self: Rc<Self>, drain_timeout: Duration) {
        self.world.trace(|| format!("{} drains", self.me()));
        self.draining.set(true);
        self.state.set(MemberState::Draining);
        self.heartbeat_inputs.change();
        self.cast(HostMsg::Leave);
        let emptied = async {
            while !self.table.borrow().is_empty() {
                self.sleep(MIN_RENEW_INTERVAL).await;
            }
        };
        if self.world.exec.within(self.ms(drain_timeout), emptied).await.is_none() {
            self.cast(HostMsg::Stop);
            self.sleep(MIN_RENEW_INTERVAL).await;
        }
        let me = self.me();
        let _ = self.ask(READ, self.store.leave(&me)).await;
        self.world.kill(self.process_id, true);
    }
}
