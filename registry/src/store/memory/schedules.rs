//! Schedules in memory.

use std::collections::BTreeMap;
use std::ops::Bound;

use abide_actors::journal::StoreError;
use abide_conversation::{ScheduleName, Scoped, Tenant, Timestamp};
use async_trait::async_trait;

use super::super::schedules::{Schedules, partition_of};
use super::super::{ListError, Page, paging};
use super::Memory;
use crate::partition::PartitionSet;
use crate::schedules::Schedule;

pub(super) type Table = BTreeMap<Scoped<ScheduleName>, Schedule>;

#[async_trait]
impl Schedules for Memory {
    async fn schedule(&self, name: &Scoped<ScheduleName>) -> Result<Option<Schedule>, StoreError> {
        Ok(self.tables().schedules.get(name).cloned())
    }

    async fn replace_schedule(
        &self,
        name: &Scoped<ScheduleName>,
        known: Option<u64>,
        next: Option<&Schedule>,
    ) -> Result<bool, StoreError> {
        let table = &mut self.tables().schedules;
        if table.get(name).map(|schedule| schedule.version) != known {
            return Ok(false);
        }
        match next {
            Some(next) => table.insert(name.clone(), next.clone()),
            None => table.remove(name),
        };
        Ok(true)
    }

    async fn schedules(
        &self,
        tenant: &Tenant,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<Schedule>, ListError> {
        let after: Option<Scoped<ScheduleName>> = paging::decode(cursor)?;
        if after.as_ref().is_some_and(|after| !after.is_of(tenant)) {
            return Err(ListError::Cursor);
        }
        let tables = self.tables();
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rows = tables.schedules.range((begin, Bound::Unbounded));
        let own = rows.filter(|(name, _)| name.is_of(tenant));
        let rows = own.map(|(name, schedule)| Ok((name.clone(), schedule.clone())));
        paging::page(rows, limit, |_| true)
    }

    async fn schedule_count(&self, tenant: &Tenant) -> Result<u64, StoreError> {
        let tables = self.tables();
        Ok(tables.schedules.keys().filter(|name| name.is_of(tenant)).count() as u64)
    }

    async fn due_schedules(
        &self,
        partitions: &PartitionSet,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Scoped<ScheduleName>, Timestamp)>, StoreError> {
        let tables = self.tables();
        let due = |(name, schedule): (&Scoped<ScheduleName>, &Schedule)| {
            let at = schedule.due_at().filter(|at| *at <= until)?;
            partitions.contains(partition_of(name)).then(|| (name.clone(), at))
        };
        let mut due: Vec<_> = tables.schedules.iter().filter_map(due).collect();
        due.sort_by(|(name, at), (other, later)| (at, name).cmp(&(later, other)));
        due.truncate(limit);
        Ok(due)
    }
}
