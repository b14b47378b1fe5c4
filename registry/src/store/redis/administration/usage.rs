//! What Redis counts of tenants: a hash for each day and partition, with the rows of agents and
//! owners; the sizes of the listings; the bytes of blobs.

use std::collections::HashMap;

use abide_actors::journal::StoreError;
use abide_conversation::Tenant;
use async_trait::async_trait;
use jiff::civil::Date;
use redis::{Cmd, FromRedisValue, cmd};

use super::super::super::usage::{self, SUM, TenantCounts, UsagePage, UsageQuery, UsageTally};
use super::super::Redis;
use super::super::command::keys::{self, Tag};
use super::super::connection::execute::read;
use crate::partition::{PARTITIONS, Partition};

/// Sums that are read at once: a server answers all of them before it serves another connection.
const SUMS_PER_READ: usize = 8 * PARTITIONS;
/// Hashes that are read at once: some megabytes at most, if each has all the rows that it may have.
const HASHES_PER_READ: usize = 32;

/// The keys of what is counted of a tenant's blobs.
pub(in crate::store::redis) const BLOBS: &str = "blobs";

#[async_trait]
impl TenantCounts for Redis {
    async fn usage(&self, query: &UsageQuery) -> Result<UsagePage, StoreError> {
        let prefix = keys::prefix_of(&query.tenant);
        let mut tally = UsageTally::new(query);
        let places: Vec<(Tag, String)> =
            usage::days(query).flat_map(|day| places_of(&prefix, day)).collect();
        for places in places.chunks(SUMS_PER_READ) {
            let sums: Vec<Option<String>> = self.read_each(places, query_sum).await?;
            let there = places.iter().zip(sums).filter(|(_, sum)| sum.is_some());
            let there: Vec<(Tag, String)> = there.map(|(place, _)| place.clone()).collect();
            for places in there.chunks(HASHES_PER_READ) {
                let hashes: Vec<HashMap<String, String>> =
                    self.read_each(places, |key| command("HGETALL", key)).await?;
                for (row, text) in hashes.into_iter().flatten() {
                    tally.add(&row, usage::from_text(&text));
                }
            }
        }
        Ok(tally.page())
    }

    async fn tokens_of_day(&self, tenant: &Tenant, day: Date) -> Result<u64, StoreError> {
        let places: Vec<_> = places_of(&keys::prefix_of(tenant), day).collect();
        let sums: Vec<Option<String>> = self.read_each(&places, query_sum).await?;
        let tokens = sums.iter().flatten().map(|text| usage::from_text(text).tokens());
        Ok(tokens.fold(0, u64::saturating_add))
    }

    async fn conversation_count(&self, tenant: &Tenant) -> Result<u64, StoreError> {
        let places: Vec<_> = places(&keys::prefix_of(tenant), "ids").collect();
        let counts: Vec<u64> = self.read_each(&places, |key| command("ZCARD", key)).await?;
        Ok(counts.iter().sum())
    }

    async fn blob_bytes(&self, tenant: &Tenant) -> Result<u64, StoreError> {
        let places: Vec<_> = places(&keys::prefix_of(tenant), BLOBS).collect();
        let query = |key: &str| {
            let mut query = command("HGET", key);
            query.arg("bytes");
            query
        };
        let bytes: Vec<Option<i64>> = self.read_each(&places, query).await?;
        let bytes = bytes.into_iter().flatten().map(|bytes| u64::try_from(bytes).unwrap_or(0));
        Ok(bytes.sum())
    }
}

impl Redis {
    /// The keys of a tenant's usage that exist, of all days that are kept up to this one.
    pub(super) async fn usage_keys_until(
        &self,
        prefix: &str,
        last: Date,
    ) -> Result<Vec<(Tag, String)>, StoreError> {
        let first = usage::first_day_kept(last);
        let days = std::iter::successors(Some(first), |day| day.tomorrow().ok());
        let names = days.take_while(|day| *day <= last).map(name_of);
        let all: Vec<(Tag, String)> = names
            .flat_map(|name| Partition::all().map(move |it| (Tag::Partition(it), name.clone())))
            .collect();
        let mut there = Vec::new();
        for some in all.chunks(SUMS_PER_READ) {
            let place =
                |(tag, name): &(Tag, String)| (*tag, tag.listing(prefix, name).into_string());
            let places: Vec<_> = some.iter().map(place).collect();
            let sums: Vec<Option<String>> = self.read_each(&places, query_sum).await?;
            let found = some.iter().zip(sums).filter(|(_, sum)| sum.is_some());
            there.extend(found.map(|(key, _)| key.clone()));
        }
        Ok(there)
    }

    /// Reads from each of these keys by one command.
    async fn read_each<T: FromRedisValue>(
        &self,
        places: &[(Tag, String)],
        query: impl Fn(&str) -> Cmd,
    ) -> Result<Vec<T>, StoreError> {
        let queries = places.iter().map(|(tag, key)| (*tag, query(key))).collect();
        let answers = self.query_all(queries).await?;
        answers.into_iter().map(|answer| read("counts", answer)).collect()
    }
}

/// The name of the keys of a day's usage, of which each partition and tenant has one.
pub(in crate::store::redis) fn name_of(day: Date) -> String {
    format!("usage:{day}")
}

fn places_of(prefix: &str, day: Date) -> impl Iterator<Item = (Tag, String)> {
    places(prefix, &name_of(day)).collect::<Vec<_>>().into_iter()
}

/// The key of this name in each partition.
fn places(prefix: &str, name: &str) -> impl Iterator<Item = (Tag, String)> {
    let place = move |tag: Tag| (tag, tag.listing(prefix, name).into_string());
    Partition::all().map(Tag::Partition).map(place)
}

fn query_sum(key: &str) -> Cmd {
    let mut query = command("HGET", key);
    query.arg(SUM);
    query
}

fn command(name: &str, key: &str) -> Cmd {
    let mut command = cmd(name);
    command.arg(key);
    command
}
