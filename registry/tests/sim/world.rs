//! Everything that there is: time, the store, the network, the processes, and their story.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use abide_actors::journal::Holder;
use abide_conversation::ConversationId;
use abide_registry::peers::LinkState;
use abide_registry::placement::Policy;

use crate::broken::Broken;
use crate::chance::Chance;
use crate::exec::{Exec, LifeId};
use crate::node::Node;
use crate::store::{Store, runs_once};

/// How long a silent node is still believed alive. Shorter than in production, so that a schedule
/// has many of them.
pub const LEASE_MS: u64 = 2_000;
/// How many nodes there are.
pub const NODES: usize = 3;

/// What a client was promised.
pub struct Promise {
    pub id: ConversationId,
    pub text: Option<String>,
    pub seq: u64,
}

pub struct World {
    pub exec: Rc<Exec>,
    pub store: Store,
    pub broken: Option<Broken>,
    pub policy: Policy,
    pub seed: u64,
    /// All processes that ever were.
    pub lives: RefCell<Vec<Rc<Node>>>,
    /// The process of each node, if it runs.
    pub slots: RefCell<[Option<LifeId>; NODES]>,
    /// What is out of order between two processes.
    ways: RefCell<BTreeMap<(LifeId, LifeId), LinkState>>,
    /// How many calls of a hundred between nodes have an accident.
    pub rough: Cell<u64>,
    chance: RefCell<Chance>,
    pub runs: RefCell<BTreeMap<(ConversationId, String), u32>>,
    pub promises: RefCell<Vec<Promise>>,
    pub numbers: Cell<u64>,
    /// The story so far, where somebody wants to read it.
    pub story: Option<RefCell<Vec<String>>>,
}

impl World {
    pub fn new(seed: u64, broken: Option<Broken>, told: bool) -> Rc<Self> {
        let policies = [Policy::Local, Policy::Rendezvous, Policy::LeastLoaded];
        Rc::new(Self {
            exec: Rc::new(Exec::default()),
            store: Store::new(broken),
            broken,
            policy: policies[usize::try_from(seed % 3).unwrap()],
            seed,
            lives: RefCell::default(),
            slots: RefCell::default(),
            ways: RefCell::default(),
            rough: Cell::default(),
            chance: RefCell::new(Chance::new(seed, 1)),
            runs: RefCell::default(),
            promises: RefCell::default(),
            numbers: Cell::default(),
            story: told.then(RefCell::default),
        })
    }

    /// A number for the network.
    pub fn below(&self, bound: u64) -> u64 {
        self.chance.borrow_mut().below(bound)
    }

    pub fn percent(&self, percent: u64) -> bool {
        self.chance.borrow_mut().percent(percent)
    }

    pub fn number(&self) -> u64 {
        self.numbers.set(self.numbers.get() + 1);
        self.numbers.get()
    }

    /// Adds a line to the story.
    pub fn tell(&self, line: impl FnOnce() -> String) {
        if let Some(story) = &self.story {
            story.borrow_mut().push(format!("{:>6} {}", self.exec.now(), line()));
        }
    }

    pub fn node(&self, slot: usize) -> Option<Rc<Node>> {
        let life = self.slots.borrow()[slot]?;
        Some(self.lives.borrow()[life].clone())
    }

    pub fn running(&self) -> Vec<Rc<Node>> {
        (0..NODES).filter_map(|slot| self.node(slot)).collect()
    }

    pub fn process(&self, process: &str) -> Option<Rc<Node>> {
        self.lives.borrow().iter().find(|node| node.process == process).cloned()
    }

    /// Starts a process by the name of a node; one that goes by it already goes on.
    pub fn start(self: &Rc<Self>, slot: usize) {
        let life = self.lives.borrow().len();
        let node = Node::new(self, life, slot);
        self.lives.borrow_mut().push(node.clone());
        self.slots.borrow_mut()[slot] = Some(life);
        self.tell(|| format!("{} begins", node.process));
        self.relink();
        node.begin();
    }

    /// Ends a process without a word; whoever dials it is refused, or hears nothing.
    pub fn kill(&self, life: LifeId, refuses: bool) {
        let node = self.lives.borrow()[life].clone();
        self.tell(|| format!("{} is killed", node.process));
        node.alive.set(false);
        self.exec.kill(life);
        let mut slots = self.slots.borrow_mut();
        if slots[node.slot] == Some(life) {
            slots[node.slot] = None;
        }
        let lives = self.lives.borrow().len();
        let seen = if refuses { LinkState::Refused } else { LinkState::Connected };
        self.ways.borrow_mut().extend((0..lives).map(|from| ((from, life), seen)));
        drop(slots);
        self.relink();
    }

    pub fn link(&self, from: LifeId, to: LifeId, link: LinkState) {
        self.ways.borrow_mut().insert((from, to), link);
        self.relink();
    }

    /// Every way between processes that live is good again.
    pub fn mend(&self) {
        let lives = self.lives.borrow();
        self.ways.borrow_mut().retain(|(_, to), _| !lives[*to].alive.get());
        drop(lives);
        self.relink();
    }

    fn relink(&self) {
        let lives = self.lives.borrow();
        let ways = self.ways.borrow();
        for from in lives.iter().filter(|node| node.alive.get()) {
            let way = |to: &Rc<Node>| {
                let known = ways.get(&(from.life, to.life)).copied();
                let link = known.unwrap_or(if to.alive.get() {
                    LinkState::Connected
                } else {
                    LinkState::Lost
                });
                (to.process.clone(), link)
            };
            let links = lives.iter().filter(|to| to.life != from.life).map(way).collect();
            from.set_links(Arc::new(links));
        }
    }

    /// A tool begins to run.
    pub fn run(&self, node: &Node, id: &ConversationId, call: &str) {
        let me = node.lease.borrow().me.clone();
        self.tell(|| format!("{me} runs {call} of {id}"));
        if self.is_lapsed(&me) {
            self.store.wrong(format!("{me} starts {call} of {id} and could not renew its lease"));
        }
        let mut runs = self.runs.borrow_mut();
        let count = runs.entry((id.clone(), call.to_owned())).or_default();
        *count += 1;
        if *count > 1 && runs_once(&self.store.events(id), call) {
            self.store.wrong(format!("{id}: {call} runs twice"));
        }
    }

    /// Whether others may believe it dead since it was silent too long.
    fn is_lapsed(&self, who: &Holder) -> bool {
        let register = self.store.register.borrow();
        let silence = register.silence(who, self.exec.now());
        silence.is_some_and(|silent| silent > LEASE_MS) || register.has_silenced(who)
    }

    /// Forgets everything: what runs knows the world, which knows what runs.
    pub fn end(&self) {
        self.exec.clear();
        self.lives.borrow_mut().drain(..).for_each(|node| node.forget());
    }
}
