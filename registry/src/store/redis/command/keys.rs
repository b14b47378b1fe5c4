//! The names of keys and of their parts.

use std::fmt::Write;

use abide_actors::journal::ResponseScope;
use abide_conversation::state::PendingCall;
use abide_conversation::{AgentName, CallId, ConversationId, Scoped, Tenant, Timestamp};

use super::super::super::paging::InboxKey;
use crate::partition::Partition;

/// The hash tag of keys that one script may touch together: they live in one slot of a Redis
/// cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::store::redis) enum Tag {
    Partition(Partition),
    /// Agent definitions, and the responses to requests about them.
    Agents,
    Members,
}

impl Tag {
    pub(in crate::store::redis) fn of(id: &Scoped<ConversationId>) -> Self {
        Self::Partition(Partition::from(id))
    }

    /// The slot of a Redis Cluster that has the keys of the tag.
    pub(in crate::store::redis) fn slot(self) -> u16 {
        let mut name = Vec::with_capacity(MAX_TAG_BYTES);
        self.write_to(&mut name);
        crc16::State::<crc16::XMODEM>::calculate(&name) % SLOTS
    }

    /// Adds the bytes of the tag, without its braces.
    fn write_to(self, key: &mut Vec<u8>) {
        match self {
            Self::Partition(partition) => partition.write_to(key),
            Self::Agents => key.extend_from_slice(b"agents"),
            Self::Members => key.extend_from_slice(b"members"),
        }
    }

    /// A key that exists once for each tag.
    pub(in crate::store::redis) fn common(self, name: &str) -> Key<'_> {
        self.listing("", name)
    }

    /// A key that exists once for each tag and tenant, given the [prefix](Scoped::prefix) of the
    /// tenant.
    pub(in crate::store::redis) fn listing<'a>(self, tenant: &'a str, name: &'a str) -> Key<'a> {
        Key { tag: self, kind: None, tenant, name }
    }

    /// A key that exists for each conversation or scope.
    pub(in crate::store::redis) fn own<'a>(self, kind: &'a str, name: &'a str) -> Key<'a> {
        Key { tag: self, kind: Some(kind), tenant: "", name }
    }

    /// [`Tag::common`] as a string.
    pub(in crate::store::redis) fn key(self, name: &str) -> String {
        self.common(name).into_string()
    }

    /// [`Tag::own`] as a string.
    pub(in crate::store::redis) fn key_of(self, kind: &str, name: &str) -> String {
        self.own(kind, name).into_string()
    }
}

/// A key, written where it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::redis) struct Key<'a> {
    tag: Tag,
    kind: Option<&'a str>,
    tenant: &'a str,
    name: &'a str,
}

/// The most bytes of a tag.
const MAX_TAG_BYTES: usize = "members".len();
/// The most bytes of a key beside its kind, its tenant and its name.
const MAX_FRAME_BYTES: usize = "abide:{}::".len() + MAX_TAG_BYTES;
/// The number of slots of a Redis Cluster.
pub(in crate::store::redis) const SLOTS: u16 = 16_384;

impl Key<'_> {
    pub(in crate::store::redis) fn tag(&self) -> Tag {
        self.tag
    }

    pub(in crate::store::redis) fn into_string(self) -> String {
        let mut key = Vec::new();
        self.write_to(&mut key);
        String::from_utf8_lossy(&key).into_owned()
    }

    /// Adds the bytes of the key.
    pub(super) fn write_to(&self, key: &mut Vec<u8>) {
        let Self { tag, kind, tenant, name } = self;
        key.reserve(MAX_FRAME_BYTES + kind.map_or(0, str::len) + tenant.len() + name.len());
        key.extend_from_slice(b"abide:{");
        tag.write_to(key);
        key.extend_from_slice(b"}:");
        if let Some(kind) = kind {
            key.extend_from_slice(kind.as_bytes());
            key.push(b':');
        }
        key.extend_from_slice(tenant.as_bytes());
        key.extend_from_slice(name.as_bytes());
    }
}

/// A time as the score of a sorted set, in microseconds, which a double represents exactly until
/// 2255. The score is never earlier than the time; the last of all times becomes infinity.
pub(in crate::store::redis) fn score(at: Timestamp) -> String {
    if at == Timestamp::MAX {
        return "inf".to_owned();
    }
    (at.as_nanosecond() + 999).div_euclid(1_000).to_string()
}

/// The last score that is due at this time.
pub(in crate::store::redis) fn score_until(now: Timestamp) -> String {
    now.as_nanosecond().div_euclid(1_000).to_string()
}

/// The time that a score stands for.
pub(in crate::store::redis) fn time(score: f64) -> Timestamp {
    // A float outside the range of integers becomes the nearest integer.
    Timestamp::from_microsecond(score as i64).unwrap_or(Timestamp::MAX)
}

/// Makes all times positive: the earliest is 3.8e20 nanoseconds before 1970.
const OFFSET_NANOS: i128 = 400_000_000_000_000_000_000;
/// The digits of the largest time: those of its seconds, and of the nanoseconds of one.
const SECOND_DIGITS: usize = 12;
const NANO_DIGITS: usize = 9;
const NANOS_PER_SECOND: i128 = 1_000_000_000;
/// Room for a usual member.
const USUAL_MEMBER_BYTES: usize = 128;

/// An inbox key as a member of a sorted set, whose bytes sort in the same order.
pub(in crate::store::redis) fn inbox_member((at, id, call, suspension): &InboxKey) -> String {
    let nanos = at.as_nanosecond() + OFFSET_NANOS;
    // Numbers of 64 bits are printed much faster than one of 128. Both parts fit.
    let (second, nano) = ((nanos / NANOS_PER_SECOND) as u64, (nanos % NANOS_PER_SECOND) as u64);
    let mut member = String::with_capacity(USUAL_MEMBER_BYTES);
    // Text takes whatever is written to it.
    let _ = write!(member, "{second:0SECOND_DIGITS$}{nano:0NANO_DIGITS$}");
    let _ = write!(member, "\0{id}\0{call}\0{suspension:010}");
    member
}

/// The inbox key that a member stands for.
pub(in crate::store::redis) fn inbox_key(member: &str) -> Option<InboxKey> {
    let (at, rest) = member.split_once('\0')?;
    let (id, rest) = rest.split_once('\0')?;
    let (call, suspension) = rest.rsplit_once('\0')?;
    let at = at.parse::<i128>().ok()?.checked_sub(OFFSET_NANOS)?;
    let at = Timestamp::from_nanosecond(at).ok()?;
    Some((at, Scoped::parse(id).ok()?, CallId::new(call), suspension.parse().ok()?))
}

/// The inbox key of an open suspension.
pub(in crate::store::redis) fn pending_key(
    id: &Scoped<ConversationId>,
    pending: &PendingCall,
) -> InboxKey {
    (pending.expires_at, id.clone(), pending.call_id.clone(), pending.suspension)
}

/// The tag and the name of a scope's responses: those of an agent share the agents' tag, so that one
/// script writes both.
pub(in crate::store::redis) fn of_scope(scope: &ResponseScope) -> (Tag, String) {
    match scope {
        ResponseScope::Conversation(id) => (Tag::of(id), id.to_string()),
        ResponseScope::Agent(_) => (Tag::Agents, scope.text()),
        ResponseScope::Creations(_) => {
            let text = scope.text();
            (Tag::Partition(Partition::of(&text)), text)
        }
    }
}

/// What the names of a tenant's own keys begin with.
pub(in crate::store::redis) fn prefix_of(tenant: &Tenant) -> String {
    Scoped::new(tenant, &AgentName::new("x")).prefix().to_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn members_sort_as_their_keys_and_are_read_back() {
        let at = |nanos| Timestamp::from_nanosecond(nanos).unwrap();
        let key =
            |at, id: &str, call: &str, n| (at, Scoped::parse(id).unwrap(), CallId::new(call), n);
        let mut keys = vec![
            key(Timestamp::MIN, "a", "c", 1),
            key(at(-1), "a", "c", 1),
            key(at(0), "a", "c", 2),
            key(at(0), "a", "c", 10),
            key(at(0), "a", "c1", 1),
            key(at(0), "a-", "c", 1),
            key(at(1), "A", "c", 1),
            key(Timestamp::MAX, "a", "", u32::MAX),
        ];
        keys.sort();
        let members: Vec<_> = keys.iter().map(inbox_member).collect();
        assert!(members.is_sorted());
        let read: Vec<_> = members.iter().map(|member| inbox_key(member).unwrap()).collect();
        assert_eq!(read, keys);
        assert_eq!(inbox_key("x"), None);
    }

    /// Checked with CLUSTER KEYSLOT: the stored keys are in these slots for ever.
    #[test]
    fn a_tag_has_the_slot_of_its_keys() {
        let partition = Partition::all().nth(17).unwrap();
        for (tag, slot) in
            [(Tag::Agents, 2_852), (Tag::Members, 6_465), (Tag::Partition(partition), 14_272)]
        {
            assert_eq!(tag.slot(), slot, "{tag:?}");
        }
    }

    #[test]
    fn the_keys_of_the_tenant_default_are_those_from_before_there_were_tenants() {
        for (text, own, listing) in
            [("c_1", "a:c_1", "ids"), ("acme/c_1", "a:acme/c_1", "acme/ids")]
        {
            let id: Scoped<ConversationId> = Scoped::parse(text).unwrap();
            let tag = Tag::of(&id);
            assert_eq!(tag, Tag::Partition(Partition::of(text)));
            let slot = tag.key("");
            assert_eq!(tag.key_of("a", id.as_str()), format!("{slot}{own}"));
            let listed = tag.listing(id.prefix(), "ids").into_string();
            assert_eq!(listed, format!("{slot}{listing}"));
        }
        assert_eq!(prefix_of(&Tenant::default()), "");
        let name_of = |scope| of_scope(&scope).1;
        for (tenant, names) in [
            ("default", ["c", "agents/demo", "conversations/"]),
            ("acme", ["acme/c", "agents/acme/demo", "conversations/acme/"]),
        ] {
            let tenant = Tenant::parse(tenant).unwrap();
            let conversation = Scoped::new(&tenant, &ConversationId::new("c"));
            let agent = conversation.sibling(&AgentName::new("demo"));
            assert_eq!(name_of(ResponseScope::Conversation(conversation)), names[0]);
            assert_eq!(name_of(ResponseScope::Agent(agent)), names[1]);
            assert_eq!(name_of(ResponseScope::Creations(tenant)), names[2]);
        }
    }

    #[test]
    fn a_score_is_never_before_its_time() {
        let at = Timestamp::from_nanosecond(1_800_000_000_000_000_001).unwrap();
        assert_eq!(
            (score(at).as_str(), score_until(at).as_str()),
            ("1800000000000001", "1800000000000000")
        );
        assert_eq!(score(Timestamp::MAX), "inf");
        assert_eq!(time(f64::INFINITY), Timestamp::MAX);
        assert_eq!(time(1_800_000_000_000_000.0), Timestamp::from_second(1_800_000_000).unwrap());
    }
}
