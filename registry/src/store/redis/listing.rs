//! The index of lists in Redis: a sorted set for each partition and tenant; and beside it, the list of
//! open suspensions.

mod open_suspensions;

use std::collections::VecDeque;

use abide_actors::journal::{ConversationSummary, StoreError};
use abide_conversation::{ConversationId, Scoped, Tenant};
use async_trait::async_trait;
use redis::{Cmd, cmd};

use super::super::listing::{
    Direction, Entry, IndexMember, ListQuery, ListedConversation, MemberParts, Plan, is_as_read,
};
use super::super::sealing::Sealer;
use super::super::stored_form::StoredForm;
use super::super::{IndexJobs, ListError, Lists, Page, Rebuild, paging};
use super::Redis;
use super::command::keys::{self, Tag};
use super::command::script::ScriptCall;
use super::connection::execute::read;
use super::rows::decode::{self, LISTING, METADATA};
use super::scripts::{REBUILD as REBUILD_SCRIPT, RELIST};
use crate::partition::Partition;

/// The sorted set of a partition and tenant.
pub(super) const INDEX: &str = "lists";
const KIND: &str = "redis";
/// How many conversations one page looks at before it ends early: some hundred milliseconds at most.
const MAX_SCANNED: usize = 2_000;
/// How many conversations are looked at at once.
const BATCH: usize = 256;

/// The partitions in which members are counted to choose among properties: one of this many. Ids are
/// spread evenly over all.
const SAMPLE_STEP: usize = 16;

/// The members of one property in one partition, read a few at a time.
struct Range {
    partition: Partition,
    prefix: String,
    /// Read and not yet taken, in the order of the list.
    places: VecDeque<IndexMember>,
    /// The last member that was read.
    last: Option<String>,
    has_more: bool,
}

impl Range {
    fn new(partition: Partition, prefix: &str) -> Self {
        let (prefix, places) = (prefix.to_owned(), VecDeque::new());
        Self { partition, prefix, places, last: None, has_more: true }
    }

    /// The query for the next members; between equal ones there is none.
    fn query(&self, plan: &Plan, index: &str, count: usize) -> (Tag, Cmd) {
        let (tag, mut command) = (Tag::Partition(self.partition), cmd("ZRANGE"));
        let bounds = plan.bounds(&self.prefix, self.last.as_deref()).unwrap_or_default();
        let (first, last) = (format!("({}", bounds.0), format!("({}", bounds.1));
        command.arg(tag.key(index));
        match plan.direction() {
            Direction::Ascending => command.arg(first).arg(last).arg("BYLEX"),
            Direction::Descending => command.arg(last).arg(first).arg("BYLEX").arg("REV"),
        };
        command.arg("LIMIT").arg(0).arg(count);
        (tag, command)
    }

    fn take(&mut self, members: &[String], count: usize) {
        self.has_more = members.len() >= count;
        self.places.extend(members.iter().filter_map(|member| IndexMember::parse(member)));
        if let Some(suffix) = members.last().and_then(|last| last.get(self.prefix.len()..)) {
            self.last = Some(suffix.to_owned());
        }
    }

    fn is_empty_for_now(&self) -> bool {
        self.places.is_empty() && self.has_more
    }
}

/// All ranges of a page, merged.
struct Ranges<'a> {
    plan: &'a Plan,
    index: String,
    ranges: Vec<Range>,
}

impl<'a> Ranges<'a> {
    fn new(plan: &'a Plan, tenant: &Tenant) -> Self {
        let of = |it| plan.prefixes().iter().map(move |prefix| Range::new(it, prefix));
        let ranges = Partition::all().flat_map(of).collect();
        Self { plan, index: index_of(tenant), ranges }
    }

    /// The next places, in order, at most this many; none at the end of the list.
    async fn next(
        &mut self,
        redis: &Redis,
        wanted: usize,
    ) -> Result<Vec<(IndexMember, Partition, String)>, StoreError> {
        let mut found = Vec::new();
        while found.len() < wanted {
            let open = self.ranges.iter().filter(|range| range.is_empty_for_now()).count();
            if open > 0 {
                self.fill(redis, 2 * (wanted - found.len()).div_ceil(open) + 1).await?;
            }
            let Some(at) = self.nearest() else { break };
            let range = &mut self.ranges[at];
            if let Some(place) = range.places.pop_front() {
                found.push((place, range.partition, range.prefix.clone()));
            }
        }
        Ok(found)
    }

    /// Reads on in each range of which nothing is left: what comes next may be there.
    async fn fill(&mut self, redis: &Redis, count: usize) -> Result<(), StoreError> {
        let (plan, index) = (self.plan, &self.index);
        let empty: Vec<&mut Range> =
            self.ranges.iter_mut().filter(|range| range.is_empty_for_now()).collect();
        let queries = empty.iter().map(|range| range.query(plan, index, count)).collect();
        let answers = redis.query_all(queries).await?;
        for (range, answer) in empty.into_iter().zip(answers) {
            let members: Vec<String> = read(index, answer)?;
            range.take(&members, count);
        }
        Ok(())
    }

    /// The range that has the next place; `None` if none has any.
    fn nearest(&self) -> Option<usize> {
        let firsts = self.ranges.iter().enumerate();
        let firsts = firsts.filter_map(|(at, range)| Some((&range.places.front()?.suffix, at)));
        match self.plan.direction() {
            Direction::Ascending => firsts.min().map(|(_, at)| at),
            Direction::Descending => firsts.max().map(|(_, at)| at),
        }
    }
}

#[async_trait]
impl Lists for Redis {
    async fn list(
        &self,
        tenant: &Tenant,
        query: &ListQuery,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<ListedConversation>, ListError> {
        let index_key = self.sealer.as_deref().and_then(Sealer::index_key);
        let Some(mut plan) = Plan::new(KIND, tenant, query, cursor, index_key)? else {
            return Ok(paging::empty());
        };
        self.choose_property(tenant, &mut plan).await?;
        let mut ranges = Ranges::new(&plan, tenant);
        let (mut items, mut after) = (Vec::new(), None);
        let mut scanned = 0;
        loop {
            // One more than the page holds shows whether it is the last.
            let wanted = (limit.max(1) - items.len() + 1).min(BATCH);
            let places = ranges.next(self, wanted).await?;
            if places.is_empty() {
                return Ok(Page { items, cursor: None });
            }
            let listed = self.listed(&places).await?;
            for ((place, ..), listed) in places.into_iter().zip(listed) {
                if items.len() >= limit.max(1) || scanned >= MAX_SCANNED {
                    let cursor = after.as_deref().map(|after| plan.position(after));
                    return Ok(Page { items, cursor: cursor.as_ref().map(paging::encode) });
                }
                items.extend(listed.filter(|listed| query.admits(&listed.summary)));
                scanned += 1;
                after = Some(place.suffix);
            }
        }
    }

    async fn relist(
        &self,
        id: &Scoped<ConversationId>,
        summary: &ConversationSummary,
        indexed: &[String],
    ) -> Result<bool, StoreError> {
        let tag = Tag::of(id);
        let keys = [tag.own("c", id.as_str()), tag.listing(id.prefix(), INDEX)];
        let row = self.query_row(decode::query_summary(id)).await?;
        let participants = decode::stored_participants(id, row.clone())?;
        match decode::summary(self.sealer.as_deref(), id, row) {
            // What a list could not show of it must not be overwritten by that.
            Err(StoreError::Unreadable(_)) => return Ok(true),
            Ok(Some(present)) if !is_as_read(&present, summary) => return Ok(false),
            Ok(_) | Err(_) => {}
        }
        let key = self.present_key(id).await?;
        let call = ScriptCall::new(&RELIST, tag, keys);
        let call = call.arg(id.as_str()).arg(summary.last_seq.get()).arg(participants);
        let index_key = self.sealer.as_deref().and_then(Sealer::new_index_key);
        let entry = Entry::new(summary, indexed, index_key);
        self.call(call.listed(summary, &entry, self.stored_form(key.as_ref()))?).await
    }

    async fn rebuild(&self) -> Result<Option<Rebuild>, StoreError> {
        let (tag, mut command) = (rebuild_tag(), cmd("GET"));
        command.arg(tag.key(REBUILD));
        let json: Option<Vec<u8>> = self.query_confirmed(tag, command).await?;
        json.map(|json| decode::parse("rebuild", &json)).transpose()
    }

    async fn replace_rebuild(
        &self,
        present: Option<&Rebuild>,
        next: &Rebuild,
    ) -> Result<bool, StoreError> {
        let tag = rebuild_tag();
        let call = ScriptCall::new(&REBUILD_SCRIPT, tag, [tag.common(REBUILD)]);
        let call = match present {
            Some(present) => call.json("", present)?,
            None => call.arg(""),
        };
        self.call_durably(call.json("", next)?).await
    }

    async fn index_jobs(&self) -> Result<IndexJobs, StoreError> {
        let (tag, mut command) = (rebuild_tag(), cmd("GET"));
        command.arg(tag.key(INDEX_JOBS));
        let json: Option<Vec<u8>> = self.query(tag, command).await?;
        let jobs = json.map(|json| decode::parse(INDEX_JOBS, &json)).transpose()?;
        Ok(jobs.unwrap_or_default())
    }

    async fn replace_index_jobs(
        &self,
        present: &IndexJobs,
        next: &IndexJobs,
    ) -> Result<bool, StoreError> {
        let tag = rebuild_tag();
        let call = ScriptCall::new(&REBUILD_SCRIPT, tag, [tag.common(INDEX_JOBS)]);
        let call = match present.version {
            0 => call.arg(""),
            _ => call.json("", present)?,
        };
        self.call_durably(call.json("", next)?).await
    }
}

/// Where the progress of a rebuild is stored.
const REBUILD: &str = "rebuild";
/// Where the agents are stored whose conversations are to be indexed anew.
const INDEX_JOBS: &str = "index_jobs";

fn rebuild_tag() -> Tag {
    Tag::Partition(Partition::of(REBUILD))
}

/// The name of a tenant's index.
fn index_of(tenant: &Tenant) -> String {
    format!("{}{INDEX}", keys::prefix_of(tenant))
}

impl Redis {
    /// Has the property read that has the fewest members in a sample of the partitions.
    async fn choose_property(&self, tenant: &Tenant, plan: &mut Plan) -> Result<(), StoreError> {
        if plan.properties().len() < 2 {
            return Ok(());
        }
        let index = index_of(tenant);
        let (mut queries, mut counted) = (Vec::new(), Vec::new());
        for (property, prefixes) in plan.properties().iter().enumerate() {
            for prefix in prefixes {
                let (first, last) = plan.bounds(prefix, None).unwrap_or_default();
                for partition in Partition::all().step_by(SAMPLE_STEP) {
                    let (tag, mut command) = (Tag::Partition(partition), cmd("ZLEXCOUNT"));
                    command.arg(tag.key(&index)).arg(format!("({first}")).arg(format!("({last}"));
                    queries.push((tag, command));
                    counted.push(property);
                }
            }
        }
        let mut sizes = vec![0_u64; plan.properties().len()];
        for (property, answer) in counted.into_iter().zip(self.query_all(queries).await?) {
            sizes[property] += read::<u64>(&index, answer)?;
        }
        let smallest = sizes.iter().enumerate().min_by_key(|(_, size)| **size);
        plan.choose(smallest.map_or(0, |(property, _)| property));
        Ok(())
    }

    /// The conversations at these places; `None` for one that is not there any more.
    async fn listed(
        &self,
        places: &[(IndexMember, Partition, String)],
    ) -> Result<Vec<Option<ListedConversation>>, StoreError> {
        let queries = places.iter().flat_map(|(IndexMember { id, .. }, partition, _)| {
            let tag = Tag::Partition(*partition);
            let own = |name: &str, kind| {
                let mut command = cmd(name);
                command.arg(tag.key_of(kind, id.as_str()));
                command
            };
            let mut listed = own("HGET", "c");
            listed.arg("listed");
            [decode::query_summary(id), (tag, listed), (tag, own("HLEN", "o"))]
        });
        let mut answers = self.query_all(queries.collect()).await?.into_iter();
        let mut listed = Vec::with_capacity(places.len());
        while let (Some(summary), Some(entry), Some(pending)) =
            (answers.next(), answers.next(), answers.next())
        {
            let (place, _, prefix) = &places[listed.len()];
            let entry: Option<String> = read("entry", entry)?;
            let sealer = self.sealer.as_deref();
            let summary = decode::listed_summary(sealer, &place.id, summary)?;
            let pending = read("suspensions", pending)?;
            let summary = summary.filter(|_| stands_there(entry.as_deref(), place, prefix));
            let id = place.id.clone();
            listed.push(summary.map(|summary| ListedConversation { id, summary, pending }));
        }
        Ok(listed)
    }
}

/// Whether a conversation still has the member by which it was found. One that is deleted by a version
/// of the program without lists leaves its members, and another one may have its id now.
fn stands_there(entry: Option<&str>, place: &IndexMember, prefix: &str) -> bool {
    let member = format!("{prefix}{}", place.suffix);
    let is_it = |parts: MemberParts<'_>| {
        let rest = parts.iter().try_fold(&*member, |rest, part| rest.strip_prefix(part));
        rest == Some("")
    };
    entry.and_then(Entry::parse).is_some_and(|entry| entry.members(&place.id).any(is_it))
}

impl ScriptCall {
    /// Adds what is listed, the metadata, the participants, and the entry.
    pub(super) fn listed(
        self,
        summary: &ConversationSummary,
        entry: &Entry,
        form: StoredForm<'_>,
    ) -> Result<Self, StoreError> {
        let mut call = self.stored("", form, LISTING, &summary.listing)?;
        call = match &summary.metadata {
            none if none.is_empty() => call.arg(""),
            metadata => call.stored("", form, METADATA, metadata)?,
        };
        call = match &summary.participants {
            none if none.is_empty() => call.arg(""),
            participants => call.json("", participants)?,
        };
        Ok(call.arg(entry.as_str()))
    }
}
