//! The partition of a conversation, and the set of partitions that a node looks after.

use std::fmt;

use abide_actors::identity::NodeName;
use abide_conversation::{ConversationId, Scoped};
use sha2::{Digest, Sha256};

/// The number of partitions, for ever: keys in the store contain the partition.
pub const PARTITIONS: usize = 256;

/// One of [`PARTITIONS`] parts of about equal size of all conversations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Partition(u8);

impl Partition {
    /// The partition of a conversation's id, or of another name that is stored with conversations:
    /// FNV-1a, folded to eight bits. It must never change.
    pub fn of(name: &str) -> Self {
        let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        let hash = name.bytes().fold(0x811c_9dc5_u32, step);
        let [a, b, c, d] = hash.to_be_bytes();
        Self(a ^ b ^ c ^ d)
    }

    /// Adds the form that keys contain: `p017`.
    pub(crate) fn write_to(self, key: &mut Vec<u8>) {
        let digit = |value: u8| b'0' + value % 10;
        key.extend_from_slice(&[b'p', digit(self.0 / 100), digit(self.0 / 10), digit(self.0)]);
    }

    /// All partitions, in order.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..=u8::MAX).map(Self)
    }

    /// The number of the partition, from 0.
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The word and the bit of a [`PartitionSet`] that stand for this partition.
    fn position(self) -> (usize, u64) {
        (usize::from(self.0) / 64, 1 << (self.0 % 64))
    }
}

impl From<&Scoped<ConversationId>> for Partition {
    fn from(id: &Scoped<ConversationId>) -> Self {
        Self::of(id.as_str())
    }
}

/// The form that keys contain: `p017`.
impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{:03}", self.0)
    }
}

/// A set of partitions: those whose alarms and orphaned conversations a node looks after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionSet([u64; PARTITIONS / 64]);

impl PartitionSet {
    /// All partitions, which is what a single node looks after.
    pub fn all() -> Self {
        Self([u64::MAX; PARTITIONS / 64])
    }

    /// The partitions of `me` among these members, by rendezvous hashing: when a member joins or
    /// leaves, only the partitions that it gets or had change hands. Empty if `me` is not among the
    /// members.
    pub fn of(me: &NodeName, members: &[&NodeName]) -> Self {
        let is_mine = |partition: Partition| {
            let best =
                members.iter().max_by_key(|name| (rendezvous_weight(name, partition), *name));
            best == Some(&me)
        };
        Partition::all().filter(|partition| is_mine(*partition)).collect()
    }

    /// Whether the partition is in the set.
    pub fn contains(&self, partition: Partition) -> bool {
        let (word, bit) = partition.position();
        self.0[word] & bit != 0
    }

    /// The partitions of the set, in order.
    pub fn iter(&self) -> impl Iterator<Item = Partition> {
        Partition::all().filter(|partition| self.contains(*partition))
    }
}

/// The last share of a node, until the members change: a view is made for every renewal, and would
/// hash 256 times for each member.
#[derive(Debug, Default)]
pub struct ShareCache {
    members: Vec<NodeName>,
    share: Option<(NodeName, PartitionSet)>,
}

impl ShareCache {
    /// What [`PartitionSet::of`] returns.
    pub fn share(&mut self, me: &NodeName, members: &[&NodeName]) -> PartitionSet {
        self.share_by(me, members, PartitionSet::of)
    }

    fn share_by(
        &mut self,
        me: &NodeName,
        members: &[&NodeName],
        compute: impl FnOnce(&NodeName, &[&NodeName]) -> PartitionSet,
    ) -> PartitionSet {
        match &self.share {
            Some((node, share))
                if node == me && self.members.iter().eq(members.iter().copied()) =>
            {
                share.clone()
            }
            Some(_) | None => {
                let share = compute(me, members);
                self.members = members.iter().copied().cloned().collect();
                self.share = Some((me.clone(), share.clone()));
                share
            }
        }
    }
}

impl FromIterator<Partition> for PartitionSet {
    fn from_iter<I: IntoIterator<Item = Partition>>(partitions: I) -> Self {
        let mut set = [0; PARTITIONS / 64];
        for partition in partitions {
            let (word, bit) = partition.position();
            set[word] |= bit;
        }
        Self(set)
    }
}

/// The weight of a name for a key: the name with the largest weight gets the key. Nodes of all
/// versions must agree, or two nodes leave a partition to each other.
pub(crate) fn rendezvous_weight(name: impl fmt::Display, key: impl fmt::Display) -> [u8; 8] {
    let digest = Sha256::digest(format!("{name}\n{key}"));
    let mut weight = [0; 8];
    weight.copy_from_slice(&digest[..8]);
    weight
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share_of(me: &str, members: &[&str]) -> PartitionSet {
        let members: Vec<NodeName> = members.iter().map(|name| NodeName::new(*name)).collect();
        PartitionSet::of(&NodeName::new(me), &members.iter().collect::<Vec<_>>())
    }

    #[test]
    fn the_partition_of_a_name_never_changes() {
        let named = ["a", "conv_1", "Ünïcode", ""].map(|name| Partition::of(name).to_string());
        assert_eq!(named, ["p237", "p042", "p196", "p197"]);
    }

    #[test]
    fn shares_are_disjoint_complete_and_about_equal() {
        let members = ["node-1", "node-2", "node-3"];
        let shares = members.map(|me| share_of(me, &members));
        for partition in Partition::all() {
            let owners = shares.iter().filter(|partitions| partitions.contains(partition)).count();
            assert_eq!(owners, 1, "{partition}");
        }
        for partitions in &shares {
            let size = partitions.iter().count();
            assert!((50..130).contains(&size), "{size}");
        }
    }

    #[test]
    fn a_share_is_computed_once_until_the_members_change() {
        let names = ["n1", "n2", "n3"].map(NodeName::new);
        let [n1, n2, n3] = &names;
        let (mut cache, mut computed) = (ShareCache::default(), 0);
        for members in [&[n1, n2, n3][..], &[n1, n2, n3], &[n1, n3], &[n1, n3], &[n1, n2, n3]] {
            let share = cache.share_by(n1, members, |me, members| {
                computed += 1;
                PartitionSet::of(me, members)
            });
            assert_eq!(share, PartitionSet::of(n1, members), "{members:?}");
        }
        assert_eq!(computed, 3);
        assert_ne!(cache.share(n2, &[n1, n2, n3]), cache.share(n1, &[n1, n2, n3]));
    }

    #[test]
    fn nodes_of_all_versions_agree_about_shares() {
        let partitions = share_of("n1", &["n1", "n2", "n3"]);
        let first: Vec<_> = partitions.iter().take(6).map(|it| it.to_string()).collect();
        assert_eq!(first, ["p007", "p015", "p017", "p021", "p022", "p029"]);
    }

    #[test]
    fn a_member_that_goes_moves_only_what_it_had() {
        let three = ["node-1", "node-2", "node-3"];
        let two = ["node-1", "node-3"];
        for me in two {
            let (before, after) = (share_of(me, &three), share_of(me, &two));
            assert!(before.iter().all(|partition| after.contains(partition)));
        }
        assert_eq!(share_of("node-2", &two).iter().count(), 0);
    }
}
