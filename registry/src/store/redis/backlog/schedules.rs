//! Schedules in Redis: in each partition a hash of them, one of their versions, and a sorted set of
//! their next ticks; and a listing for each tenant. One set for all partitions names those that have
//! schedules, so that the others are not asked each second what is due.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use abide_actors::journal::StoreError;
use abide_conversation::{ScheduleName, Scoped, Tenant, Timestamp};
use async_trait::async_trait;
use redis::cmd;

use super::super::super::schedules::{Schedules, partition_of};
use super::super::super::{ListError, Page, paging, sealing};
use super::super::Redis;
use super::super::command::keys::{self, Tag};
use super::super::command::script::ScriptCall;
use super::super::connection::execute::read;
use super::super::rows::decode;
use super::super::rows::pager::Pager;
use super::super::scripts::{FORGET_SCHEDULE, SCHEDULE};
use crate::partition::{Partition, PartitionSet};
use crate::schedules::Schedule;

pub(in crate::store::redis) const SCHEDULES: &str = "schedules";
const VERSIONS: &str = "schedule_versions";
const DUE: &str = "schedules_due";
const NAMES: &str = "schedule_names";
/// The numbers of the partitions that have schedules, or had some.
const PARTITIONS: &str = "schedule_partitions";
/// One of this number of polls asks all partitions: the set is on a server of its own, whose fail-over may lose
/// what the partition's server has kept. A poll is about a second.
const POLLS_PER_FULL_POLL: u64 = 60;

#[async_trait]
impl Schedules for Redis {
    async fn schedule(&self, name: &Scoped<ScheduleName>) -> Result<Option<Schedule>, StoreError> {
        let tag = Tag::Partition(partition_of(name));
        let mut command = cmd("HGET");
        command.arg(tag.key(SCHEDULES)).arg(name.as_str());
        let json: Option<Vec<u8>> = self.query_confirmed(tag, command).await?;
        json.map(|json| self.opened_schedule(name.as_str(), &json)).transpose()
    }

    async fn replace_schedule(
        &self,
        name: &Scoped<ScheduleName>,
        known: Option<u64>,
        next: Option<&Schedule>,
    ) -> Result<bool, StoreError> {
        let (tag, nonce) = (Tag::Partition(partition_of(name)), self.nonce());
        let keys = [
            tag.common(SCHEDULES),
            tag.common(VERSIONS),
            tag.common(DUE),
            tag.listing(name.prefix(), NAMES),
            tag.own("done", &nonce),
        ];
        if next.is_some() {
            // It is named before it has a schedule, and stays named.
            let mut command = cmd("SADD");
            command.arg(Tag::Agents.key(PARTITIONS)).arg(partition_of(name).to_string());
            self.query::<u64>(Tag::Agents, command).await?;
        }
        let known = known.map(|version| version.to_string()).unwrap_or_default();
        let script = if next.is_some() { &SCHEDULE } else { &FORGET_SCHEDULE };
        let call = ScriptCall::new(script, tag, keys).arg(name.as_str()).arg(known);
        let call = match next {
            Some(next) => {
                let due = next.due_at().map(keys::score).unwrap_or_default();
                let call = call.arg(next.version);
                match &self.sealer {
                    None => call.json("", next)?.arg(due),
                    Some(it) => call.json("", &it.seal_schedule(name.as_str(), next)?)?.arg(due),
                }
            }
            None => call.arg("").arg("").arg(""),
        };
        self.call_durably(call).await
    }

    async fn schedules(
        &self,
        tenant: &Tenant,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<Schedule>, ListError> {
        let after: Option<String> = paging::decode(cursor)?;
        let name = |text: &str| Scoped::<ScheduleName>::parse(text).ok();
        let is_own = |text: &String| name(text).is_some_and(|name| name.is_of(tenant));
        if after.as_ref().is_some_and(|after| !is_own(after)) {
            return Err(ListError::Cursor);
        }
        let index = format!("{}{NAMES}", keys::prefix_of(tenant));
        let mut pager = Pager::new(index, Partition::all(), after, limit);
        while let Some(rows) = pager.rows(self).await? {
            let queries = rows.iter().map(|row| {
                let tag = Tag::Partition(row.partition);
                let mut command = cmd("HGET");
                command.arg(tag.key(SCHEDULES)).arg(&row.member);
                (tag, command)
            });
            let answers = self.query_all(queries.collect()).await?;
            for (row, answer) in rows.into_iter().zip(answers) {
                let json: Option<Vec<u8>> = read("schedule", answer)?;
                let found = json.map(|json| self.opened_schedule(&row.member, &json));
                let found = sealing::listed(found.transpose())?;
                pager.take(row, found);
            }
        }
        Ok(pager.page(|member| Some(member.to_owned())))
    }

    async fn schedule_count(&self, tenant: &Tenant) -> Result<u64, StoreError> {
        let index = format!("{}{NAMES}", keys::prefix_of(tenant));
        let query = |partition| {
            let tag = Tag::Partition(partition);
            let mut command = cmd("ZCARD");
            command.arg(tag.key(&index));
            (tag, command)
        };
        let counts = self.query_all(Partition::all().map(query).collect()).await?;
        counts.into_iter().map(|count| read::<u64>("schedules", count)).sum()
    }

    async fn due_schedules(
        &self,
        partitions: &PartitionSet,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Scoped<ScheduleName>, Timestamp)>, StoreError> {
        let polls = self.schedule_polls.fetch_add(1, Ordering::Relaxed);
        let asked = if polls.is_multiple_of(POLLS_PER_FULL_POLL) {
            partitions.clone()
        } else {
            self.scheduled_among(partitions).await?
        };
        let rows = self.read_due(DUE, &asked, &keys::score_until(until), limit).await?;
        let named = rows.into_iter().map(|(name, at)| {
            let name = Scoped::parse(&name);
            Ok((name.map_err(|error| StoreError::Unavailable(error.to_string()))?, at))
        });
        let mut due = named.collect::<Result<Vec<_>, StoreError>>()?;
        due.sort_by(|(name, at), (other, later)| (at, name).cmp(&(later, other)));
        Ok(due)
    }
}

impl Redis {
    fn opened_schedule(&self, name: &str, json: &[u8]) -> Result<Schedule, StoreError> {
        let schedule = decode::parse("schedule", json)?;
        match &self.sealer {
            Some(sealer) => sealer.open_schedule(name, schedule),
            None => Ok(schedule),
        }
    }

    /// Those of these partitions that have schedules, or had some.
    pub(in crate::store::redis) async fn scheduled_among(
        &self,
        partitions: &PartitionSet,
    ) -> Result<PartitionSet, StoreError> {
        let mut command = cmd("SMEMBERS");
        command.arg(Tag::Agents.key(PARTITIONS));
        let named: BTreeSet<String> = self.query(Tag::Agents, command).await?;
        Ok(partitions.iter().filter(|partition| named.contains(&partition.to_string())).collect())
    }
}
