//! Who listens to a conversation and who publishes what happens in it: for each conversation one
//! process of the cluster knows, and brings the two together.

use std::collections::{BTreeSet, HashMap};

use abide_conversation::{ConversationId, Scoped};

use crate::member::ProcessId;
use crate::partition::{Partition, rendezvous_weight};

/// Which process keeps the directory's entries of each partition: the same in the view of every node
/// that sees the same processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DirectoryPlacement {
    me: ProcessId,
    others: BTreeSet<ProcessId>,
    by_partition: Vec<ProcessId>,
}

impl DirectoryPlacement {
    /// Divides the partitions among this process and others that are connected. `None` if there is
    /// no other: then all listeners are here.
    pub(super) fn new(me: &ProcessId, others: &BTreeSet<ProcessId>) -> Option<Self> {
        if others.is_empty() {
            return None;
        }
        let keeper = |partition: Partition| {
            let all = others.iter().chain([me]);
            all.max_by_key(|process| (rendezvous_weight(process, partition), *process))
        };
        let by_partition = Partition::all().filter_map(keeper).cloned().collect();
        Some(Self { me: me.clone(), others: others.clone(), by_partition })
    }

    /// The other processes.
    pub(super) fn others(&self) -> &BTreeSet<ProcessId> {
        &self.others
    }

    /// This process.
    pub(super) fn me(&self) -> &ProcessId {
        &self.me
    }

    /// The process that keeps a conversation's entry.
    pub(super) fn keeper(&self, id: &Scoped<ConversationId>) -> &ProcessId {
        self.by_partition.get(Partition::from(id).index()).unwrap_or(&self.me)
    }
}

/// The entries that this process keeps.
#[derive(Debug, Default)]
pub(super) struct Directory(HashMap<Scoped<ConversationId>, Entry>);

#[derive(Debug, Default)]
struct Entry {
    listeners: BTreeSet<ProcessId>,
    publishers: BTreeSet<ProcessId>,
}

impl Directory {
    /// Adds a process with listeners. Returns the others that publish.
    pub(super) fn add_listener(
        &mut self,
        id: &Scoped<ConversationId>,
        process: &ProcessId,
    ) -> Vec<ProcessId> {
        let entry = self.0.entry(id.clone()).or_default();
        entry.listeners.insert(process.clone());
        others(&entry.publishers, process)
    }

    /// Adds a process that publishes. Returns the others that have listeners.
    pub(super) fn add_publisher(
        &mut self,
        id: &Scoped<ConversationId>,
        process: &ProcessId,
    ) -> Vec<ProcessId> {
        let entry = self.0.entry(id.clone()).or_default();
        entry.publishers.insert(process.clone());
        others(&entry.listeners, process)
    }

    pub(super) fn remove_listener(&mut self, id: &Scoped<ConversationId>, process: &ProcessId) {
        self.change(id, |entry| entry.listeners.remove(process));
    }

    pub(super) fn remove_publisher(&mut self, id: &Scoped<ConversationId>, process: &ProcessId) {
        self.change(id, |entry| entry.publishers.remove(process));
    }

    /// All other processes that publish what this one listens to.
    pub(super) fn publishers_for(
        &self,
        listener: &ProcessId,
    ) -> Vec<(Scoped<ConversationId>, ProcessId)> {
        let heard = self.0.iter().filter(|(_, entry)| entry.listeners.contains(listener));
        let pairs = |(id, entry): (&Scoped<ConversationId>, &Entry)| {
            let publishers = others(&entry.publishers, listener);
            publishers.into_iter().map(|publisher| (id.clone(), publisher)).collect::<Vec<_>>()
        };
        heard.flat_map(pairs).collect()
    }

    /// Removes all that a process has registered.
    pub(super) fn forget(&mut self, process: &ProcessId) {
        self.0.retain(|_, entry| {
            entry.listeners.remove(process);
            entry.publishers.remove(process);
            !entry.is_empty()
        });
    }

    /// The number of conversations that have an entry.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    fn change(&mut self, id: &Scoped<ConversationId>, change: impl FnOnce(&mut Entry) -> bool) {
        let Some(entry) = self.0.get_mut(id) else { return };
        change(entry);
        if entry.is_empty() {
            self.0.remove(id);
        }
    }
}

impl Entry {
    fn is_empty(&self) -> bool {
        self.listeners.is_empty() && self.publishers.is_empty()
    }
}

fn others(all: &BTreeSet<ProcessId>, process: &ProcessId) -> Vec<ProcessId> {
    all.iter().filter(|other| *other != process).cloned().collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn process(name: &str) -> ProcessId {
        ProcessId::new(name)
    }

    fn id(text: &str) -> Scoped<ConversationId> {
        Scoped::parse(text).unwrap()
    }

    #[test]
    fn whoever_registers_second_learns_of_the_first() {
        let mut directory = Directory::default();
        let (x, [a, b, c]) = (id("x"), ["a", "b", "c"].map(process));
        assert_eq!(directory.add_listener(&x, &a), []);
        assert_eq!(directory.add_publisher(&x, &a), [], "a process tells itself nothing");
        assert_eq!(directory.add_publisher(&x, &b), std::slice::from_ref(&a));
        assert_eq!(directory.add_listener(&x, &c), [a.clone(), b.clone()]);
        assert_eq!(directory.add_listener(&id("acme/x"), &c), [], "another tenant's");
        directory.remove_publisher(&x, &a);
        directory.remove_listener(&x, &a);
        assert_eq!(directory.add_publisher(&x, &a), std::slice::from_ref(&c));
        directory.forget(&c);
        directory.forget(&b);
        assert_eq!(directory.add_listener(&x, &b), std::slice::from_ref(&a));
        directory.forget(&a);
        directory.remove_listener(&x, &b);
        assert!(directory.0.is_empty(), "{directory:?}");
    }

    #[test]
    fn all_nodes_agree_on_the_keeper_and_one_that_leaves_moves_only_its_own() {
        let names = ["a", "b", "c"].map(process);
        let seen_by = |me: usize, present: &[usize]| {
            let others = present.iter().filter(|n| **n != me).map(|n| names[*n].clone()).collect();
            DirectoryPlacement::new(&names[me], &others).unwrap()
        };
        let (all, two) = (seen_by(0, &[0, 1, 2]), seen_by(1, &[0, 1]));
        let mut moved = 0;
        for n in 0..300 {
            let x = id(&format!("conv_{n}"));
            let keeper = all.keeper(&x);
            assert_eq!(keeper, seen_by(2, &[0, 1, 2]).keeper(&x));
            moved += usize::from(two.keeper(&x) != keeper);
            assert!(*keeper == names[2] || two.keeper(&x) == keeper);
        }
        assert!((50..150).contains(&moved), "{moved} of 300");
        assert_eq!(DirectoryPlacement::new(&names[0], &BTreeSet::new()), None);
    }
}
