//! The partitions of each node, computed once for all schedules: hashing them at every new view
//! would take most of a schedule's time.

use std::sync::OnceLock;

use abide_actors::identity::NodeName;
use abide_registry::partition::PartitionSet;

use crate::world::NODES;

/// [`PartitionSet::of`] for nodes that are called `n0`, `n1` and so on.
pub fn partitions_of(me: &NodeName, members: &[&NodeName]) -> PartitionSet {
    static KNOWN: [[OnceLock<PartitionSet>; 1 << NODES]; NODES] =
        [const { [const { OnceLock::new() }; 1 << NODES] }; NODES];
    let slot = |name: &NodeName| usize::from(name.as_str().as_bytes()[1] - b'0');
    let among = members.iter().fold(0, |among, name| among | 1 << slot(name));
    KNOWN[slot(me)][among].get_or_init(|| PartitionSet::of(me, members)).clone()
}
