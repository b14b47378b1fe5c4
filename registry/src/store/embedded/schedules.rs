//! Schedules in the file: a table for each tenant, and one of all next ticks.

use abide_actors::journal::StoreError;
use abide_conversation::{ScheduleName, Scoped, Tenant, Timestamp};
use async_trait::async_trait;
use redb::{Error, ReadTransaction, ReadableTable, ReadableTableMetadata, TableError};
use redb::{TableDefinition, WriteTransaction};

use super::super::schedules::{Schedules, partition_of};
use super::super::{ListError, Page, paging};
use super::encryption::{Snapshot, failed};
use super::tables::{self, Listed, Nanos, nanos};
use super::write::Write;
use super::{Embedded, encode};
use crate::partition::PartitionSet;
use crate::schedules::Schedule;

/// Schedule → what is stored of it.
const SCHEDULES: Listed<&str, &[u8]> = Listed::new("schedules");
/// Next tick, schedule.
const DUE: TableDefinition<(Nanos, &str), ()> = TableDefinition::new("schedules_due");

/// A change of a schedule, encoded by the caller.
pub(super) struct ScheduleChange {
    name: Scoped<ScheduleName>,
    known: Option<u64>,
    /// The schedule from now on, and its next tick.
    next: Option<(Vec<u8>, Option<Nanos>)>,
}

#[async_trait]
impl Schedules for Embedded {
    async fn schedule(&self, name: &Scoped<ScheduleName>) -> Result<Option<Schedule>, StoreError> {
        let stored = self.read_row(|from| match SCHEDULES.open(from, &name.tenant())? {
            Some(table) => stored(&table, name),
            None => Ok(None),
        })?;
        match self.sealer() {
            Some(sealer) => stored.map(|it| sealer.open_schedule(name.as_str(), it)).transpose(),
            None => Ok(stored),
        }
    }

    async fn replace_schedule(
        &self,
        name: &Scoped<ScheduleName>,
        known: Option<u64>,
        next: Option<&Schedule>,
    ) -> Result<bool, StoreError> {
        let next = match next {
            Some(next) => {
                let json = match self.sealer() {
                    None => encode::json(next)?,
                    Some(it) => encode::json(&it.seal_schedule(name.as_str(), next)?)?,
                };
                Some((json, next.due_at().map(nanos)))
            }
            None => None,
        };
        let change = ScheduleChange { name: name.clone(), known, next };
        self.write(Write::ReplaceSchedule(Box::new(change))).await
    }

    async fn schedules(
        &self,
        tenant: &Tenant,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<Schedule>, ListError> {
        let after: Option<String> = paging::decode(cursor)?;
        let is_own = |text: &String| {
            Scoped::<ScheduleName>::parse(text).is_ok_and(|name| name.is_of(tenant))
        };
        if after.as_ref().is_some_and(|after| !is_own(after)) {
            return Err(ListError::Cursor);
        }
        let tenant = tenant.clone();
        Ok(self.read(move |from| page(from, &tenant, after.as_deref(), limit)).await?)
    }

    async fn schedule_count(&self, tenant: &Tenant) -> Result<u64, StoreError> {
        self.read_row(|from| match SCHEDULES.open(from, tenant)? {
            Some(table) => Ok(table.len()?),
            None => Ok(0),
        })
    }

    async fn due_schedules(
        &self,
        partitions: &PartitionSet,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Scoped<ScheduleName>, Timestamp)>, StoreError> {
        let partitions = partitions.clone();
        self.read(move |from| due(from, &partitions, until, limit)).await
    }
}

/// Returns whether the schedule had the version that was known.
pub(super) fn replace(to: &WriteTransaction, change: &ScheduleChange) -> Result<bool, Error> {
    let ScheduleChange { name, known, next } = change;
    let mut table = SCHEDULES.open_to_write(to, &name.tenant())?;
    let before = stored(&table, name)?;
    if before.as_ref().map(|before| before.version) != *known {
        return Ok(false);
    }
    let mut due = to.open_table(DUE)?;
    if let Some(at) = before.as_ref().and_then(Schedule::due_at) {
        due.remove((nanos(at), name.as_str()))?;
    }
    match next {
        Some((json, at)) => {
            table.insert(name.as_str(), json.as_slice())?;
            if let Some(at) = at {
                due.insert((*at, name.as_str()), ())?;
            }
        }
        None => drop(table.remove(name.as_str())?),
    }
    Ok(true)
}

fn stored(
    table: &impl ReadableTable<&'static str, &'static [u8]>,
    name: &Scoped<ScheduleName>,
) -> Result<Option<Schedule>, Error> {
    let json = table.get(name.as_str())?;
    json.map(|json| tables::parse("schedule", json.value())).transpose()
}

fn page(
    from: &Snapshot<'_>,
    tenant: &Tenant,
    after: Option<&str>,
    limit: usize,
) -> Result<Page<Schedule>, Error> {
    let Some(table) = SCHEDULES.open(from, tenant)? else { return Ok(paging::empty()) };
    let begin = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
    let rows = table.range::<&str>((begin, std::ops::Bound::Unbounded))?.map(|row| {
        let (name, json) = row?;
        let (name, schedule) = (name.value(), tables::parse::<Schedule>("schedule", json.value())?);
        let opened = match from.sealer {
            None => schedule,
            Some(sealer) => sealer.open_schedule(name, schedule).map_err(failed)?,
        };
        Ok((name.to_owned(), opened))
    });
    paging::page(rows, limit, |_| true)
}

fn due(
    from: &ReadTransaction,
    partitions: &PartitionSet,
    until: Timestamp,
    limit: usize,
) -> Result<Vec<(Scoped<ScheduleName>, Timestamp)>, Error> {
    let table = match from.open_table(DUE) {
        Ok(table) => table,
        // No schedule was ever put.
        Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut due = Vec::new();
    for row in table.range::<(Nanos, &str)>(..=(nanos(until), "\u{10ffff}"))? {
        let key = row?.0;
        let (at, name) = key.value();
        let corrupted = |error| Error::Corrupted(format!("schedule: {error}"));
        let name = Scoped::<ScheduleName>::parse(name).map_err(corrupted)?;
        if partitions.contains(partition_of(&name)) {
            due.push((name, tables::timestamp(at)?));
        }
        if due.len() >= limit {
            break;
        }
    }
    Ok(due)
}
