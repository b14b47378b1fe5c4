//! What a store counts of each tenant: its usage by day, its conversations, the bytes of its blobs.

use std::collections::BTreeMap;

use abide_actors::journal::{Commit, StoreError};
use abide_actors::usage_counts::{UsageCounts, day_of};
use abide_conversation::Tenant;
use abide_conversation::erase::SubjectAlias;
use async_trait::async_trait;
use jiff::civil::Date;

/// For how many days usage is kept.
pub const USAGE_DAYS: i64 = 400;
/// How many rows of agents and owners a partition of a tenant's day has. Beyond these, a row that is
/// new counts as one without an owner: owners are not bounded by anything else.
pub(super) const MAX_ROWS: u64 = 100;
/// Stands between the agent and the owner in the name of a row; neither has a control character.
const SEPARATOR: &str = "\0";
/// The name of the row that has the sums of all others.
pub(super) const SUM: &str = "";

/// What rows of usage are added up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageBy {
    Agent,
    Owner,
}

/// Which usage to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageQuery {
    pub tenant: Tenant,
    pub first: Date,
    /// The last day, which is included.
    pub last: Date,
    pub by: UsageBy,
    /// Only names after this one; the name of no owner is empty, and the first.
    pub after: Option<String>,
    /// How many names to return at most.
    pub limit: usize,
}

/// The usage of some names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsagePage {
    /// Sorted by name; that of no owner is empty.
    pub rows: Vec<(String, UsageCounts)>,
    /// The usage of all names, also of those on other pages.
    pub total: UsageCounts,
    /// Whether names follow.
    pub has_more: bool,
}

/// What a store counts in the commits and writes themselves, so that nothing is missed or counted
/// twice. What it returns is a view, which a fail-over may take back.
#[async_trait]
pub trait TenantCounts: Send + Sync + 'static {
    /// The usage of a tenant in some days.
    async fn usage(&self, query: &UsageQuery) -> Result<UsagePage, StoreError>;

    /// The input and output tokens of a tenant in a day.
    async fn tokens_of_day(&self, tenant: &Tenant, day: Date) -> Result<u64, StoreError>;

    /// How many conversations a tenant has.
    async fn conversation_count(&self, tenant: &Tenant) -> Result<u64, StoreError>;

    /// How many bytes the blobs of a tenant have.
    async fn blob_bytes(&self, tenant: &Tenant) -> Result<u64, StoreError>;
}

/// What a commit adds to the usage.
pub(super) struct UsageEntry {
    pub(super) day: Date,
    /// The row of the conversation's agent and owner.
    pub(super) row: String,
    /// The row that counts instead if there is no room for another one.
    pub(super) row_without_owner: String,
    pub(super) counts: UsageCounts,
}

impl UsageEntry {
    /// What the commit adds; `None` for most commits.
    pub(super) fn of(commit: &Commit) -> Option<Self> {
        let counts = commit.usage?;
        let day = day_of(commit.events.last()?.at);
        let agent = commit.summary.agent.as_str();
        let owner = commit.summary.participants.owner.as_deref().unwrap_or_default();
        let row = [agent, SEPARATOR, owner].concat();
        let row_without_owner = [agent, SEPARATOR].concat();
        Some(Self { day, row, row_without_owner, counts })
    }
}

/// The numbers of a row as text, to which more may be added at the end.
pub(super) fn to_text(counts: &UsageCounts) -> String {
    counts.numbers().map(|number| number.to_string()).join(" ")
}

/// The numbers of a text. What is missing is zero, and what newer programs count besides is skipped.
pub(super) fn from_text(text: &str) -> UsageCounts {
    let mut numbers = [0; UsageCounts::COUNTERS];
    for (number, word) in numbers.iter_mut().zip(text.split(' ')) {
        *number = word.parse().unwrap_or(u64::MAX);
    }
    UsageCounts::from_numbers(numbers)
}

/// Adds rows up by name. It holds no more names than it returns, whatever it is given.
pub(super) struct UsageTally<'q> {
    query: &'q UsageQuery,
    rows: BTreeMap<String, UsageCounts>,
    total: UsageCounts,
}

impl<'q> UsageTally<'q> {
    pub(super) fn new(query: &'q UsageQuery) -> Self {
        Self { query, rows: BTreeMap::new(), total: UsageCounts::default() }
    }

    /// Adds a row of a day.
    pub(super) fn add(&mut self, row: &str, counts: UsageCounts) {
        if row == SUM {
            self.total += counts;
            return;
        }
        let (agent, owner) = row.split_once(SEPARATOR).unwrap_or((row, ""));
        let name = match self.query.by {
            UsageBy::Agent => agent,
            UsageBy::Owner => owner,
        };
        if self.query.after.as_deref().is_some_and(|after| name <= after) {
            return;
        }
        *self.rows.entry(name.to_owned()).or_default() += counts;
        // One more than is returned shows that there is more. Whatever name is removed here is never
        // among the first: it is removed again whenever it comes.
        if self.rows.len() > self.query.limit.saturating_add(1) {
            self.rows.pop_last();
        }
    }

    pub(super) fn page(mut self) -> UsagePage {
        let has_more = self.rows.len() > self.query.limit;
        if has_more {
            self.rows.pop_last();
        }
        UsagePage { rows: self.rows.into_iter().collect(), total: self.total, has_more }
    }
}

/// What the name of a row ends with that is of this owner.
pub(super) fn owner_suffix(owner: &str) -> String {
    format!("{SEPARATOR}{owner}")
}

/// The name under the alias of a row that is of the subject; `None` for any other row.
pub(super) fn renamed_row(row: &str, alias: &SubjectAlias) -> Option<String> {
    let agent = row.strip_suffix(&owner_suffix(&alias.subject))?;
    Some(format!("{agent}{}", owner_suffix(&alias.alias)))
}

/// The days of a query, in order.
pub(super) fn days(query: &UsageQuery) -> impl Iterator<Item = Date> {
    let last = query.last;
    std::iter::successors(Some(query.first), |day| day.tomorrow().ok())
        .take_while(move |day| *day <= last)
}

/// The first day that is kept when a commit counts for this one.
pub(super) fn first_day_kept(day: Date) -> Date {
    day.saturating_sub(jiff::Span::new().days(USAGE_DAYS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(turns: u64) -> UsageCounts {
        UsageCounts { turns, ..Default::default() }
    }

    fn query(by: UsageBy, after: Option<&str>, limit: usize) -> UsageQuery {
        let day = Date::constant(2027, 1, 15);
        let after = after.map(str::to_owned);
        UsageQuery { tenant: Tenant::default(), first: day, last: day, by, after, limit }
    }

    #[test]
    fn a_text_of_another_program_is_read_as_far_as_it_is_known() {
        let known = UsageCounts::from_numbers([1, 2, 3, 4, 5, 6]);
        assert_eq!(to_text(&known), "1 2 3 4 5 6");
        for text in ["1 2 3 4 5 6", "1 2 3 4 5 6 7 8"] {
            assert_eq!(from_text(text), known);
        }
        assert_eq!(from_text("1 2"), UsageCounts::from_numbers([1, 2, 0, 0, 0, 0]));
        assert_eq!(from_text("99999999999999999999").turns, u64::MAX);
    }

    #[test]
    fn a_page_adds_up_each_name_that_it_has_and_the_total_of_all() {
        for (after, limit, expected, has_more) in [
            (None, 2, &[("", 6), ("a", 8)][..], true),
            (Some("a"), 2, &[("b", 5), ("c", 5)], false),
            (None, 9, &[("", 6), ("a", 8), ("b", 5), ("c", 5)], false),
            (Some("c"), 9, &[], false),
        ] {
            let query = query(UsageBy::Owner, after, limit);
            let mut tally = UsageTally::new(&query);
            // The names come in no order, and again and again.
            for (owner, turns) in [("c", 1), ("a", 3), ("b", 5), ("a", 5), ("c", 4), ("", 6)] {
                tally.add(&format!("demo\0{owner}"), counts(turns));
                tally.add(SUM, counts(turns));
            }
            let page = tally.page();
            let rows: Vec<_> =
                page.rows.iter().map(|(name, counts)| (name.as_str(), counts.turns)).collect();
            assert_eq!((rows.as_slice(), page.has_more), (expected, has_more), "{after:?}");
            assert_eq!(page.total, counts(24));
        }
    }

    #[test]
    fn the_days_of_a_query_include_the_last() {
        let one = query(UsageBy::Agent, None, 1);
        assert_eq!(days(&one).count(), 1);
        let leap = UsageQuery {
            first: Date::constant(2028, 2, 28),
            last: Date::constant(2028, 3, 1),
            ..one
        };
        let days: Vec<String> = days(&leap).map(|day| day.to_string()).collect();
        assert_eq!(days, ["2028-02-28", "2028-02-29", "2028-03-01"]);
    }
}
