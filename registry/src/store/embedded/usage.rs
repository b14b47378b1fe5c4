//! What the file counts of tenants.

use abide_actors::journal::StoreError;
use abide_conversation::erase::SubjectAlias;
use abide_conversation::{ConversationId, Scoped, Tenant};
use async_trait::async_trait;
use jiff::civil::Date;
use redb::{
    Error, ReadOnlyTable, ReadTransaction, ReadableTable, ReadableTableMetadata, Table, TableError,
    WriteTransaction,
};

use super::super::usage::{
    self, MAX_ROWS, SUM, TenantCounts, UsageEntry, UsagePage, UsageQuery, UsageTally,
};
use super::Embedded;
use super::tables::{self, HEADS, USAGE};
use crate::partition::Partition;

/// Rows of days that are kept no longer which one commit removes: more than the two that it can add.
const MAX_REMOVED_ROWS: usize = 8;

/// Day, tenant, partition, name of the row.
type Key = (&'static str, &'static str, u16, &'static str);

/// Splits the text of a sum into how many rows it sums up, and its numbers.
fn split_sum(text: &str) -> (u64, &str) {
    let (rows, numbers) = text.split_once(' ').unwrap_or_default();
    (rows.parse().unwrap_or_default(), numbers)
}

#[async_trait]
impl TenantCounts for Embedded {
    async fn usage(&self, query: &UsageQuery) -> Result<UsagePage, StoreError> {
        let query = query.clone();
        self.read(move |from| read(from, &query)).await
    }

    async fn tokens_of_day(&self, tenant: &Tenant, day: Date) -> Result<u64, StoreError> {
        let tenant = tenant.clone();
        self.read(move |from| tokens_of_day(from, &tenant, day)).await
    }

    async fn conversation_count(&self, tenant: &Tenant) -> Result<u64, StoreError> {
        self.read_row(|from| match HEADS.open(from, tenant)? {
            Some(heads) => Ok(heads.len()?),
            None => Ok(0),
        })
    }

    async fn blob_bytes(&self, tenant: &Tenant) -> Result<u64, StoreError> {
        self.read_row(|from| {
            let counts = match from.open_table(tables::BLOB_BYTES) {
                Ok(counts) => counts,
                // A store of an earlier version that had no room for the table.
                Err(TableError::TableDoesNotExist(_)) => return Ok(0),
                Err(error) => return Err(error.into()),
            };
            Ok(counts.get(tenant.as_str())?.map_or(0, |counted| counted.value()))
        })
    }
}

/// Adds what a commit counts to its row and to the sum of the day.
pub(super) fn count(
    to: &WriteTransaction,
    id: &Scoped<ConversationId>,
    entry: &UsageEntry,
) -> Result<(), Error> {
    let mut table = to.open_table(USAGE)?;
    let (day, tenant) = (entry.day.to_string(), id.tenant());
    let partition = partition_number(Partition::from(id));
    let text = |table: &Table<'_, Key, &'static str>, row: &str| {
        let text = table.get((day.as_str(), tenant.as_str(), partition, row))?;
        Ok::<_, Error>(text.map(|text| text.value().to_owned()))
    };
    let sum = text(&table, SUM)?;
    let (rows, summed) = sum.as_deref().map(split_sum).unzip();
    let mut rows = rows.unwrap_or_default();
    let mut row = &entry.row;
    let mut found = text(&table, row)?;
    if found.is_none() && rows >= MAX_ROWS {
        row = &entry.row_without_owner;
        found = text(&table, row)?;
    }
    rows += u64::from(found.is_none());
    let added = |text: Option<&str>| {
        let mut counts = text.map(usage::from_text).unwrap_or_default();
        counts += entry.counts;
        usage::to_text(&counts)
    };
    let key = (day.as_str(), tenant.as_str(), partition, row.as_str());
    table.insert(key, added(found.as_deref()).as_str())?;
    let sum = format!("{rows} {}", added(summed));
    table.insert((day.as_str(), tenant.as_str(), partition, SUM), sum.as_str())?;
    sweep(&mut table, &usage::first_day_kept(entry.day).to_string())
}

/// Removes some rows of the days before this one.
fn sweep(table: &mut Table<'_, Key, &'static str>, first_day: &str) -> Result<(), Error> {
    for _ in 0..MAX_REMOVED_ROWS {
        let is_old = table.first()?.is_some_and(|row| row.0.value().0 < first_day);
        if !is_old {
            break;
        }
        table.pop_first()?;
    }
    Ok(())
}

/// Gives the rows of an owner to the alias, in all days up to this one.
pub(super) fn rename(
    to: &WriteTransaction,
    tenant: &Tenant,
    last: Date,
    alias: &SubjectAlias,
) -> Result<(), Error> {
    let mut table = to.open_table(USAGE)?;
    let mut renamed = Vec::new();
    for row in table.iter()? {
        let (key, text) = row?;
        let (day, of, partition, name) = key.value();
        if day > last.to_string().as_str() {
            break;
        }
        if let Some(new) = usage::renamed_row(name, alias).filter(|_| of == tenant.as_str()) {
            let counts = usage::from_text(text.value());
            renamed.push((day.to_owned(), partition, name.to_owned(), new, counts));
        }
    }
    for (day, partition, old, new, mut counts) in renamed {
        table.remove((day.as_str(), tenant.as_str(), partition, old.as_str()))?;
        let key = (day.as_str(), tenant.as_str(), partition, new.as_str());
        if let Some(before) = table.get(key)? {
            counts += usage::from_text(before.value());
        }
        table.insert(key, usage::to_text(&counts).as_str())?;
    }
    Ok(())
}

fn read(from: &ReadTransaction, query: &UsageQuery) -> Result<UsagePage, Error> {
    let mut tally = UsageTally::new(query);
    let Some(table) = open(from)? else { return Ok(tally.page()) };
    let tenant = query.tenant.as_str();
    for day in usage::days(query) {
        let day = day.to_string();
        let first = (day.as_str(), tenant, 0, SUM);
        for row in table.range(first..)? {
            let (key, text) = row?;
            let (on, of, _, name) = key.value();
            if (on, of) != (day.as_str(), tenant) {
                break;
            }
            let numbers = match name {
                SUM => split_sum(text.value()).1,
                _ => text.value(),
            };
            tally.add(name, usage::from_text(numbers));
        }
    }
    Ok(tally.page())
}

fn tokens_of_day(from: &ReadTransaction, tenant: &Tenant, day: Date) -> Result<u64, Error> {
    let Some(table) = open(from)? else { return Ok(0) };
    let day = day.to_string();
    let mut tokens = 0_u64;
    for partition in Partition::all().map(partition_number) {
        let sum = table.get((day.as_str(), tenant.as_str(), partition, SUM))?;
        let sum = sum.map(|text| usage::from_text(split_sum(text.value()).1).tokens());
        tokens = tokens.saturating_add(sum.unwrap_or_default());
    }
    Ok(tokens)
}

/// The table; `None` in a store of an earlier version that had no room for it.
fn open(from: &ReadTransaction) -> Result<Option<ReadOnlyTable<Key, &'static str>>, Error> {
    match from.open_table(USAGE) {
        Ok(table) => Ok(Some(table)),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn partition_number(partition: Partition) -> u16 {
    u16::try_from(partition.index()).unwrap_or(u16::MAX)
}
