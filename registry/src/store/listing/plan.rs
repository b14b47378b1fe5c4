//! Which range of the index a page reads.

use std::iter::Peekable;

use abide_conversation::Tenant;
use abide_conversation::state::ConversationStatus;
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

/// The ranges of the index that a page reads, merged by what follows their prefixes.
#[derive(Clone, Debug)]
pub(in super::super) struct Plan {
    /// One, or those of roots and of children; twice as many for metadata of an encrypted store.
    prefixes: Vec<String>,
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
        let properties =
            families.iter().flat_map(|family| narrowest(query, viewer, *family, index_key));
        let Period { after: from, before: until } = match query.order {
            ListOrder::Created => query.created,
            ListOrder::Active => query.active,
        };
        Ok(Some(Self {
            prefixes: properties.map(|it| format!("{letter}{}", it.as_str())).collect(),
            first: from.map(digits).unwrap_or_default(),
            last: until.map(digits).unwrap_or_default() + &END.to_string(),
            after: after.map(|after| after.suffix),
            direction: query.direction,
            digest,
        }))
    }

    /// The prefixes of the ranges.
    pub(in super::super) fn prefixes(&self) -> &[String] {
        &self.prefixes
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

/// The property of the wanted conversations that the fewest others have, as far as can be guessed. Each
/// of them has one of these forms of it.
fn narrowest(
    query: &ListQuery,
    viewer: Option<&str>,
    family: Family,
    index_key: Option<&IndexKey>,
) -> Vec<Property> {
    if let Some(parent) = &query.parent {
        return vec![Property::parent(parent.as_str())];
    }
    if let Some((key, value)) = query.metadata.first_key_value() {
        let keyed = index_key.map(|it| Property::keyed_metadata(family, key, value, it));
        return keyed.into_iter().chain([Property::metadata(family, key, value)]).collect();
    }
    if query.status == Some(ConversationStatus::AwaitingInput) {
        return vec![Property::awaiting(family)];
    }
    if let Some(sub) = query.owner.as_deref().or(viewer) {
        return vec![Property::participant(family, sub)];
    }
    vec![match &query.agent {
        Some(agent) => Property::agent(family, agent.as_str()),
        None => Property::any(family),
    }]
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
    hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
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
    use super::*;

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
