//! Which range of the index a page reads.

use std::iter::Peekable;

use abide_conversation::Tenant;
use abide_conversation::state::ConversationStatus;
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::super::sealing::IndexKey;
use super::super::{ListError, paging};
use super::entry::{Family, Property, digits};
use super::{Direction, ListOrder, ListQuery, Period};

/// Sorts after all that ids and digits have.
const END: char = '~';

/// Where a page ends: in which listing, and after which time and id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Position {
    digest: String,
    suffix: String,
}

/// How many members of each property are counted at most, until one has fewer than that.
const COUNTED_MEMBERS: [usize; 3] = [32, 256, 2_048];

/// The ranges of the index that a page reads, merged by what follows their prefixes.
///
/// Each of the wanted conversations has all of the properties that the query names, and stands in
/// their ranges in the same order. A page reads those of one property, whichever has the fewest
/// members; the next page may read those of another one.
#[derive(Clone, Debug)]
pub(in super::super) struct Plan {
    /// For each property the prefixes of its ranges: one, or those of roots and of children; twice as
    /// many for metadata of an encrypted store.
    properties: Vec<Vec<String>>,
    /// The property that is read.
    chosen: usize,
    first: String,
    last: String,
    after: Option<String>,
    direction: Direction,
    digest: String,
}

impl Plan {
    /// The plan of the page after the cursor; `None` if the list is empty, whatever there is. `store`
    /// is the kind of the store: a cursor of another store is refused, too. An encrypted store has an
    /// index key, and still finds what was indexed without one.
    pub(in super::super) fn new(
        store: &str,
        tenant: &Tenant,
        query: &ListQuery,
        cursor: Option<&str>,
        index_key: Option<&IndexKey>,
    ) -> Result<Option<Self>, ListError> {
        let digest = digest(store, tenant, query);
        let after: Option<Position> = paging::decode(cursor)?;
        if after.as_ref().is_some_and(|after| after.digest != digest) {
            return Err(ListError::Cursor);
        }
        let Ok(viewer) = query.viewer() else { return Ok(None) };
        let families: &[Family] = match (&query.parent, query.root_only) {
            (Some(_), _) => &[Family::Child],
            (None, true) => &[Family::Root],
            (None, false) => &[Family::Root, Family::Child],
        };
        let letter = query.order.letter();
        let mut properties: Vec<Vec<String>> = Vec::new();
        for family in families {
            for (at, forms) in properties_of(query, viewer, *family, index_key).iter().enumerate() {
                let prefixes = forms.iter().map(|form| format!("{letter}{}", form.as_str()));
                match properties.get_mut(at) {
                    Some(of_other_family) => of_other_family.extend(prefixes),
                    None => properties.push(prefixes.collect()),
                }
            }
        }
        let Period { after: from, before: until } = match query.order {
            ListOrder::Created => query.created,
            ListOrder::Active => query.active,
        };
        Ok(Some(Self {
            properties,
            chosen: 0,
            first: from.map(digits).unwrap_or_default(),
            last: until.map(digits).unwrap_or_default() + &END.to_string(),
            after: after.map(|after| after.suffix),
            direction: query.direction,
            digest,
        }))
    }

    /// The prefixes of the ranges that are read.
    pub(in super::super) fn prefixes(&self) -> &[String] {
        self.properties.get(self.chosen).map_or(&[], Vec::as_slice)
    }

    /// The properties that may be read instead of each other, each by the prefixes of its ranges.
    pub(in super::super) fn properties(&self) -> &[Vec<String>] {
        &self.properties
    }

    /// Has the ranges of this property read.
    pub(in super::super) fn choose(&mut self, property: usize) {
        self.chosen = property;
    }

    /// Chooses the property with the fewest members, the first of equals. `count` tells how many
    /// members the range of a prefix has, up to a number. Properties that all have thousands are not
    /// told apart.
    pub(in super::super) fn choose_by_count<E>(
        &mut self,
        count: impl Fn(&Self, &str, usize) -> Result<usize, E>,
    ) -> Result<(), E> {
        if self.properties.len() < 2 {
            return Ok(());
        }
        for most in COUNTED_MEMBERS {
            let mut sizes = Vec::with_capacity(self.properties.len());
            for prefixes in &self.properties {
                let counts: Result<Vec<usize>, E> =
                    prefixes.iter().map(|prefix| count(self, prefix, most)).collect();
                sizes.push(counts?.into_iter().sum::<usize>());
            }
            let smallest = sizes.iter().copied().enumerate().min_by_key(|(_, size)| *size);
            if let Some((at, _)) = smallest.filter(|(_, size)| *size < most) {
                self.chosen = at;
                break;
            }
        }
        Ok(())
    }

    pub(in super::super) fn direction(&self) -> Direction {
        self.direction
    }

    /// The members between which the rest of a range is, neither included, after this suffix or where
    /// the page begins; `None` if nothing is between them.
    pub(in super::super) fn bounds(
        &self,
        prefix: &str,
        after: Option<&str>,
    ) -> Option<(String, String)> {
        let after = after.or(self.after.as_deref());
        let (first, last) = match (after, self.direction) {
            (None, _) => (self.first.as_str(), self.last.as_str()),
            (Some(after), Direction::Ascending) => (after, self.last.as_str()),
            (Some(after), Direction::Descending) => (self.first.as_str(), after),
        };
        (first < last).then(|| (format!("{prefix}{first}"), format!("{prefix}{last}")))
    }

    /// The position after the conversation of this suffix.
    pub(in super::super) fn position(&self, suffix: &str) -> Position {
        Position { digest: self.digest.clone(), suffix: suffix.to_owned() }
    }
}

/// The properties that all of the wanted conversations have, those first that the fewest others have as
/// far as can be guessed. Each conversation has one of these forms of a property.
fn properties_of(
    query: &ListQuery,
    viewer: Option<&str>,
    family: Family,
    index_key: Option<&IndexKey>,
) -> Vec<Vec<Property>> {
    let ListQuery { parent, metadata, owner, status, agent, .. } = query;
    let mut all = Vec::new();
    all.extend(parent.as_ref().map(|parent| vec![Property::parent(parent.as_str())]));
    all.extend(metadata.iter().map(|(key, value)| {
        let keyed = index_key.map(|it| Property::keyed_metadata(family, key, value, it));
        keyed.into_iter().chain([Property::metadata(family, key, value)]).collect()
    }));
    let subjects =
        owner.as_deref().into_iter().chain(viewer.filter(|it| owner.as_deref() != Some(it)));
    all.extend(subjects.map(|sub| vec![Property::participant(family, sub)]));
    if *status == Some(ConversationStatus::AwaitingInput) {
        all.push(vec![Property::awaiting(family)]);
    }
    all.extend(agent.as_ref().map(|agent| vec![Property::agent(family, agent.as_str())]));
    if all.is_empty() {
        all.push(vec![Property::any(family)]);
    }
    all
}

/// Tells the listings apart whose cursors are not those of each other.
fn digest(store: &str, tenant: &Tenant, query: &ListQuery) -> String {
    let ListQuery { agent, status, owner, parent, root_only, metadata, created, active, .. } =
        query;
    let times = [created.after, created.before, active.after, active.before];
    let order = format!("{:?} {:?}", query.order, query.direction);
    let viewer = query.viewer();
    let parts = json!([
        store,
        tenant.as_str(),
        agent,
        status,
        owner,
        parent,
        root_only,
        metadata,
        times,
        order,
        viewer.is_ok(),
        viewer.ok().flatten()
    ]);
    let hash = Sha256::digest(parts.to_string());
    HEXLOWER.encode(&hash[..8])
}

/// Merges ranges of suffixes, each sorted in this direction.
pub(in super::super) fn merged<E>(
    ranges: Vec<impl Iterator<Item = Result<String, E>>>,
    direction: Direction,
) -> impl Iterator<Item = Result<String, E>> {
    let mut ranges: Vec<Peekable<_>> = ranges.into_iter().map(Iterator::peekable).collect();
    std::iter::from_fn(move || {
        let mut next: Option<(usize, &String)> = None;
        let mut failed = None;
        for (at, range) in ranges.iter_mut().enumerate() {
            match range.peek() {
                None => {}
                Some(Err(_)) => failed = Some(at),
                Some(Ok(suffix)) => {
                    let is_nearer = next.is_none_or(|(_, nearest)| match direction {
                        Direction::Ascending => suffix < nearest,
                        Direction::Descending => suffix > nearest,
                    });
                    if is_nearer {
                        next = Some((at, suffix));
                    }
                }
            }
        }
        let at = failed.or(next.map(|(at, _)| at))?;
        ranges[at].next()
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// The property that is read if an agent and an owner have this many conversations each.
    fn chosen(agents: usize, owners: usize) -> usize {
        let query = ListQuery {
            agent: Some(abide_conversation::AgentName::new("demo")),
            owner: Some("ann".to_owned()),
            ..ListQuery::default()
        };
        let mut plan = Plan::new("x", &Tenant::default(), &query, None, None).unwrap().unwrap();
        let of_owner = plan.properties()[0].clone();
        let count = |_: &Plan, prefix: &str, most: usize| {
            let is_owner = of_owner.iter().any(|it| it == prefix);
            Ok::<_, Infallible>(if is_owner { owners } else { agents }.min(most))
        };
        plan.choose_by_count(count).unwrap();
        assert_eq!(plan.prefixes(), plan.properties()[plan.chosen]);
        plan.chosen
    }

    #[test]
    fn the_property_with_the_fewest_members_is_read() {
        assert_eq!(chosen(1_000_000, 10), 0);
        assert_eq!(chosen(10, 1_000_000), 1);
        assert_eq!(chosen(500, 1_000_000), 1);
        assert_eq!(chosen(7, 7), 0, "the first of equals");
        assert_eq!(chosen(900_000, 1_000_000), 0, "thousands are not told apart");
    }

    #[test]
    fn ranges_are_merged_in_their_direction() {
        let range = |texts: &str| {
            texts.chars().map(|it| Ok::<_, ()>(it.to_string())).collect::<Vec<_>>().into_iter()
        };
        let joined =
            |ranges, direction| merged(ranges, direction).map(Result::unwrap).collect::<String>();
        assert_eq!(joined(vec![range("acd"), range("be")], Direction::Ascending), "abcde");
        assert_eq!(joined(vec![range("dca"), range("eb")], Direction::Descending), "edcba");
        assert_eq!(joined(vec![range(""), range("b")], Direction::Ascending), "b");
    }
}
