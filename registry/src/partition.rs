//! Which part of the store a conversation belongs to, and which parts a node looks after.

use std::fmt;

use abide_conversation::ConversationId;

/// How many there are, for ever: keys in the store are named after them.
pub const PARTITIONS: usize = 256;

/// One of [`PARTITIONS`] equal parts of all conversations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Partition(u8);

impl Partition {
    /// The partition of a conversation, or of another name that is kept with one: FNV-1a, folded to
    /// eight bits. It must never change.
    pub fn of(name: &str) -> Self {
        let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        let hash = name.bytes().fold(0x811c_9dc5_u32, step);
        let [a, b, c, d] = hash.to_be_bytes();
        Self(a ^ b ^ c ^ d)
    }

    /// All of them, in order.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..=u8::MAX).map(Self)
    }
}

impl From<&ConversationId> for Partition {
    fn from(id: &ConversationId) -> Self {
        Self::of(id.as_str())
    }
}

/// As keys name it: `p017`.
impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{:03}", self.0)
    }
}

/// The partitions whose alarms and abandoned turns a node looks after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share(Box<[bool; PARTITIONS]>);

impl Share {
    /// Everything, as the only node has it.
    pub fn all() -> Self {
        Self(Box::new([true; PARTITIONS]))
    }

    /// The share of `me` among these names, by rendezvous: when a member comes or goes, only what it
    /// gets or had moves. Nothing, if `me` is not among them.
    pub fn of(me: &str, members: &[&str]) -> Self {
        let members: Vec<(u64, &str)> = members.iter().map(|name| (hash(name), *name)).collect();
        let mine = |Partition(number): Partition| {
            let wanting = members.iter().map(|(hash, name)| (weight(*hash, number.into()), *name));
            wanting.max().is_some_and(|(_, best)| best == me)
        };
        let mut share = Box::new([false; PARTITIONS]);
        for (place, partition) in share.iter_mut().zip(Partition::all()) {
            *place = mine(partition);
        }
        Self(share)
    }

    /// Whether it is among them.
    pub fn contains(&self, partition: Partition) -> bool {
        self.0[usize::from(partition.0)]
    }

    /// Those that it has, in order.
    pub fn partitions(&self) -> impl Iterator<Item = Partition> {
        Partition::all().filter(|partition| self.contains(*partition))
    }
}

/// How much the name with this hash wants the thing with that one; the one that wants it most gets
/// it. Nodes of all versions must agree, and a node asks thousands of times a second.
pub(crate) fn weight(name: u64, of: u64) -> u64 {
    mixed(name ^ mixed(of))
}

/// FNV-1a.
pub(crate) fn hash(name: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

/// The finalizer of splitmix64: names that differ in their last digit only come out far apart.
fn mixed(bits: u64) -> u64 {
    let bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_partition_of_a_name_never_changes() {
        let named = ["a", "conv_1", "Ünïcode", ""].map(|name| Partition::of(name).to_string());
        assert_eq!(named, ["p237", "p042", "p196", "p197"]);
    }

    #[test]
    fn shares_are_disjoint_whole_and_about_equal() {
        let members = ["node-1", "node-2", "node-3"];
        let shares = members.map(|me| Share::of(me, &members));
        for partition in Partition::all() {
            let owners = shares.iter().filter(|share| share.contains(partition)).count();
            assert_eq!(owners, 1, "{partition}");
        }
        for share in &shares {
            let size = share.partitions().count();
            assert!((50..130).contains(&size), "{size}");
        }
    }

    #[test]
    fn a_member_that_goes_moves_only_what_it_had() {
        let three = ["node-1", "node-2", "node-3"];
        let two = ["node-1", "node-3"];
        for me in two {
            let (before, after) = (Share::of(me, &three), Share::of(me, &two));
            assert!(before.partitions().all(|partition| after.contains(partition)));
        }
        assert_eq!(Share::of("node-2", &two).partitions().count(), 0);
    }
}
