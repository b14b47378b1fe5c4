//! Where a conversation stands in the index of lists.
//!
//! A conversation has two members of the index for each of its properties: one that is sorted by the
//! time of its creation, one by that of its last activity. A member is the letter of the order, the
//! property, the time and the id, so that the members of one property are one range, in their order.
//! Properties and times have always the same length. A property is named by a hash, and so a page
//! checks each conversation that it finds.

use std::collections::BTreeSet;

use abide_actors::journal::ConversationSummary;
use abide_conversation::state::ConversationStatus;
use abide_conversation::{ConversationId, Scoped, Timestamp};
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

use super::super::sealing::IndexKey;
use super::{ListOrder, active_at};

/// The bytes of a time: of the microseconds since 1970.
const TIME_BYTES: usize = 7;
/// Its hexadecimal digits.
const TIME_DIGITS: usize = 2 * TIME_BYTES;
/// The latest time that these digits can have; it is in the year 4253.
const MAX_MICROS: i64 = (1 << (8 * TIME_BYTES)) - 1;
/// The bytes of a hash that are part of a property: two among a million are hardly ever the same.
const HASH_BYTES: usize = 6;
/// What a property has that is named by nothing: the first bytes of the SHA-256 of no bytes.
const HASH_OF_NOTHING: [u8; HASH_BYTES] = [0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc];
/// The length of a property.
pub(super) const PROPERTY_LEN: usize = 2 + 2 * HASH_BYTES;
/// Room for the entry of a root that has an owner and waits, with no member and nothing else indexed.
const USUAL_ENTRY_LEN: usize = 2 * TIME_DIGITS + 4 * PROPERTY_LEN;

/// A property of conversations, as it stands in members: its kind, whether it is that of a root or of a
/// child, and a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Property([u8; PROPERTY_LEN]);

/// The parts of a member of the index, one after the other: the letter of the order, the property, the
/// time, and the id.
pub(in super::super) type MemberParts<'a> = [&'a str; 4];

/// Roots and children are listed apart from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Root,
    Child,
}

impl Family {
    fn letter(self) -> u8 {
        match self {
            Self::Root => b'r',
            Self::Child => b'c',
        }
    }
}

impl Property {
    fn new(kind: u8, family: Family, parts: &[&str]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self::of_digest(kind, family, hash.finalize().into())
    }

    /// The property that is named by the first bytes of this digest.
    fn of_digest(kind: u8, family: Family, digest: [u8; 32]) -> Self {
        let mut hash = [0; HASH_BYTES];
        hash.copy_from_slice(&digest[..HASH_BYTES]);
        Self::of_hash(kind, family, hash)
    }

    fn of_hash(kind: u8, family: Family, hash: [u8; HASH_BYTES]) -> Self {
        let mut property = [kind; PROPERTY_LEN];
        property[1] = family.letter();
        HEXLOWER.encode_mut(&hash, &mut property[2..]);
        Self(property)
    }

    /// That it exists.
    pub(super) fn any(family: Family) -> Self {
        Self::of_hash(b't', family, HASH_OF_NOTHING)
    }

    pub(super) fn agent(family: Family, agent: &str) -> Self {
        Self::new(b'g', family, &[agent])
    }

    /// That this subject is the owner or a member.
    pub(super) fn participant(family: Family, sub: &str) -> Self {
        Self::new(b'p', family, &[sub])
    }

    pub(super) fn metadata(family: Family, key: &str, value: &str) -> Self {
        Self::new(b'm', family, &[key, value])
    }

    /// [`Property::metadata`] in an encrypted store: nobody without its keys can test a guess.
    pub(super) fn keyed_metadata(
        family: Family,
        key: &str,
        value: &str,
        index_key: &IndexKey,
    ) -> Self {
        Self::of_digest(b'm', family, index_key.digest(&[key, value]))
    }

    pub(super) fn parent(parent: &str) -> Self {
        Self::new(b'u', Family::Child, &[parent])
    }

    /// That it waited for somebody when it was active last.
    pub(super) fn awaiting(family: Family) -> Self {
        Self::of_hash(b'w', family, HASH_OF_NOTHING)
    }

    pub(super) fn as_str(&self) -> &str {
        // All of its bytes are ASCII.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// All members of a conversation, in the form in which stores keep it: the time of its creation, that of
/// its last activity, and its properties. That which says that it waits, if it does, is the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Entry(String);

impl Entry {
    /// The entry of a conversation whose agent indexes these keys of the metadata, in an encrypted
    /// store by this key.
    pub(in super::super) fn new(
        summary: &ConversationSummary,
        indexed: &[String],
        index_key: Option<&IndexKey>,
    ) -> Self {
        let parent = summary.listing.parent.as_ref();
        let family = if parent.is_some() { Family::Child } else { Family::Root };
        let participants = &summary.participants;
        let subjects = participants.owner.iter().chain(&participants.members);
        let mut properties = BTreeSet::from([
            Property::any(family),
            Property::agent(family, summary.agent.as_str()),
        ]);
        properties.extend(subjects.map(|sub| Property::participant(family, sub)));
        properties.extend(parent.map(|parent| Property::parent(parent.as_str())));
        // Only texts are indexed.
        properties.extend(indexed.iter().filter_map(|key| {
            let value = summary.metadata.get(key)?.as_str()?;
            Some(match index_key {
                Some(index_key) => Property::keyed_metadata(family, key, value, index_key),
                None => Property::metadata(family, key, value),
            })
        }));
        let properties = properties.iter().map(Property::as_str);
        Self::of(&digits(summary.created_at), summary, properties)
    }

    /// The entry after the conversation was active and nothing else has changed.
    pub(in super::super) fn touched(&self, summary: &ConversationSummary) -> Self {
        let stays = self.properties().filter(|property| !property.starts_with('w'));
        Self::of(self.created(), summary, stays)
    }

    /// The entry with these properties, and with what the summary says of the activity.
    fn of<'a>(
        created: &str,
        summary: &ConversationSummary,
        properties: impl Iterator<Item = &'a str>,
    ) -> Self {
        let mut text = String::with_capacity(USUAL_ENTRY_LEN);
        text.push_str(created);
        text.push_str(&digits(active_at(summary)));
        text.extend(properties);
        text.extend(awaiting_of(summary).iter().map(Property::as_str));
        Self(text)
    }

    /// Reads what [`as_str`](Self::as_str) returned.
    pub(in super::super) fn parse(text: &str) -> Option<Self> {
        let properties_len = text.len().checked_sub(2 * TIME_DIGITS)?;
        let fits = text.is_ascii() && properties_len.is_multiple_of(PROPERTY_LEN);
        fits.then(|| Self(text.to_owned()))
    }

    /// The form in which stores keep it.
    pub(in super::super) fn as_str(&self) -> &str {
        &self.0
    }

    /// What [`as_str`](Self::as_str) returns.
    pub(in super::super) fn into_text(self) -> String {
        self.0
    }

    /// The members of the index.
    pub(in super::super) fn members<'a>(
        &'a self,
        id: &'a Scoped<ConversationId>,
    ) -> impl Iterator<Item = MemberParts<'a>> {
        self.members_beside(None, id)
    }

    /// The members that another entry of the same conversation does not have.
    pub(in super::super) fn members_beside<'a>(
        &'a self,
        other: Option<&'a Self>,
        id: &'a Scoped<ConversationId>,
    ) -> impl Iterator<Item = MemberParts<'a>> {
        let created = other.filter(|other| other.created() == self.created());
        let active = other.filter(|other| other.active() == self.active());
        let orders = [("c", self.created(), created), ("a", self.active(), active)];
        orders.into_iter().flat_map(move |(letter, at, same)| {
            let is_new = move |property: &&str| {
                !same.is_some_and(|other| other.properties().any(|it| it == *property))
            };
            let new = self.properties().filter(is_new);
            new.map(move |property| [letter, property, at, id.as_str()])
        })
    }

    fn created(&self) -> &str {
        self.0.get(..TIME_DIGITS).unwrap_or_default()
    }

    fn active(&self) -> &str {
        self.0.get(TIME_DIGITS..2 * TIME_DIGITS).unwrap_or_default()
    }

    fn properties(&self) -> impl Iterator<Item = &str> {
        let starts = (2 * TIME_DIGITS..self.0.len()).step_by(PROPERTY_LEN);
        starts.filter_map(|at| self.0.get(at..at + PROPERTY_LEN))
    }
}

fn awaiting_of(summary: &ConversationSummary) -> Option<Property> {
    let is_child = summary.listing.parent.is_some();
    let family = if is_child { Family::Child } else { Family::Root };
    (summary.status == ConversationStatus::AwaitingInput).then(|| Property::awaiting(family))
}

/// A time in members of the index.
pub(super) fn digits(at: Timestamp) -> String {
    let micros = at.as_microsecond().clamp(0, MAX_MICROS).to_be_bytes();
    HEXLOWER.encode(micros.last_chunk::<TIME_BYTES>().unwrap_or(&[0; TIME_BYTES]))
}

/// A place in the index, as a member of it shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct IndexMember {
    /// The time and the id, by which a list is sorted.
    pub(in super::super) suffix: String,
    pub(in super::super) id: Scoped<ConversationId>,
}

impl IndexMember {
    /// The place of a member; `None` if it is not one.
    pub(in super::super) fn parse(member: &str) -> Option<Self> {
        Self::from_suffix(member.get(1 + PROPERTY_LEN..)?)
    }

    /// The place of what follows the property in a member.
    pub(in super::super) fn from_suffix(suffix: &str) -> Option<Self> {
        let id = Scoped::parse(suffix.get(TIME_DIGITS..)?).ok()?;
        Some(Self { suffix: suffix.to_owned(), id })
    }
}

impl ListOrder {
    pub(super) fn letter(self) -> char {
        match self {
            Self::Created => 'c',
            Self::Active => 'a',
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use abide_conversation::AgentName;
    use serde_json::json;

    use super::*;

    /// A conversation with an owner, and with a parent if it is a child, after a number of seconds.
    fn summary(status: &str, parent: Option<&str>, active_second: i64) -> ConversationSummary {
        let at = |second| Timestamp::from_second(second).unwrap();
        serde_json::from_value(json!({
            "agent": AgentName::new("demo"),
            "state": status,
            "last_seq": 3,
            "created_at": at(1_700_000_000),
            "metadata": {"case": "7"},
            "participants": {"owner": "ann"},
            "alarm": null,
            "active": false,
            "listing": {"active_at": at(active_second), "turns": 1, "parent": parent},
        }))
        .unwrap()
    }

    #[test]
    fn the_text_of_an_entry_is_the_one_that_stores_have() {
        let root = Entry::new(&summary("idle", None, 1_700_000_001), &[], None);
        assert_eq!(
            root.as_str(),
            "060a24181e4000060a24182d8240gre01e207df233pre1453b45eedctre3b0c44298fc"
        );
        let indexed = ["case".to_owned()];
        let child = summary("awaiting_input", Some("p"), 1_700_000_001);
        let child = Entry::new(&child, &indexed, None);
        assert_eq!(
            child.as_str(),
            "060a24181e4000060a24182d8240\
             gce01e207df233mcc4a3452868ecpce1453b45eedctce3b0c44298fcuc5fbc4b0d8b37wce3b0c44298fc"
        );
        assert_eq!(Entry::parse(child.as_str()), Some(child));
    }

    #[test]
    fn a_text_that_no_entry_has_is_refused() {
        let entry = Entry::new(&summary("idle", None, 1_700_000_001), &[], None);
        let text = entry.as_str();
        for other in ["", &text[1..], &format!("{text}x"), &text.replace("gr", "\u{e9}")] {
            assert_eq!(Entry::parse(other), None, "{other}");
        }
    }

    #[test]
    fn the_members_of_an_entry_are_those_of_both_orders_and_only_new_ones_are_added() {
        let id = Scoped::parse("acme/c").unwrap();
        let before = Entry::new(&summary("idle", None, 1_700_000_001), &[], None);
        let after = before.touched(&summary("awaiting_input", None, 1_700_000_002));
        let of = |members: Vec<MemberParts<'_>>| {
            members.iter().map(|it| it.concat()).collect::<Vec<_>>()
        };
        let [c, a, later] = ["060a24181e4000", "060a24182d8240", "060a24183cc480"];
        let [agent, owner, any, waits] =
            ["gre01e207df233", "pre1453b45eedc", "tre3b0c44298fc", "wre3b0c44298fc"];
        let all = [agent, owner, any].map(|property| format!("c{property}{c}acme/c"));
        assert_eq!(of(before.members(&id).collect())[..3], all);
        let gone = [agent, owner, any].map(|property| format!("a{property}{a}acme/c"));
        assert_eq!(of(before.members_beside(Some(&after), &id).collect()), gone);
        let mut new = vec![format!("c{waits}{c}acme/c")];
        new.extend([agent, owner, any, waits].map(|it| format!("a{it}{later}acme/c")));
        assert_eq!(of(after.members_beside(Some(&before), &id).collect()), new);
    }
}
