//! Keeps this node a member: renews its lease, sees who else lives, buries the suspects.

use std::sync::Arc;
use std::time::Duration;

use abide_actors::clock::Clock;
use abide_actors::journal::StoreError;
use abide_actors::node_lease::NodeLease;
use abide_conversation::Timestamp;
use ractor::ActorRef;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::lease_tracker::LeaseTracker;
use super::{Membership, Renewed};
use crate::cluster_view::ClusterView;
use crate::host::{HostMsg, LiveTable};
use crate::member::{LinkStates, Member, MemberState, ObservedMember};

/// How soon after a renewal the next may be asked for: many may be waiting for one to show them
/// something.
const BREATH: Duration = Duration::from_millis(20);

/// Told the store's time at every renewal, and how long the answer took.
pub type OnStoreTime = Box<dyn Fn(Timestamp, Duration) + Send + Sync>;

/// What it works with.
pub struct Heartbeat {
    pub membership: Arc<dyn Membership>,
    pub standing: Arc<NodeLease>,
    pub clock: Arc<dyn Clock>,
    pub on_time: OnStoreTime,
    pub tenure: LeaseTracker,
    /// Who is there, for those that connect to them.
    pub members: watch::Sender<Vec<Member>>,
    pub view: watch::Sender<Arc<ClusterView>>,
}

/// What it learns from once the node is whole.
pub struct HeartbeatInputs {
    pub host: ActorRef<HostMsg>,
    pub table: Arc<LiveTable>,
    pub links: watch::Receiver<LinkStates>,
    pub state: watch::Receiver<MemberState>,
    /// Somebody thinks that the view is out of date.
    pub stale: Arc<Notify>,
}

impl Heartbeat {
    /// Makes this node a member; the first view is there when this returns.
    pub async fn enter(&mut self) -> Result<(), StoreError> {
        let asked = Instant::now();
        match self.membership.enter(&self.tenure.me).await? {
            entered @ Renewed::Alive { .. } => {
                self.learn(asked, entered, LinkStates::default());
                Ok(())
            }
            Renewed::Evicted => Err(StoreError::Fenced),
        }
    }

    /// Runs until it is dropped.
    pub async fn run(mut self, mut around: HeartbeatInputs) {
        let every = self.tenure.every();
        let mut away = false;
        loop {
            let links = around.links.borrow_and_update().clone();
            self.bury_suspects(&links).await;
            self.tenure.me.state = *around.state.borrow_and_update();
            self.tenure.me.live_actors = around.table.len();
            match self.renew(&around, links).await {
                Ok(()) => away = false,
                Err(refusal) if !away => {
                    tracing::warn!(%refusal, "the lease cannot be renewed");
                    away = true;
                }
                Err(_) => {}
            }
            let looked = async {
                let stale = async {
                    tokio::time::sleep(BREATH).await;
                    around.stale.notified().await;
                };
                tokio::select! {
                    // Their senders live as long as the node.
                    Ok(()) = around.links.changed() => {}
                    Ok(()) = around.state.changed() => {}
                    () = stale => {}
                }
            };
            // Late is as good: a change or the time.
            let _ = tokio::time::timeout(every, looked).await;
        }
    }

    /// Declares those dead whose address refuses us. Once each time: one that comes back as another
    /// incarnation lives, whatever this node can reach.
    async fn bury_suspects(&mut self, links: &LinkStates) {
        let view = self.view.borrow().clone();
        for member in self.tenure.suspects(&view, links) {
            match self.in_time(self.membership.declare_dead_if(&member.holder, true)).await {
                Ok(_) => {
                    tracing::info!(node = %member.holder, "a suspect is declared dead");
                    self.tenure.buried(&member);
                }
                Err(refusal) => tracing::debug!(%refusal, "a suspect is not declared dead"),
            }
        }
    }

    async fn renew(
        &mut self,
        around: &HeartbeatInputs,
        links: LinkStates,
    ) -> Result<(), StoreError> {
        let asked = Instant::now();
        match self.in_time(self.membership.renew(&self.tenure.me)).await? {
            alive @ Renewed::Alive { .. } => {
                if self.learn(asked, alive, links) {
                    tracing::info!("the lease is renewed: what was held back goes on");
                    // A host that has ended ends the node.
                    let _ = around.host.cast(HostMsg::Resume);
                }
                Ok(())
            }
            Renewed::Evicted => self.rise(around, links).await,
        }
    }

    /// Goes on as another incarnation, with nothing of what the former one held.
    async fn rise(
        &mut self,
        around: &HeartbeatInputs,
        links: LinkStates,
    ) -> Result<(), StoreError> {
        metrics::counter!("abide_burials_total").increment(1);
        self.bow_out(&links);
        // A host that has ended holds nothing.
        let _ = around.host.cast(HostMsg::Abandon);
        let risen = self.tenure.risen(self.clock.id("inc"));
        let asked = Instant::now();
        match self.in_time(self.membership.enter(&risen)).await? {
            Renewed::Evicted => {
                let why =
                    format!("another process goes by the name {}", self.tenure.me.holder.node);
                Err(StoreError::Unavailable(why))
            }
            entered @ Renewed::Alive { .. } => {
                tracing::warn!(now = %risen.holder, "this node had been declared dead");
                self.tenure.me = risen;
                self.learn(asked, entered, links);
                // An actor that began meanwhile holds nothing either: any message tells it.
                let _ = around.host.cast(HostMsg::Resume);
                Ok(())
            }
        }
    }

    /// Starts and places nothing more under the present name.
    fn bow_out(&self, links: &LinkStates) {
        self.standing.renew(self.tenure.me.holder.clone(), Instant::now());
        let me = self.tenure.me.holder.clone();
        let others = self.tenure.others(&self.view.borrow());
        self.view.send_replace(Arc::new(ClusterView::new(me, others, links.clone())));
    }

    async fn in_time<T>(
        &self,
        asked: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        match tokio::time::timeout(self.tenure.lease, asked).await {
            Ok(answered) => answered,
            Err(_) => Err(StoreError::Unavailable("the store took too long".to_owned())),
        }
    }

    /// Returns whether this node had lapsed until now.
    fn learn(&self, asked: Instant, renewed: Renewed, links: LinkStates) -> bool {
        let Renewed::Alive { now, members } = renewed else { return false };
        let me = self.tenure.me.holder.clone();
        let lapsed = self.standing.renew(me.clone(), self.tenure.until(asked));
        (self.on_time)(now, asked.elapsed());
        let others = members.iter().map(|seen| &seen.member);
        let others: Vec<Member> =
            others.filter(|member| member.process != self.tenure.me.process).cloned().collect();
        self.members.send_if_modified(|known| {
            let same =
                |a: &Member, b: &Member| (&a.process, &a.address) == (&b.process, &b.address);
            let new =
                known.len() != others.len() || known.iter().zip(&others).any(|(a, b)| !same(a, b));
            if new {
                *known = others;
            }
            new
        });
        self.view.send_replace(Arc::new(ClusterView::new(me, members, links)));
        lapsed
    }
}

/// What an observer may call a member: `suspect` is one that is late, or cannot be reached.
pub fn is_suspect(view: &ClusterView, seen: &ObservedMember) -> bool {
    let late = seen.silent_ms > seen.member.lease_ms / 2;
    late || !view.reaches(&seen.member)
}
