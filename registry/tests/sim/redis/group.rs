//! A primary and its replicas: who has which transaction, and the faults of servers.

use ::redis::Value;
use abide_registry::store::redis::Durability;

use super::server::{Patches, Server};

/// The wall-clock time at which the simulation starts.
const BEGINNING_MS: i64 = 1_800_000_000_000;
pub const REPLICAS: usize = 2;

/// A fault of the servers, which passes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The primary's process ends. It starts again with what its durability promises; with replicas,
    /// the most advanced one takes over.
    Crash { down_ms: u64 },
    /// The primary is cut off from its replicas, of which one takes over, and goes on serving for a
    /// while. Happens with replicas only.
    Split { after_ms: u64, serves_ms: u64 },
    /// A replica receives nothing, or both do. Happens with replicas only.
    CutReplicas { both: bool, ms: u64 },
    /// The primary answers nobody.
    Hang { ms: u64 },
    /// The primary's memory is full.
    Fill { ms: u64 },
    /// The servers' clock is set back.
    ClockBack { ms: i64 },
    /// An operator flushes the scripts.
    ForgetScripts,
}

#[derive(Debug, Default)]
struct Replica {
    /// The number of transactions that it has.
    position: usize,
    cut: bool,
}

/// Identifies the process of a server; a connection ends with it.
pub type ServerId = u64;

pub struct Group {
    durability: Durability,
    primary: Server,
    id: ServerId,
    pub is_up: bool,
    pub hung_until: u64,
    /// The former primary, as long as it serves.
    former: Option<(ServerId, Server)>,
    replicas: [Replica; REPLICAS],
    /// How long a transaction takes to the replicas.
    delay_ms: u64,
    /// The transactions that the primary had when it became the primary.
    inherited: usize,
    clock_offset_ms: i64,
    /// Whether WAIT answers at once that all replicas have everything: a mutation.
    pub lies_about_replicas: bool,
    /// Whether WAIT does so after a read: a mutation.
    pub lies_about_reads: bool,
}

impl Group {
    pub fn new(durability: Durability, delay_ms: u64, patches: Patches) -> Self {
        Self {
            durability,
            primary: Server::new(patches),
            id: 1,
            is_up: true,
            hung_until: 0,
            former: None,
            replicas: Default::default(),
            delay_ms,
            inherited: 0,
            clock_offset_ms: 0,
            lies_about_replicas: false,
            lies_about_reads: false,
        }
    }

    pub fn is_replicated(&self) -> bool {
        matches!(self.durability, Durability::Replicas(_))
    }

    pub fn primary(&self) -> &Server {
        &self.primary
    }

    /// The process of the primary, as the sentinels name it.
    pub fn primary_id(&self) -> ServerId {
        self.id
    }

    /// The process with this id, if it serves.
    pub fn server(&mut self, id: ServerId) -> Option<&mut Server> {
        if id == self.id && self.is_up {
            return Some(&mut self.primary);
        }
        self.former.as_mut().filter(|(former, _)| *former == id).map(|(_, server)| server)
    }

    /// Carries a command out on a process, if it serves.
    pub fn execute(&mut self, id: ServerId, words: &[Vec<u8>], now: u64) -> Option<Value> {
        let clock_ms = self.clock_ms(now);
        Some(self.server(id)?.execute(words, now, clock_ms))
    }

    /// Carries a command out on the primary whatever its state.
    pub fn execute_always(&mut self, words: &[Vec<u8>], now: u64) -> Value {
        let clock_ms = self.clock_ms(now);
        self.primary.execute(words, now, clock_ms)
    }

    fn clock_ms(&self, now: u64) -> i64 {
        BEGINNING_MS + self.clock_offset_ms + i64::try_from(now).unwrap()
    }

    /// How many replicas have the first `position` transactions of a process.
    pub fn acknowledgements(&mut self, id: ServerId, position: usize, now: u64) -> usize {
        if self.lies_about_replicas {
            return REPLICAS;
        }
        if id != self.id {
            return 0;
        }
        self.replicate(now);
        self.replicas.iter().filter(|replica| replica.position >= position).count()
    }

    /// Whether the primary's transaction at this index survives what the durability promises.
    pub fn is_durable(&mut self, index: usize, now: u64) -> bool {
        let Durability::Replicas(wanted) = self.durability else { return true };
        self.replicate(now);
        let have = self.replicas.iter().filter(|replica| replica.position > index).count();
        index < self.inherited || have >= usize::from(wanted.get())
    }

    fn replicate(&mut self, now: u64) {
        let arrived = |transaction: &super::Transaction| transaction.at + self.delay_ms <= now;
        let position = self.primary.log.iter().rposition(arrived).map_or(0, |last| last + 1);
        for replica in self.replicas.iter_mut().filter(|replica| !replica.cut) {
            replica.position = replica.position.max(position);
        }
    }

    /// The primary's process ends; its connections end with it.
    pub fn crash(&mut self, now: u64) {
        self.replicate(now);
        self.is_up = false;
        self.hung_until = 0;
    }

    /// The primary starts again with everything that it had.
    pub fn restart(&mut self) {
        self.primary = self.primary.successor(self.primary.log.len());
        self.id += 1;
        self.is_up = true;
    }

    /// Cuts the first replicas off from the primary.
    pub fn cut_replicas(&mut self, count: usize, now: u64) {
        self.replicate(now);
        self.replicas[..count].iter_mut().for_each(|replica| replica.cut = true);
    }

    pub fn relink_replicas(&mut self) {
        self.replicas.iter_mut().for_each(|replica| replica.cut = false);
    }

    /// The most advanced replica takes over; `serves` says whether the former primary goes on.
    pub fn fail_over(&mut self, serves: bool) {
        let position = self.replicas.iter().map(|replica| replica.position).max().unwrap_or(0);
        let mut successor = self.primary.successor(position);
        successor.limits.full = false;
        let former = std::mem::replace(&mut self.primary, successor);
        self.former = serves.then_some((self.id, former));
        self.id += 1;
        (self.is_up, self.hung_until, self.inherited) = (true, 0, position);
        self.replicas = [(); REPLICAS].map(|()| Replica { position, cut: false });
    }

    /// The former primary becomes a replica, and then ends its connections.
    pub fn demote_former(&mut self) {
        if let Some((_, former)) = &mut self.former {
            former.limits.read_only = true;
        }
    }

    /// Whether nodes may read from a primary that is none any more.
    pub fn has_former(&self) -> bool {
        self.former.is_some()
    }

    pub fn end_former(&mut self) {
        self.former = None;
    }

    pub fn fill(&mut self, full: bool) {
        self.primary.limits.full = full;
    }

    pub fn set_clock_back(&mut self, ms: i64) {
        self.clock_offset_ms -= ms;
    }

    pub fn forget_scripts(&mut self) {
        self.primary.forget_scripts();
    }

    /// Ends all faults but a crash.
    pub fn mend(&mut self) {
        self.hung_until = 0;
        self.fill(false);
        self.relink_replicas();
        self.former = None;
    }
}
