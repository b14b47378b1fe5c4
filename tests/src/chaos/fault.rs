//! The faults of a run, and the names by which they are chosen.

use clap::ValueEnum;

/// A kind of fault, as the command line and the summary name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum FaultKind {
    /// SIGKILL of a node, then a restart under the same name
    Kill,
    /// SIGKILL of all nodes at once
    KillAll,
    /// SIGKILL of the node that holds a conversation in the middle of a turn
    KillHolder,
    /// SIGSTOP of a node, then SIGCONT
    Stop,
    /// a node that gets the CPU for a moment only, again and again
    Starve,
    /// SIGTERM of a node, then a restart
    Terminate,
    /// a node drained by an operator, then restarted
    Drain,
    /// a node replaced by one of the other build
    Swap,
    /// a node's clock jumps by an hour
    ClockJump,
    /// a broken link between nodes
    PeerLink,
    /// a broken link to the clients of a node
    ClientLink,
    /// a broken link between a node and its Redis
    StoreLink,
    /// SIGKILL of a Redis, then a restart; its replica takes over
    StoreKilled,
    /// SIGKILL of a replica
    ReplicaKilled,
    /// SIGSTOP of a Redis, then SIGCONT; its replica takes over
    StoreStopped,
    /// a store's machine loses power, and with it what was not synced
    PowerLost,
    /// a Redis without the replicas that it wants
    RefusesWrites,
    /// a Redis without memory
    StoreFull,
    /// a store's disk is full
    DiskFull,
    /// a slot of a Redis Cluster moves, with its keys, to another primary
    SlotMoved,
}

/// A fault. A number is the index of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Kill(usize),
    KillAll,
    KillHolder,
    Stop(usize),
    Starve(usize),
    Terminate(usize),
    Drain(usize),
    Swap(usize),
    ClockJump(usize, ClockJump),
    Link(Between, LinkFault),
    Store(StoreFault),
}

/// A jump of a clock by an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClockJump {
    Ahead,
    Back,
}

/// A link between a node and Redis, its peers or its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Between {
    Redis(usize),
    Peers(usize),
    Clients(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkFault {
    /// Every connection is closed, once.
    Cut,
    /// Every connection is closed, and new ones are refused.
    Refused,
    /// Bytes are lost in both directions without a sign.
    HalfOpen,
    /// Only answers are lost.
    AnswersLost,
    Slow,
}

/// A fault of the store, in the order in which those of one episode are caused: a dead server can be
/// neither configured nor stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StoreFault {
    SlotMoved,
    RefusesWrites,
    Full,
    DiskFull,
    ReplicaKilled,
    Killed,
    PowerLost,
    Stopped,
}

impl Fault {
    pub(super) fn kind(self) -> FaultKind {
        match self {
            Fault::Kill(_) => FaultKind::Kill,
            Fault::KillAll => FaultKind::KillAll,
            Fault::KillHolder => FaultKind::KillHolder,
            Fault::Stop(_) => FaultKind::Stop,
            Fault::Starve(_) => FaultKind::Starve,
            Fault::Terminate(_) => FaultKind::Terminate,
            Fault::Drain(_) => FaultKind::Drain,
            Fault::Swap(_) => FaultKind::Swap,
            Fault::ClockJump(..) => FaultKind::ClockJump,
            Fault::Link(Between::Redis(_), _) => FaultKind::StoreLink,
            Fault::Link(Between::Peers(_), _) => FaultKind::PeerLink,
            Fault::Link(Between::Clients(_), _) => FaultKind::ClientLink,
            Fault::Store(fault) => fault.kind(),
        }
    }

    /// The node whose process the fault ends or stops.
    fn node(self) -> Option<usize> {
        match self {
            Fault::Kill(node)
            | Fault::Stop(node)
            | Fault::Starve(node)
            | Fault::Terminate(node)
            | Fault::Drain(node)
            | Fault::Swap(node) => Some(node),
            Fault::KillAll
            | Fault::KillHolder
            | Fault::ClockJump(..)
            | Fault::Link(..)
            | Fault::Store(_) => None,
        }
    }

    /// Whether a node drains, which it does cleanly only while it has its store and its peers.
    fn drains(self) -> bool {
        matches!(self, Fault::Terminate(_) | Fault::Drain(_) | Fault::Swap(_))
    }

    /// Whether the fault ends the process of any node.
    fn ends_any_node(self) -> bool {
        matches!(self, Fault::KillAll | Fault::KillHolder)
    }

    /// Whether two faults cannot overlap: they break the same thing in contradictory ways, or healing
    /// one needs what the other breaks. Different faults of the store do overlap.
    pub(super) fn clashes(self, other: Self) -> bool {
        if self.drains() || other.drains() || self == other {
            return true;
        }
        let ends = |one: Self, other: Self| {
            one.ends_any_node() && (other.ends_any_node() || other.node().is_some())
        };
        match (self, other) {
            (Fault::Link(one, _), Fault::Link(other, _)) => one == other,
            (Fault::ClockJump(one, _), Fault::ClockJump(other, _)) => one == other,
            // Keys are moved between servers that are all there.
            (Fault::Store(_), Fault::Store(_)) => {
                [self.kind(), other.kind()].contains(&FaultKind::SlotMoved)
            }
            // The process of an embedded store is the node's.
            (Fault::Store(StoreFault::PowerLost), fault)
            | (fault, Fault::Store(StoreFault::PowerLost)) => {
                fault.node().is_some() || fault.ends_any_node()
            }
            _ if ends(self, other) || ends(other, self) => true,
            _ => self.node().is_some() && self.node() == other.node(),
        }
    }
}

impl StoreFault {
    fn kind(self) -> FaultKind {
        match self {
            StoreFault::SlotMoved => FaultKind::SlotMoved,
            StoreFault::RefusesWrites => FaultKind::RefusesWrites,
            StoreFault::Full => FaultKind::StoreFull,
            StoreFault::DiskFull => FaultKind::DiskFull,
            StoreFault::ReplicaKilled => FaultKind::ReplicaKilled,
            StoreFault::Killed => FaultKind::StoreKilled,
            StoreFault::PowerLost => FaultKind::PowerLost,
            StoreFault::Stopped => FaultKind::StoreStopped,
        }
    }
}
