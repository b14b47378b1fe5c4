//! One process: what the shell of a node does, over the simulated store and network.
//!
//! It decides nothing itself: `Tenure`, `Lease`, `View`, `Search`, `Agenda` and `Record` are the
//! product's, and so are the conversation's `decide`, `evolve` and `wanted`.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use abide_actors::journal::{Holder, StoreError};
use abide_actors::node_lease::Lease;
use abide_conversation::{ConversationId, Timestamp};
use abide_registry::cluster_view::ClusterView;
use abide_registry::host::CrashHistory;
use abide_registry::membership::LinkStates;
use abide_registry::membership::{Member, MemberState};
use futures::future::{Either, ready};
use tokio::time::Instant;

use crate::broken::Broken;
use crate::chance::Chance;
use crate::exec::{LifeId, Once, Signal, TaskId};
use crate::host::{HostMsg, Live, Waiting};
use crate::shares::share;
use crate::store::Store;
use crate::world::{LEASE_MS, World};

/// When the cluster's clock starts.
const BEGINNING_MS: i64 = 1_800_000_000_000;

pub struct Node {
    pub world: Rc<World>,
    pub life: LifeId,
    pub slot: usize,
    pub process: String,
    pub alive: Cell<bool>,
    /// How much its clocks are wrong: by how much of a thousand, and by how many milliseconds.
    rate: u64,
    offset: i64,
    pub chance: RefCell<Chance>,
    /// How many of a hundred calls to the store have an accident.
    pub rough: Cell<u64>,
    /// The store cannot be reached.
    pub away: Cell<bool>,
    pub lease: RefCell<Lease>,
    pub view: RefCell<Rc<ClusterView>>,
    pub views: Signal,
    pub links: RefCell<LinkStates>,
    /// Links, state, or a doubt about the view.
    pub around: Signal,
    pub stale: Signal,
    pub draining: Cell<bool>,
    /// It was told to drain; one that is stopped does when it goes on.
    pub retires: Cell<bool>,
    pub state: Cell<MemberState>,
    pub dead: RefCell<HashSet<Holder>>,
    pub cache: RefCell<BTreeMap<ConversationId, Holder>>,
    pub inbox: RefCell<Vec<HostMsg>>,
    pub asked: Signal,
    pub table: RefCell<BTreeMap<ConversationId, Rc<Live>>>,
    pub records: RefCell<BTreeMap<ConversationId, CrashHistory>>,
    pub waiting: RefCell<BTreeMap<ConversationId, Vec<Waiting>>>,
}

impl Node {
    pub fn new(world: &Rc<World>, life: LifeId, slot: usize) -> Rc<Self> {
        let mut chance = Chance::new(world.seed, 100 + life as u64);
        let (name, exec) = (format!("n{slot}"), &world.exec);
        let me = Holder { node: name.clone(), incarnation: format!("i{life}") };
        let view = ClusterView::with_share(me.clone(), Vec::new(), LinkStates::default(), share);
        let (rate, offset) = (990 + chance.below(21), chance.below(301).cast_signed() - 150);
        Rc::new(Self {
            world: world.clone(),
            life,
            slot,
            process: format!("{name}-p{life}"),
            alive: Cell::new(true),
            rate,
            offset,
            chance: RefCell::new(chance),
            rough: Cell::default(),
            away: Cell::default(),
            lease: RefCell::new(Lease { me, until: None }),
            view: RefCell::new(Rc::new(view)),
            views: Signal::new(exec),
            links: RefCell::default(),
            around: Signal::new(exec),
            stale: Signal::new(exec),
            draining: Cell::default(),
            retires: Cell::default(),
            state: Cell::new(MemberState::Up),
            dead: RefCell::default(),
            cache: RefCell::default(),
            inbox: RefCell::default(),
            asked: Signal::new(exec),
            table: RefCell::default(),
            records: RefCell::default(),
            waiting: RefCell::default(),
        })
    }

    /// As it describes itself.
    pub fn member(&self) -> Member {
        Member {
            holder: self.me(),
            process: self.process.clone(),
            address: String::new(),
            state: self.state.get(),
            live_actors: self.table.borrow().len(),
            version: String::new(),
            wire: abide_registry::protocol::WIRE,
            since: Timestamp::UNIX_EPOCH,
            lease_ms: LEASE_MS,
        }
    }

    pub fn me(&self) -> Holder {
        self.lease.borrow().me.clone()
    }

    pub fn seen(&self) -> Rc<ClusterView> {
        self.view.borrow().clone()
    }

    pub fn is_sound(&self) -> bool {
        self.lease.borrow().is_sound(self.instant())
    }

    pub fn set_links(&self, links: LinkStates) {
        if *self.links.borrow() != links {
            *self.links.borrow_mut() = links;
            self.around.change();
        }
    }

    pub fn spawn(self: &Rc<Self>, work: impl Future<Output = ()> + 'static) -> TaskId {
        self.world.exec.spawn(Some(self.life), work)
    }

    pub fn below(&self, bound: u64) -> u64 {
        self.chance.borrow_mut().below(bound)
    }

    /// What its steady clock says.
    pub fn instant(&self) -> Instant {
        static BEGINNING: OnceLock<Instant> = OnceLock::new();
        let stands = self.world.broken == Some(Broken::StoppedClock);
        let now = if stands { 0 } else { self.world.exec.now() };
        *BEGINNING.get_or_init(Instant::now) + Duration::from_millis(now * self.rate / 1_000)
    }

    /// What time it thinks it is.
    pub fn now(&self) -> Timestamp {
        let now = i64::try_from(self.world.exec.now()).unwrap();
        Timestamp::from_millisecond(BEGINNING_MS + now + self.offset).unwrap()
    }

    /// So long by its own clock.
    pub fn ms(&self, duration: Duration) -> u64 {
        u64::try_from(duration.as_millis()).unwrap() * 1_000 / self.rate
    }

    pub async fn sleep(&self, duration: Duration) {
        self.world.exec.sleep(self.ms(duration)).await;
    }

    /// Asks the store for something that may be done twice.
    pub fn ask<T: 'static>(
        &self,
        within: Duration,
        what: impl Fn(&Store, u64) -> Result<T, StoreError> + 'static,
    ) -> impl Future<Output = Result<T, StoreError>> {
        self.carry(within, true, what)
    }

    /// Asks the store, whose answer is late or lost; what was sent may be done or not, and long
    /// after nobody waits for it.
    pub fn carry<T: 'static>(
        &self,
        within: Duration,
        repeatable: bool,
        what: impl Fn(&Store, u64) -> Result<T, StoreError> + 'static,
    ) -> impl Future<Output = Result<T, StoreError>> {
        let world = self.world.clone();
        if self.away.get() {
            let refused = async move {
                world.exec.sleep(3).await;
                Err(away())
            };
            return Either::Left(refused);
        }
        let accident = self.chance.borrow_mut().percent(self.rough.get());
        if !accident && self.chance.borrow_mut().percent(70) {
            return Either::Right(Either::Left(ready(what(&world.store, world.exec.now()))));
        }
        let kind = if accident { self.below(4) } else { 9 };
        let late = self.late(self.ms(within), kind, repeatable, what);
        // Few calls are, and what waits for one is smaller without it.
        Either::Right(Either::Right(Box::pin(late)))
    }

    /// The same after a while, with this kind of accident.
    async fn late<T: 'static>(
        &self,
        within: u64,
        kind: u64,
        repeatable: bool,
        what: impl Fn(&Store, u64) -> Result<T, StoreError> + 'static,
    ) -> Result<T, StoreError> {
        let (world, exec) = (self.world.clone(), self.world.exec.clone());
        let (mut before, after) = (self.below(15), self.below(15));
        if kind == 0 {
            exec.sleep(before + after).await;
            return Err(away());
        }
        let answer = Once::new(&exec);
        if kind == 1 {
            before += self.below(4_000);
            let (told, exec) = (answer.clone(), exec.clone());
            let give_up = self.below(200);
            self.world.exec.spawn(None, async move {
                exec.sleep(give_up).await;
                told.tell(Err(away()));
            });
        }
        let (told, again) = (answer.clone(), self.below(3_000));
        exec.spawn(None, async move {
            world.exec.sleep(before).await;
            let done = what(&world.store, world.exec.now());
            world.exec.sleep(after).await;
            told.tell(if kind == 2 { Err(away()) } else { done });
            if kind == 3 && repeatable {
                world.exec.sleep(again).await;
                // Whoever asked has its answer.
                let _ = what(&world.store, world.exec.now());
            }
        });
        exec.within(within, answer.told()).await.unwrap_or_else(|| Err(away()))
    }

    /// Breaks the circle of what knows what.
    pub fn forget(&self) {
        self.table.borrow_mut().clear();
        self.inbox.borrow_mut().clear();
        self.waiting.borrow_mut().clear();
        *self.links.borrow_mut() = Arc::default();
    }
}

pub fn away() -> StoreError {
    StoreError::Unavailable("the store is away".to_owned())
}
