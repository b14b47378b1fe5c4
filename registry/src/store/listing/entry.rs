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

/// The digits of a time: of the microseconds since 1970.
const TIME_DIGITS: usize = 14;
/// The latest time that these digits can have; it is in the year 4253.
const MAX_MICROS: i64 = (1 << 56) - 1;
/// The bytes of a hash that are part of a property: two among a million are hardly ever the same.
const HASH_BYTES: usize = 6;
/// The length of a property.
pub(super) const PROPERTY_LEN: usize = 2 + 2 * HASH_BYTES;

/// A property of conversations: its kind, whether it is that of a root or of a child, and a hash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Property(String);

/// Roots and children are listed apart from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Root,
    Child,
}

impl Family {
    fn letter(self) -> char {
        match self {
            Self::Root => 'r',
            Self::Child => 'c',
        }
    }
}

impl Property {
    fn new(kind: char, family: Family, parts: &[&str]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self::of_hash(kind, family, &hash.finalize())
    }

    fn of_hash(kind: char, family: Family, hash: &[u8]) -> Self {
        let digits = HEXLOWER.encode(hash.get(..HASH_BYTES).unwrap_or(hash));
        Self(format!("{kind}{}{digits}", family.letter()))
    }

    /// That it exists.
    pub(super) fn any(family: Family) -> Self {
        Self::new('t', family, &[])
    }

    pub(super) fn agent(family: Family, agent: &str) -> Self {
        Self::new('g', family, &[agent])
    }

    /// That this subject is the owner or a member.
    pub(super) fn participant(family: Family, sub: &str) -> Self {
        Self::new('p', family, &[sub])
    }

    pub(super) fn metadata(family: Family, key: &str, value: &str) -> Self {
        Self::new('m', family, &[key, value])
    }

    /// [`Property::metadata`] in an encrypted store: nobody without its keys can test a guess.
    pub(super) fn keyed_metadata(
        family: Family,
        key: &str,
        value: &str,
        index_key: &IndexKey,
    ) -> Self {
        Self::of_hash('m', family, &index_key.digest(&[key, value]))
    }

    pub(super) fn parent(parent: &str) -> Self {
        Self::new('u', Family::Child, &[parent])
    }

    /// That it waited for somebody when it was active last.
    pub(super) fn awaiting(family: Family) -> Self {
        Self::new('w', family, &[])
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    fn is_awaiting(&self) -> bool {
        self.0.starts_with('w')
    }
}

/// All members of a conversation, in the form in which stores keep it: both times, and the
/// properties. That which says that it waits, if it does, is the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Entry {
    created: String,
    active: String,
    properties: Vec<Property>,
}

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
        let mut properties: Vec<_> = properties.into_iter().collect();
        properties.extend(awaiting_of(summary));
        let (created, active) = (digits(summary.created_at), digits(active_at(summary)));
        Self { created, active, properties }
    }

    /// The entry after the conversation was active and nothing else has changed.
    pub(in super::super) fn touched(self, summary: &ConversationSummary) -> Self {
        let mut properties = self.properties;
        properties.retain(|property| !property.is_awaiting());
        properties.extend(awaiting_of(summary));
        Self { created: self.created, active: digits(active_at(summary)), properties }
    }

    /// Reads what [`text`](Self::text) wrote.
    pub(in super::super) fn parse(text: &str) -> Option<Self> {
        let (created, rest) = text.split_at_checked(TIME_DIGITS)?;
        let (active, mut rest) = rest.split_at_checked(TIME_DIGITS)?;
        let mut properties = Vec::new();
        while !rest.is_empty() {
            let (property, others) = rest.split_at_checked(PROPERTY_LEN)?;
            properties.push(Property(property.to_owned()));
            rest = others;
        }
        Some(Self { created: created.to_owned(), active: active.to_owned(), properties })
    }

    /// The form in which stores keep it.
    pub(in super::super) fn text(&self) -> String {
        let properties: String = self.properties.iter().map(Property::as_str).collect();
        format!("{}{}{properties}", self.created, self.active)
    }

    /// The members of the index.
    pub(in super::super) fn members(&self, id: &Scoped<ConversationId>) -> BTreeSet<String> {
        let member = |(letter, at): (&str, &String), property: &Property| {
            format!("{letter}{}{at}{id}", property.as_str())
        };
        let orders = [("a", &self.active), ("c", &self.created)];
        let of = |property| orders.map(|order| member(order, property));
        self.properties.iter().flat_map(of).collect()
    }

    /// The members that another entry of the same conversation has not.
    pub(in super::super) fn members_beside(
        &self,
        other: Option<&Self>,
        id: &Scoped<ConversationId>,
    ) -> Vec<String> {
        let mut members = Vec::new();
        let created = other.filter(|other| other.created == self.created);
        let active = other.filter(|other| other.active == self.active);
        for (letter, at, same) in [("c", &self.created, created), ("a", &self.active, active)] {
            for property in &self.properties {
                if !same.is_some_and(|other| other.properties.contains(property)) {
                    members.push([letter, property.as_str(), at, id.as_str()].concat());
                }
            }
        }
        members
    }
}

fn awaiting_of(summary: &ConversationSummary) -> Option<Property> {
    let is_child = summary.listing.parent.is_some();
    let family = if is_child { Family::Child } else { Family::Root };
    (summary.status == ConversationStatus::AwaitingInput).then(|| Property::awaiting(family))
}

/// A time in members of the index.
pub(super) fn digits(at: Timestamp) -> String {
    format!("{:0TIME_DIGITS$x}", at.as_microsecond().clamp(0, MAX_MICROS))
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
