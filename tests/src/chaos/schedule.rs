//! The schedule of faults, determined by the seed and by what a run can break.

use std::time::Duration;

use clap::ValueEnum;

use super::fault::{Between, ClockJump, Fault, FaultKind, LinkFault, StoreFault};
use super::store_setup::StoreKind;
use crate::random::SeededRandom;

/// Faults at once: more would leave nothing that could go on.
const MAX_FAULTS: usize = 4;

/// Faults that happen together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Episode {
    /// The time without faults before the episode.
    pub(super) pause: Duration,
    /// In the order in which they are caused.
    pub(super) faults: Vec<Fault>,
    pub(super) duration: Duration,
    /// How many actors an operator crashes at its beginning.
    pub(super) crashed: u64,
}

/// What a run can break.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    pub(super) kind: StoreKind,
    /// The kinds of fault that were chosen; all of them if empty.
    pub(super) chosen: Vec<FaultKind>,
    pub(super) has_previous_build: bool,
    pub(super) has_faketime: bool,
}

impl Scope {
    /// How often a kind of fault happens, compared with the others; 0 if it cannot.
    fn weight(&self, kind: FaultKind) -> u64 {
        if !self.chosen.is_empty() && !self.chosen.contains(&kind) {
            return 0;
        }
        let is = |kinds: &[StoreKind]| u64::from(kinds.contains(&self.kind));
        let has_redis = u64::from(self.kind != StoreKind::Embedded);
        match kind {
            FaultKind::Kill => 5,
            FaultKind::Stop => 3,
            FaultKind::Starve | FaultKind::ClientLink => 2,
            FaultKind::Terminate => 1,
            FaultKind::KillAll | FaultKind::Drain => has_redis,
            FaultKind::KillHolder | FaultKind::PeerLink => 2 * has_redis,
            FaultKind::Swap => 2 * u64::from(self.has_previous_build),
            // An embedded store has no other clock than its node.
            FaultKind::ClockJump => has_redis * u64::from(self.has_faketime),
            FaultKind::StoreLink => 2 * is(&[StoreKind::One]),
            FaultKind::StoreKilled => 2 * has_redis,
            FaultKind::ReplicaKilled => 2 * is(&[StoreKind::Pair, StoreKind::Replicated]),
            FaultKind::StoreStopped => has_redis,
            FaultKind::PowerLost => 2,
            FaultKind::RefusesWrites => is(&[StoreKind::One]),
            FaultKind::StoreFull => has_redis,
            FaultKind::DiskFull => 2 * is(&[StoreKind::Embedded]),
            FaultKind::SlotMoved => 2 * is(&[StoreKind::Three]),
        }
    }

    fn weights(&self) -> impl Iterator<Item = (FaultKind, u64)> + '_ {
        FaultKind::value_variants().iter().map(|kind| (*kind, self.weight(*kind)))
    }

    /// Whether this kind of fault can happen.
    pub(super) fn has(&self, kind: FaultKind) -> bool {
        self.weight(kind) > 0
    }

    /// Whether anything can happen at all.
    pub(super) fn has_faults(&self) -> bool {
        self.weights().any(|(_, weight)| weight > 0)
    }
}

/// An endless sequence of episodes.
pub(super) struct Schedule {
    random: SeededRandom,
    scope: Scope,
}

impl Schedule {
    /// The schedule of a scope that has faults.
    pub(super) fn new(random: SeededRandom, scope: Scope) -> Self {
        Self { random, scope }
    }

    /// The next episode: one fault, or several that do not clash.
    pub(super) fn episode(&mut self) -> Episode {
        let mut faults = vec![self.fault()];
        while faults.len() < MAX_FAULTS && self.random.below(5) < 2 {
            let another = self.fault();
            if !faults.iter().any(|fault| fault.clashes(another)) {
                faults.push(another);
            }
        }
        faults.sort_by_key(|fault| match fault {
            Fault::Store(fault) => (0, Some(*fault)),
            _ => (1, None),
        });
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
        let total: u64 = self.scope.weights().map(|(_, weight)| weight).sum();
        let mut choice = self.random.below(total);
        let chosen = self.scope.weights().find(|(_, weight)| {
            let is_chosen = choice < *weight;
            choice = choice.saturating_sub(*weight);
            is_chosen
        });
        let (kind, _) = chosen.expect("the choice is below the sum of the weights");
        // Below the number of nodes, which fits.
        let node = self.random.below(self.scope.kind.nodes()) as usize;
        match kind {
            FaultKind::Kill => Fault::Kill(node),
            FaultKind::KillAll => Fault::KillAll,
            FaultKind::KillHolder => Fault::KillHolder,
            FaultKind::Stop => Fault::Stop(node),
            FaultKind::Starve => Fault::Starve(node),
            FaultKind::Terminate => Fault::Terminate(node),
            FaultKind::Drain => Fault::Drain(node),
            FaultKind::Swap => Fault::Swap(node),
            FaultKind::ClockJump => Fault::ClockJump(node, self.clock_jump()),
            FaultKind::PeerLink => Fault::Link(Between::Peers(node), self.link_fault()),
            FaultKind::ClientLink => Fault::Link(Between::Clients(node), self.link_fault()),
            FaultKind::StoreLink => Fault::Link(Between::Redis(node), self.link_fault()),
            FaultKind::StoreKilled => Fault::Store(StoreFault::Killed),
            FaultKind::ReplicaKilled => Fault::Store(StoreFault::ReplicaKilled),
            FaultKind::StoreStopped => Fault::Store(StoreFault::Stopped),
            FaultKind::PowerLost => Fault::Store(StoreFault::PowerLost),
            FaultKind::RefusesWrites => Fault::Store(StoreFault::RefusesWrites),
            FaultKind::StoreFull => Fault::Store(StoreFault::Full),
            FaultKind::DiskFull => Fault::Store(StoreFault::DiskFull),
            FaultKind::SlotMoved => Fault::Store(StoreFault::SlotMoved),
        }
    }

    fn clock_jump(&mut self) -> ClockJump {
        if self.random.below(2) == 0 { ClockJump::Ahead } else { ClockJump::Back }
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
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn scope(kind: StoreKind) -> Scope {
        Scope { kind, chosen: Vec::new(), has_previous_build: true, has_faketime: true }
    }

    fn episodes(seed: u64, scope: Scope) -> Vec<Episode> {
        let mut schedule = Schedule::new(SeededRandom(seed), scope);
        (0..10_000).map(|_| schedule.episode()).collect()
    }

    fn kinds(scope: Scope) -> BTreeSet<FaultKind> {
        let episodes = episodes(7, scope);
        episodes.iter().flat_map(|episode| &episode.faults).map(|fault| fault.kind()).collect()
    }

    #[test]
    fn the_same_seed_makes_the_same_schedule_and_another_one_another() {
        let one = || scope(StoreKind::One);
        assert_eq!(episodes(1, one()), episodes(1, one()));
        assert_ne!(episodes(1, one()), episodes(2, one()));
    }

    #[test]
    fn every_kind_of_fault_comes_over_some_kind_of_store() {
        let all = StoreKind::value_variants().iter().flat_map(|kind| kinds(scope(*kind)));
        let expected: BTreeSet<FaultKind> = FaultKind::value_variants().iter().copied().collect();
        assert_eq!(all.collect::<BTreeSet<_>>(), expected);
    }

    #[test]
    fn what_a_kind_of_store_does_not_have_does_not_break() {
        let pair = kinds(scope(StoreKind::Pair));
        assert!(pair.contains(&FaultKind::ReplicaKilled) && !pair.contains(&FaultKind::SlotMoved));
        let embedded = kinds(scope(StoreKind::Embedded));
        for kind in [FaultKind::PeerLink, FaultKind::StoreKilled, FaultKind::Drain] {
            assert!(!embedded.contains(&kind), "{kind:?}");
        }
        let alone = Scope { has_previous_build: false, ..scope(StoreKind::One) };
        assert!(!kinds(alone).contains(&FaultKind::Swap));
    }

    #[test]
    fn only_the_chosen_kinds_come() {
        let chosen = vec![FaultKind::Kill, FaultKind::SlotMoved];
        let one = Scope { chosen: chosen.clone(), ..scope(StoreKind::One) };
        assert_eq!(kinds(one), [FaultKind::Kill].into());
        let three = Scope { chosen, ..scope(StoreKind::Three) };
        assert_eq!(kinds(three).len(), 2);
        let none = Scope { chosen: vec![FaultKind::SlotMoved], ..scope(StoreKind::One) };
        assert!(!none.has_faults());
    }

    #[test]
    fn faults_of_the_store_overlap_in_the_order_in_which_they_can_be_caused() {
        let store = |fault: &Fault| match fault {
            Fault::Store(fault) => Some(*fault),
            _ => None,
        };
        let all = episodes(7, scope(StoreKind::Pair));
        let overlaps: Vec<Vec<StoreFault>> =
            all.iter().map(|episode| episode.faults.iter().filter_map(store).collect()).collect();
        assert!(overlaps.iter().any(|faults| faults.len() > 2), "three at once");
        let failover = [StoreFault::Killed, StoreFault::Stopped];
        assert!(overlaps.iter().any(|faults| *faults == failover), "a kill and a stop");
        assert!(overlaps.iter().all(|faults| faults.is_sorted()));
    }

    #[test]
    fn no_two_faults_of_an_episode_clash() {
        for episode in episodes(7, scope(StoreKind::One)) {
            for (index, one) in episode.faults.iter().enumerate() {
                for other in &episode.faults[index + 1..] {
                    assert!(!one.clashes(*other) && !other.clashes(*one), "{episode:?}");
                }
            }
        }
    }
}
