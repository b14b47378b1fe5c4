//! The simulated world: time, the store, the network, the processes, and the trace of what
//! happened.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use abide_conversation::{BlobId, ConversationId, Scoped, Seq, State};
use abide_registry::member;
use abide_registry::membership::LinkState;
use abide_registry::placement::Policy;

use crate::activities::runs_once;
use crate::erasures::Erased;
use crate::executor::{Executor, ProcessId};
use crate::imports::Import;
use crate::mutation::Mutation;
use crate::node::Node;
use crate::notices::Receipt;
use crate::random::Random;
use crate::reads::ReadJournal;
use crate::rollouts::Change;
use crate::store::Store;

/// How long a silent node still counts as alive: less than in production, so that a schedule
/// contains many leases.
pub const LEASE_MS: u64 = 2_000;
/// The number of nodes.
pub const NODES: usize = 3;

/// How long a process that a tool has ended is away.
const RESTART_MS: u64 = 200;

/// A request that was acknowledged to a client.
pub struct Promise {
    pub id: Scoped<ConversationId>,
    pub text: Option<String>,
    pub seq: Seq,
    /// Whether it is the deletion of the conversation that was acknowledged.
    pub deleted: bool,
    /// When the request was sent.
    pub sent_at: u64,
}

pub struct World {
    pub exec: Rc<Executor>,
    pub store: Store,
    pub mutation: Option<Mutation>,
    pub policy: Policy,
    pub seed: u64,
    /// All processes that were ever started.
    pub processes: RefCell<Vec<Rc<Node>>>,
    /// The process of each node, if it runs.
    pub slots: RefCell<[Option<ProcessId>; NODES]>,
    /// The states of the links that are not in their normal state.
    links: RefCell<BTreeMap<(ProcessId, ProcessId), LinkState>>,
    /// The percentage of calls between nodes that have an accident.
    pub accident_percent: Cell<u64>,
    /// Whether the store has no primary that stays one.
    pub failing_over: Cell<bool>,
    random: RefCell<Random>,
    pub runs: RefCell<BTreeMap<(Scoped<ConversationId>, String), u32>>,
    pub promises: RefCell<Vec<Promise>>,
    /// The blobs that are stored.
    pub blobs: RefCell<Vec<Scoped<BlobId>>>,
    /// The conversations whose tools end the process that runs them.
    pub poison: RefCell<BTreeSet<Scoped<ConversationId>>>,
    /// The journals that clients have read.
    pub reads: RefCell<Vec<ReadJournal>>,
    /// The persons who were erased from conversations.
    pub erased: RefCell<Vec<Erased>>,
    /// The journals that were imported, or not.
    pub imports: RefCell<Vec<Import>>,
    /// The changes of the rollout, in the order in which they were begun.
    pub rollouts: RefCell<Vec<Change>>,
    /// The notices that the receiver of all webhooks has taken.
    pub receipts: RefCell<Vec<Receipt>>,
    pub numbers: Cell<u64>,
    /// The trace so far, if one was requested.
    pub trace_lines: Option<RefCell<Vec<String>>>,
}

impl World {
    pub fn new(seed: u64, mutation: Option<Mutation>, traced: bool) -> Rc<Self> {
        let policies = [Policy::Local, Policy::Rendezvous, Policy::LeastLoaded];
        let world = Rc::new(Self {
            exec: Rc::new(Executor::default()),
            store: Store::new(seed, mutation),
            mutation,
            policy: policies[usize::try_from(seed % 3).unwrap()],
            seed,
            processes: RefCell::default(),
            slots: RefCell::default(),
            links: RefCell::default(),
            accident_percent: Cell::default(),
            failing_over: Cell::default(),
            random: RefCell::new(Random::new(seed, 1)),
            runs: RefCell::default(),
            promises: RefCell::default(),
            blobs: RefCell::default(),
            poison: RefCell::default(),
            reads: RefCell::default(),
            erased: RefCell::default(),
            imports: RefCell::default(),
            rollouts: RefCell::default(),
            receipts: RefCell::default(),
            numbers: Cell::default(),
            trace_lines: traced.then(RefCell::default),
        });
        crate::redis::wire::enter(&world);
        world
    }

    /// A random number for the network.
    pub fn below(&self, bound: u64) -> u64 {
        self.random.borrow_mut().below(bound)
    }

    pub fn percent(&self, percent: u64) -> bool {
        self.random.borrow_mut().percent(percent)
    }

    pub fn number(&self) -> u64 {
        self.numbers.set(self.numbers.get() + 1);
        self.numbers.get()
    }

    /// Adds a line to the trace.
    pub fn trace(&self, line: impl FnOnce() -> String) {
        if let Some(trace_lines) = &self.trace_lines {
            trace_lines.borrow_mut().push(format!("{:>6} {}", self.exec.now(), line()));
        }
    }

    pub fn node(&self, slot: usize) -> Option<Rc<Node>> {
        let process_id = self.slots.borrow()[slot]?;
        Some(self.processes.borrow()[process_id].clone())
    }

    pub fn running(&self) -> Vec<Rc<Node>> {
        (0..NODES).filter_map(|slot| self.node(slot)).collect()
    }

    pub fn process(&self, process: &member::ProcessId) -> Option<Rc<Node>> {
        self.processes.borrow().iter().find(|node| node.process == *process).cloned()
    }

    /// Starts a process under the name of a node; another process of this name keeps running.
    pub fn start(self: &Rc<Self>, slot: usize) {
        let process_id = self.processes.borrow().len();
        let node = Node::new(self, process_id, slot);
        self.processes.borrow_mut().push(node.clone());
        self.slots.borrow_mut()[slot] = Some(process_id);
        self.trace(|| format!("{} begins", node.process));
        self.relink();
        node.begin();
    }

    /// Ends a process without a shutdown. Later connections to it are refused, or get no answer.
    pub fn kill(&self, process_id: ProcessId, refuses: bool) {
        let node = self.processes.borrow()[process_id].clone();
        self.trace(|| format!("{} is killed", node.process));
        node.alive.set(false);
        self.exec.kill(process_id);
        let mut slots = self.slots.borrow_mut();
        if slots[node.slot] == Some(process_id) {
            slots[node.slot] = None;
        }
        let processes = self.processes.borrow().len();
        let link_from_others = if refuses { LinkState::Refused } else { LinkState::Connected };
        self.links
            .borrow_mut()
            .extend((0..processes).map(|from| ((from, process_id), link_from_others)));
        drop(slots);
        self.relink();
    }

    /// A tool of the conversation ends the process of its node, which is started again soon.
    pub fn end_process_of(self: &Rc<Self>, node: &Node, id: &Scoped<ConversationId>) {
        self.store.count("processes ended by tools");
        self.trace(|| format!("{id} ends {}", node.process));
        self.store.observer.borrow_mut().ends_process(id);
        if let Some(violation) = self.store.observer.borrow_mut().take_violation() {
            self.store.report_violation(violation);
        }
        self.kill(node.process_id, true);
        let (world, slot) = (self.clone(), node.slot);
        self.exec.spawn(None, async move {
            world.exec.sleep(RESTART_MS).await;
            if world.node(slot).is_none() {
                world.start(slot);
            }
        });
    }

    pub fn link(&self, from: ProcessId, to: ProcessId, link: LinkState) {
        self.links.borrow_mut().insert((from, to), link);
        self.relink();
    }

    /// Restores all links between live processes.
    pub fn mend(&self) {
        let processes = self.processes.borrow();
        self.links.borrow_mut().retain(|(_, to), _| !processes[*to].alive.get());
        drop(processes);
        self.relink();
    }

    fn relink(&self) {
        let processes = self.processes.borrow();
        let links = self.links.borrow();
        for from in processes.iter().filter(|node| node.alive.get()) {
            let link = |to: &Rc<Node>| {
                let set_link = links.get(&(from.process_id, to.process_id)).copied();
                let link = set_link.unwrap_or(if to.alive.get() {
                    LinkState::Connected
                } else {
                    LinkState::Lost
                });
                (to.process.clone(), link)
            };
            let links =
                processes.iter().filter(|to| to.process_id != from.process_id).map(link).collect();
            from.set_links(Arc::new(links));
        }
    }

    /// How often the conversation was deleted.
    pub fn life(&self, id: &Scoped<ConversationId>) -> usize {
        self.store.observer.borrow().deletions_of(id)
    }

    /// Checks that a model's reply, which people see, follows from what is in the journal.
    pub fn show(&self, id: &Scoped<ConversationId>, life: usize, state: &State) {
        let last = self.store.events(id).last().map(|event| event.seq);
        if self.life(id) == life && last.is_some_and(|last| last < state.seq) {
            let why = "is shown before the commit that it follows";
            self.store.report_violation(format!("{id}: the reply after {} {why}", state.seq));
        }
    }

    /// Records the start of a tool run, and checks that it is allowed.
    pub fn run(&self, node: &Node, id: &Scoped<ConversationId>, call: &str) {
        let me = node.lease.borrow().me.clone();
        self.trace(|| format!("{me} runs {call} of {id}"));
        if self.store.is_lapsed(&me, self.exec.now()) {
            let acknowledged = self.store.observer.borrow().was_acknowledged(&me, self.exec.now());
            let why = if acknowledged {
                "its lease was renewed by a primary that lost it"
            } else {
                "could not renew its lease"
            };
            self.store.report_violation(format!("{me} starts {call} of {id} and {why}"));
        }
        let mut runs = self.runs.borrow_mut();
        // A conversation that was deleted and created anew has the same calls again.
        let life = self.life(id);
        let count = runs.entry((id.clone(), format!("{call} {life}"))).or_default();
        *count += 1;
        if *count > 1 && runs_once(&self.store.events(id), call) {
            self.store.report_violation(format!("{id}: {call} runs twice"));
        }
    }

    /// Drops all tasks and processes, which refer to the world as it does to them.
    pub fn end(&self) {
        self.exec.clear();
        self.processes.borrow_mut().drain(..).for_each(|node| node.forget());
    }
}
