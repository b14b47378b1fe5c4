//! One process: a re-implementation of the shell of a node, over the simulated store and network.
//!
//! It decides nothing itself: `LeaseTracker`, `Lease`, `ClusterView`, `locate`, `AlarmPlanner` and
//! `CrashHistory` are the product's, and so are the core's `decide`, `evolve` and `wanted`.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use abide_actors::identity::{Incarnation, NodeName};
use abide_actors::journal::{Holder, StoreError};
use abide_actors::node_lease::Lease;
use abide_conversation::{ConversationId, Scoped, Timestamp};
use abide_registry::cluster_view::ClusterView;
use abide_registry::host::CrashHistory;
use abide_registry::member;
use abide_registry::membership::LinkStates;
use abide_registry::membership::{Member, MemberState};
use tokio::time::Instant;

use crate::executor::{Notifier, ProcessId, TaskId};
use crate::host::{HostMsg, Live, ReplyTo};
use crate::mutation::Mutation;
use crate::partition_cache::partitions_of;
use crate::random::Random;
use crate::store::Client;
use crate::world::{LEASE_MS, World};

/// The wall-clock time at which the simulation starts.
pub const BEGINNING_MS: i64 = 1_800_000_000_000;

pub struct Node {
    pub world: Rc<World>,
    pub process_id: ProcessId,
    pub slot: usize,
    pub process: member::ProcessId,
    pub alive: Cell<bool>,
    /// The errors of the node's clocks: its rate in thousandths, and its offset in milliseconds.
    rate: u64,
    offset: i64,
    pub random: RefCell<Random>,
    /// The percentage of calls to the store that have an accident.
    pub accident_percent: Cell<u64>,
    /// While set, the node cannot reach the store, and its connections break.
    pub store_down: Cell<bool>,
    pub store: Client,
    pub lease: RefCell<Lease>,
    pub view: RefCell<Rc<ClusterView>>,
    pub views: Notifier,
    pub links: RefCell<LinkStates>,
    /// Notified when the links or the state of the node change.
    pub heartbeat_inputs: Notifier,
    pub view_doubts: Notifier,
    pub draining: Cell<bool>,
    /// The node was told to drain; a stopped process drains when it goes on.
    pub shutdown_requested: Cell<bool>,
    pub state: Cell<MemberState>,
    pub dead: RefCell<HashSet<Holder>>,
    pub cache: RefCell<BTreeMap<Scoped<ConversationId>, Holder>>,
    pub inbox: RefCell<Vec<HostMsg>>,
    pub mailbox_changed: Notifier,
    pub table: RefCell<BTreeMap<Scoped<ConversationId>, Rc<Live>>>,
    pub crash_histories: RefCell<BTreeMap<Scoped<ConversationId>, CrashHistory>>,
    pub waiting: RefCell<BTreeMap<Scoped<ConversationId>, Vec<ReplyTo>>>,
}

impl Node {
    pub fn new(world: &Rc<World>, process_id: ProcessId, slot: usize) -> Rc<Self> {
        let mut random = Random::new(world.seed, 100 + process_id as u64);
        let (name, exec) = (NodeName::new(format!("n{slot}")), &world.exec);
        let process = member::ProcessId::new(format!("{name}-p{process_id}"));
        let me = Holder { node: name, incarnation: Incarnation::new(format!("i{process_id}")) };
        let view = ClusterView::with_partitions(
            me.clone(),
            Vec::new(),
            LinkStates::default(),
            partitions_of,
        );
        let (rate, offset) = (990 + random.below(21), random.below(301).cast_signed() - 150);
        Rc::new(Self {
            world: world.clone(),
            process_id,
            slot,
            process,
            alive: Cell::new(true),
            rate,
            offset,
            random: RefCell::new(random),
            accident_percent: Cell::default(),
            store_down: Cell::default(),
            store: Client::new(world, process_id),
            lease: RefCell::new(Lease { me, until: None }),
            view: RefCell::new(Rc::new(view)),
            views: Notifier::new(exec),
            links: RefCell::default(),
            heartbeat_inputs: Notifier::new(exec),
            view_doubts: Notifier::new(exec),
            draining: Cell::default(),
            shutdown_requested: Cell::default(),
            state: Cell::new(MemberState::Up),
            dead: RefCell::default(),
            cache: RefCell::default(),
            inbox: RefCell::default(),
            mailbox_changed: Notifier::new(exec),
            table: RefCell::default(),
            crash_histories: RefCell::default(),
            waiting: RefCell::default(),
        })
    }

    /// The node's own entry in the member table.
    pub fn member(&self) -> Member {
        Member {
            holder: self.me(),
            process: self.process.clone(),
            address: String::new(),
            state: self.state.get(),
            live_actors: self.table.borrow().len(),
            version: String::new(),
            protocol_version: abide_registry::protocol::PROTOCOL_VERSION,
            handshake_version: abide_registry::protocol::HANDSHAKE_VERSION,
            live_directory_version: abide_registry::protocol::LIVE_DIRECTORY_VERSION,
            stored_form_version: abide_registry::protocol::STORED_FORM_VERSION,
            cookie: None,
            auth: None,
            ports: Vec::new(),
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
            self.heartbeat_inputs.change();
        }
    }

    pub fn spawn(self: &Rc<Self>, work: impl Future<Output = ()> + 'static) -> TaskId {
        self.world.exec.spawn(Some(self.process_id), work)
    }

    pub fn below(&self, bound: u64) -> u64 {
        self.random.borrow_mut().below(bound)
    }

    /// The time by the node's monotonic clock.
    pub fn instant(&self) -> Instant {
        static BEGINNING: OnceLock<Instant> = OnceLock::new();
        let is_stopped = self.world.mutation == Some(Mutation::StoppedClock);
        let now = if is_stopped { 0 } else { self.world.exec.now() };
        *BEGINNING.get_or_init(Instant::now) + Duration::from_millis(now * self.rate / 1_000)
    }

    /// The time by the node's wall clock.
    pub fn now(&self) -> Timestamp {
        let now = i64::try_from(self.world.exec.now()).unwrap();
        Timestamp::from_millisecond(BEGINNING_MS + now + self.offset).unwrap()
    }

    /// The simulated milliseconds in which the node's own clock advances by `duration`.
    pub fn ms(&self, duration: Duration) -> u64 {
        u64::try_from(duration.as_millis()).unwrap() * 1_000 / self.rate
    }

    /// Sleeps for a simulated millisecond at least, as a timer does.
    pub async fn sleep(&self, duration: Duration) {
        self.world.exec.sleep(self.ms(duration).max(1)).await;
    }

    /// Waits for a call of the store, for at most `within`. The call may be carried out long after
    /// that, or not at all.
    pub async fn ask<T>(
        &self,
        within: Duration,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let done = self.world.exec.within(self.ms(within), call).await;
        done.unwrap_or_else(|| Err(store_unavailable()))
    }

    /// Drops what refers back to the node, so that the world can be freed.
    pub fn forget(&self) {
        self.table.borrow_mut().clear();
        self.inbox.borrow_mut().clear();
        self.waiting.borrow_mut().clear();
        *self.links.borrow_mut() = Arc::default();
    }
}

pub fn store_unavailable() -> StoreError {
    StoreError::Unavailable("the store is away".to_owned())
}
