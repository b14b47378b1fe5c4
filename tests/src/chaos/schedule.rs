//! The schedule of faults, determined by the seed alone.

use std::time::Duration;

use super::redis_setup::RedisKind;
use crate::random::SeededRandom;

/// The number of nodes.
pub(super) const NODES: u64 = 3;

/// A fault. A number is the index of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// SIGKILL, then a restart under the same name.
    Kill(usize),
    /// SIGKILL of all nodes at once.
    KillAll,
    /// SIGSTOP, then SIGCONT.
    Stop(usize),
    /// SIGTERM, then a restart once the node has exited.
    Terminate(usize),
    /// Drained by an operator, then restarted.
    Drain(usize),
    Link(Between, LinkFault),
    Store(RedisFault),
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

/// A fault of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RedisFault {
    /// SIGKILL and a restart; a pair fails over.
    Killed,
    Stopped,
    RefusesWrites,
    Full,
    /// The replica of a pair is killed.
    ReplicaKilled,
}

/// Faults that happen together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Episode {
    /// The time without faults before the episode.
    pub(super) pause: Duration,
    pub(super) faults: Vec<Fault>,
    pub(super) duration: Duration,
    /// How many actors an operator crashes at its beginning.
    pub(super) crashed: u64,
}

/// An endless sequence of episodes.
pub(super) struct Schedule {
    random: SeededRandom,
    kind: RedisKind,
}

impl Schedule {
    pub(super) fn new(random: SeededRandom, kind: RedisKind) -> Self {
        Self { random, kind }
    }

    /// The next episode: one fault, or two that do not clash.
    pub(super) fn episode(&mut self) -> Episode {
        let first = self.fault();
        let mut faults = vec![first];
        if self.random.below(3) == 0 {
            let second = self.fault();
            if !clash(first, second) {
                faults.push(second);
            }
        }
        let duration = match self.random.below(4) {
            // Longer than the lease, so that others take over.
            0 => 3_000 + self.random.below(3_000),
            _ => 100 + self.random.below(1_900),
        };
        Episode {
            pause: Duration::from_millis(200 + self.random.below(2_500)),
            faults,
            duration: Duration::from_millis(duration),
            crashed: if self.random.below(4) == 0 { 1 + self.random.below(3) } else { 0 },
        }
    }

    fn fault(&mut self) -> Fault {
        // Below the number of nodes, which fits.
        let node = self.random.below(NODES) as usize;
        match self.random.below(20) {
            0..=4 => Fault::Kill(node),
            5 => Fault::KillAll,
            6..=8 => Fault::Stop(node),
            9 => Fault::Terminate(node),
            10 => Fault::Drain(node),
            11..=12 => Fault::Link(Between::Peers(node), self.link_fault()),
            13..=14 => Fault::Link(Between::Clients(node), self.link_fault()),
            15..=16 if self.kind == RedisKind::One => {
                Fault::Link(Between::Redis(node), self.link_fault())
            }
            _ => Fault::Store(self.redis_fault()),
        }
    }

    fn link_fault(&mut self) -> LinkFault {
        let all = [
            LinkFault::Cut,
            LinkFault::Refused,
            LinkFault::HalfOpen,
            LinkFault::AnswersLost,
            LinkFault::Slow,
        ];
        all[self.random.below(all.len() as u64) as usize]
    }

    fn redis_fault(&mut self) -> RedisFault {
        match (self.kind, self.random.below(8)) {
            (RedisKind::One, 4) => RedisFault::RefusesWrites,
            (RedisKind::One | RedisKind::Three, 5) => RedisFault::Full,
            (RedisKind::One | RedisKind::Three, 6..) => RedisFault::Stopped,
            (RedisKind::Pair, 5..) => RedisFault::ReplicaKilled,
            _ => RedisFault::Killed,
        }
    }
}

/// Whether two faults cannot overlap: they break the same thing, or healing the first one needs
/// what the second one breaks. A node drains cleanly only while it has its Redis and its peers.
fn clash(one: Fault, other: Fault) -> bool {
    let drains = |fault| matches!(fault, Fault::Terminate(_) | Fault::Drain(_));
    let node_of = |fault| match fault {
        Fault::Kill(node) | Fault::Stop(node) | Fault::Terminate(node) | Fault::Drain(node) => {
            Some(node)
        }
        Fault::KillAll | Fault::Link(..) | Fault::Store(_) => None,
    };
    match (one, other) {
        _ if drains(one) || drains(other) => true,
        (Fault::KillAll, fault) | (fault, Fault::KillAll) => {
            node_of(fault).is_some() || fault == Fault::KillAll
        }
        (Fault::Link(one, _), Fault::Link(other, _)) => one == other,
        (Fault::Store(_), Fault::Store(_)) => true,
        (one, other) => node_of(one).is_some() && node_of(one) == node_of(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn episodes(seed: u64, kind: RedisKind) -> Vec<Episode> {
        let mut schedule = Schedule::new(SeededRandom(seed), kind);
        (0..2_000).map(|_| schedule.episode()).collect()
    }

    #[test]
    fn the_same_seed_makes_the_same_schedule_and_another_one_another() {
        assert_eq!(episodes(1, RedisKind::One), episodes(1, RedisKind::One));
        assert_ne!(episodes(1, RedisKind::One), episodes(2, RedisKind::One));
    }

    #[test]
    fn every_fault_comes_and_no_place_breaks_twice_at_once() {
        let all = episodes(7, RedisKind::One);
        for expected in [Fault::Kill(0), Fault::KillAll, Fault::Stop(2), Fault::Drain(1)] {
            assert!(all.iter().any(|episode| episode.faults.contains(&expected)), "{expected:?}");
        }
        for episode in &all {
            if let [one, other] = episode.faults[..] {
                assert!(!clash(one, other) && !clash(other, one), "{episode:?}");
            }
        }
    }

    #[test]
    fn what_a_kind_of_redis_does_not_have_does_not_break() {
        let links = |episode: &Episode| {
            let redis = |fault: &Fault| matches!(fault, Fault::Link(Between::Redis(_), _));
            episode.faults.iter().any(redis)
        };
        assert!(!episodes(3, RedisKind::Pair).iter().any(links));
        let replica = Fault::Store(RedisFault::ReplicaKilled);
        let has = |kind| episodes(3, kind).iter().any(|it| it.faults.contains(&replica));
        assert_eq!((has(RedisKind::One), has(RedisKind::Pair)), (false, true));
    }
}
