//! What the memory store counts of tenants.

use std::collections::BTreeMap;

use abide_actors::journal::{Commit, StoreError};
use abide_actors::usage_counts::UsageCounts;
use abide_conversation::{ConversationId, Scoped, Tenant};
use async_trait::async_trait;
use jiff::civil::Date;

use super::super::usage::{
    self, MAX_ROWS, SUM, TenantCounts, UsageEntry, UsagePage, UsageQuery, UsageTally,
};
use super::Memory;
use crate::partition::Partition;

/// The usage of each day, tenant and partition: its sum, and its rows.
pub(super) type DayTables = BTreeMap<(Date, Tenant, Partition), (UsageCounts, Rows)>;
type Rows = BTreeMap<String, UsageCounts>;

/// Adds what a commit counts.
pub(super) fn count(days: &mut DayTables, id: &Scoped<ConversationId>, commit: &Commit) {
    let Some(UsageEntry { day, row, row_without_owner, counts }) = UsageEntry::of(commit) else {
        return;
    };
    let (sum, rows) = days.entry((day, id.tenant(), Partition::from(id))).or_default();
    let has_room = rows.contains_key(&row) || (rows.len() as u64) < MAX_ROWS;
    *rows.entry(if has_room { row } else { row_without_owner }).or_default() += counts;
    *sum += counts;
    let first = usage::first_day_kept(day);
    while days.first_key_value().is_some_and(|((day, ..), _)| *day < first) {
        days.pop_first();
    }
}

#[async_trait]
impl TenantCounts for Memory {
    async fn usage(&self, query: &UsageQuery) -> Result<UsagePage, StoreError> {
        let tables = self.tables();
        let mut tally = UsageTally::new(query);
        let wanted = tables.usage.iter().filter(|((day, tenant, _), _)| {
            *tenant == query.tenant && (query.first..=query.last).contains(day)
        });
        for (_, (sum, rows)) in wanted {
            tally.add(SUM, *sum);
            rows.iter().for_each(|(row, counts)| tally.add(row, *counts));
        }
        Ok(tally.page())
    }

    async fn tokens_of_day(&self, tenant: &Tenant, day: Date) -> Result<u64, StoreError> {
        let tables = self.tables();
        let of_day = tables.usage.iter().filter(|((on, of, _), _)| (*on, of) == (day, tenant));
        Ok(of_day.map(|(_, (sum, _))| sum.tokens()).fold(0, u64::saturating_add))
    }

    async fn conversation_count(&self, tenant: &Tenant) -> Result<u64, StoreError> {
        let tables = self.tables();
        Ok(tables.conversations.keys().filter(|id| id.is_of(tenant)).count() as u64)
    }

    async fn blob_bytes(&self, tenant: &Tenant) -> Result<u64, StoreError> {
        let tables = self.tables();
        let own = tables.blobs.iter().filter(|(id, _)| id.is_of(tenant));
        Ok(own.map(|(_, blob)| blob.bytes().len() as u64).sum())
    }
}
