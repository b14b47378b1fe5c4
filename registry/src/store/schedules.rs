//! Schedules in a store.

use abide_actors::journal::StoreError;
use abide_conversation::{ScheduleName, Scoped, Tenant, Timestamp};
use async_trait::async_trait;

use super::{ListError, Page};
use crate::partition::{Partition, PartitionSet};
use crate::schedules::Schedule;

/// Keeps schedules, and finds those that are due.
#[async_trait]
pub trait Schedules: Send + Sync + 'static {
    /// A schedule by its name.
    async fn schedule(&self, name: &Scoped<ScheduleName>) -> Result<Option<Schedule>, StoreError>;

    /// Writes a schedule, or removes it, if the one that is stored has the version `known`; `None` if
    /// there is to be none. Returns whether that was so; otherwise nothing is written.
    async fn replace_schedule(
        &self,
        name: &Scoped<ScheduleName>,
        known: Option<u64>,
        next: Option<&Schedule>,
    ) -> Result<bool, StoreError>;

    /// The schedules of a tenant, sorted by name.
    async fn schedules(
        &self,
        tenant: &Tenant,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<Schedule>, ListError>;

    /// How many schedules a tenant has.
    async fn schedule_count(&self, tenant: &Tenant) -> Result<u64, StoreError>;

    /// The schedules of these partitions that are due by `until`, earliest first: at least the first
    /// `limit` of them, and at most `limit` of each partition.
    async fn due_schedules(
        &self,
        partitions: &PartitionSet,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Scoped<ScheduleName>, Timestamp)>, StoreError>;
}

/// The partition of a schedule.
pub(super) fn partition_of(name: &Scoped<ScheduleName>) -> Partition {
    Partition::of(name.as_str())
}
