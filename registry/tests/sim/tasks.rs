//! What runs on a simulated node as long as it lives: its membership, its alarms, its take-overs.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use abide_actors::journal::StoreError;
use abide_conversation::{Action, Command, ConversationId, State, decide, replay};
use abide_registry::alarms::planner::AlarmPlanner;
use abide_registry::cluster_view::ClusterView;
use abide_registry::membership::LinkStates;
use abide_registry::membership::lease_tracker::LeaseTracker;
use abide_registry::membership::{MemberState, Renewed};
use abide_registry::placement::{Orphan, is_orphan};
use abide_registry::takeover::{SWEEP_INTERVAL, may_orphan};
use tokio::time::Instant;

use crate::actor::{Outcome, Request, compose};
use crate::broken::Broken;
use crate::exec::{Once, either};
use crate::host::HostMsg;
use crate::node::Node;
use crate::shares::share;
use crate::world::LEASE_MS;

const LEASE: Duration = Duration::from_millis(LEASE_MS);
/// How soon after a renewal the next may be asked for.
const BREATH: Duration = Duration::from_millis(20);
/// How long a wake may take.
const PATIENCE: Duration = Duration::from_millis(2_000);
/// How long to wait for a store that is away.
const AWAY: Duration = Duration::from_millis(300);
/// What a store takes at most.
const READ: Duration = Duration::from_millis(1_500);

impl Node {
    /// Begins to live: as a member first.
    pub fn begin(self: &Rc<Self>) {
        let node = self.clone();
        self.spawn(async move {
            let mut tenure = LeaseTracker::new(node.member(), LEASE);
            loop {
                let (asked, me) = (node.instant(), tenure.me.clone());
                match node.ask(LEASE, move |store, now| Ok(store.enter(&me, now))).await {
                    Ok(Renewed::Alive { members, .. }) => {
                        node.learn(&tenure, asked, members, LinkStates::default());
                        break;
                    }
                    // The program would end, and be started again.
                    Ok(Renewed::Evicted) => tenure.me = tenure.next_incarnation(node.incarnation()),
                    Err(_) => node.sleep(BREATH).await,
                }
            }
            node.spawn(node.clone().host());
            node.spawn(node.clone().wakes());
            node.spawn(node.clone().sweeps());
            node.clone().keep(tenure).await;
        });
    }

    fn incarnation(&self) -> String {
        format!("i{}-{}", self.life, self.world.number())
    }

    async fn keep(self: Rc<Self>, mut tenure: LeaseTracker) {
        loop {
            let (around, stale) = (self.around.count(), self.stale.count());
            let links = self.links.borrow().clone();
            for suspect in tenure.suspects(&self.seen(), &links) {
                let who = suspect.holder.clone();
                let buried = self.ask(LEASE, move |store, now| store.bury(&who, true, now)).await;
                if buried.is_ok() {
                    self.world.tell(|| format!("{} buries {}", self.me(), suspect.holder));
                    tenure.mark_declared_dead(&suspect);
                }
            }
            (tenure.me.state, tenure.me.live_actors) =
                (self.state.get(), self.table.borrow().len());
            // Whoever cannot renew tries again.
            let _ = self.renew(&mut tenure, links).await;
            let looked = async {
                let doubt = async {
                    self.sleep(BREATH).await;
                    self.stale.after(stale).await;
                };
                let _ = either(self.around.after(around), doubt).await;
            };
            self.world.exec.within(self.ms(tenure.renew_interval()), looked).await;
        }
    }

    async fn renew(
        self: &Rc<Self>,
        tenure: &mut LeaseTracker,
        links: LinkStates,
    ) -> Result<(), StoreError> {
        let (asked, me) = (self.instant(), tenure.me.clone());
        match self.ask(LEASE, move |store, now| Ok(store.renew(&me, now))).await? {
            Renewed::Alive { members, .. } => {
                if self.learn(tenure, asked, members, links) {
                    self.cast(HostMsg::Resume);
                }
            }
            Renewed::Evicted => {
                self.world.tell(|| format!("{} was declared dead", self.me()));
                self.lease.borrow_mut().renew(tenure.me.holder.clone(), asked, asked);
                let (me, others) = (tenure.me.holder.clone(), tenure.others(&self.seen()));
                self.show(ClusterView::with_share(me, others, links.clone(), share));
                self.cast(HostMsg::Abandon);
                let risen = tenure.next_incarnation(self.incarnation());
                let (asked, me) = (self.instant(), risen.clone());
                let entered = self.ask(LEASE, move |store, now| Ok(store.enter(&me, now)));
                if let Renewed::Alive { members, .. } = entered.await? {
                    tenure.me = risen;
                    self.learn(tenure, asked, members, links);
                    self.cast(HostMsg::Resume);
                }
            }
        }
        Ok(())
    }

    /// Returns whether this node had lapsed until now.
    fn learn(
        &self,
        tenure: &LeaseTracker,
        asked: Instant,
        members: Vec<abide_registry::membership::ObservedMember>,
        links: LinkStates,
    ) -> bool {
        let (me, until) = (tenure.me.holder.clone(), tenure.valid_until(asked));
        let lapsed = self.lease.borrow_mut().renew(me.clone(), until, self.instant());
        self.show(ClusterView::with_share(me, members, links, share));
        lapsed
    }

    fn show(&self, view: ClusterView) {
        let before = self.view.replace(Rc::new(view));
        crate::check::moves_little(&self.world, &before, &self.seen());
        self.views.change();
    }

    /// Wakes the conversations of this node's share whose alarm is due.
    async fn wakes(self: Rc<Self>) {
        let agenda = Rc::new(RefCell::new((AlarmPlanner::default(), 0_usize)));
        loop {
            let now = self.now();
            let look = agenda.borrow_mut().0.next_poll(now);
            let view = self.seen();
            let due = move |store: &crate::store::Store, _| {
                store.due(&view.share, look.until, look.limit)
            };
            let wait = match self.ask(READ, due).await {
                Ok(alarms) => {
                    let under_way = agenda.borrow().1;
                    let (due, wait) = agenda.borrow_mut().0.plan(look, now, &alarms, under_way);
                    for (id, _) in due {
                        agenda.borrow_mut().1 += 1;
                        let (node, agenda) = (self.clone(), agenda.clone());
                        self.spawn(async move {
                            let woken = node.wake(&id).await;
                            let mut agenda = agenda.borrow_mut();
                            agenda.1 -= 1;
                            agenda.0.finish(id, woken, node.now());
                        });
                    }
                    wait
                }
                Err(_) => AWAY,
            };
            self.sleep(wait).await;
        }
    }

    async fn wake(self: &Rc<Self>, id: &ConversationId) -> bool {
        if self.world.broken == Some(Broken::SweeperWithoutDoor) {
            return self.close(id).await;
        }
        let request = Request { action: Action::Wake, key: None };
        let woken = self.world.exec.within(self.ms(PATIENCE), self.deliver(id, request)).await;
        matches!(woken, Some(Outcome::Done(_)))
    }

    /// What a sweeper must not do: it reads, decides by itself, and writes whatever has happened.
    async fn close(&self, id: &ConversationId) -> bool {
        let of = id.clone();
        let Ok(Some(stored)) = self.ask(READ, move |store, _| store.load(&of)).await else {
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
        self.world.store.force(id, commit).is_ok()
    }

    /// Takes up what was running where nobody runs it any more.
    async fn sweeps(self: Rc<Self>) {
        loop {
            let view = self.seen();
            self.sweep().await;
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

    async fn sweep(self: &Rc<Self>) {
        let active = loop {
            let view = self.seen();
            match self.ask(READ, move |store, _| store.active(&view.share)).await {
                Ok(active) => break active,
                Err(_) => self.sleep(AWAY).await,
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
                self.world.tell(|| format!("{me} takes up {id}"));
                let (node, done) = (self.clone(), Once::new(&self.world.exec));
                starts.push(done.clone());
                self.spawn(async move { done.tell(node.start_anywhere(&id).await) });
            }
        }
        for done in starts {
            done.told().await;
        }
    }

    /// Drains as a program that ends does: what is not done in time is cut off, and goes on
    /// elsewhere.
    pub async fn retire(self: Rc<Self>, patience: Duration) {
        self.world.tell(|| format!("{} drains", self.me()));
        self.draining.set(true);
        self.state.set(MemberState::Draining);
        self.around.change();
        self.cast(HostMsg::Leave);
        let emptied = async {
            while !self.table.borrow().is_empty() {
                self.sleep(BREATH).await;
            }
        };
        if self.world.exec.within(self.ms(patience), emptied).await.is_none() {
            self.cast(HostMsg::Stop);
            self.sleep(BREATH).await;
        }
        let me = self.me();
        let _ = self.ask(READ, move |store, now| store.bury(&me, true, now)).await;
        self.world.kill(self.life, true);
    }
}
