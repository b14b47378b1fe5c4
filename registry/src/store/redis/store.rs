//! Redis as the store of lists, indexes and agents.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use abide_actors::journal::{
    Claim, ConversationSummary, InboxEntry, InboxFilter, ResponseScope, StoreError, StoredResponse,
};
use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::{
    AgentName, ConversationId, DecisionId, Revision, Scoped, Seq, Tenant, Timestamp,
};
use async_trait::async_trait;
use redis::{Cmd, Value, cmd};

use super::super::paging::{self, InboxKey};
use super::super::sealing::{self, Label};
use super::super::{
    KeyChange, KeyList, ListError, Occupancy, Page, Rewrapped, ScopedKeyId, Store, StoredAgent,
    SummaryFilter, SuspensionCount,
};
use super::Redis;
use super::administration::OTHER_REVISION;
use super::audit::operations::NextEntries;
use super::command::keys::{self, Tag};
use super::connection::execute::read;
use super::rows::decode;
use super::rows::pager::{Pager, Row};
use super::scripts::json;
use crate::partition::{Partition, PartitionSet};

#[async_trait]
impl Store for Redis {
    fn require_durability(&self) -> Result<(), String> {
        self.watch.require_all()
    }

    async fn rewrap(&self) -> Result<Option<Rewrapped>, ListError> {
        self.rewrap_all().await
    }

    async fn current_claim(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<Option<Claim>, StoreError> {
        Ok(self.occupancy(id).await?.claim())
    }

    async fn occupancy(&self, id: &Scoped<ConversationId>) -> Result<Occupancy, StoreError> {
        decode::occupancy(id, self.query_row(decode::query_occupancy(id)).await?)
    }

    async fn conversations(
        &self,
        tenant: &Tenant,
        filter: &SummaryFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<(Scoped<ConversationId>, ConversationSummary)>, ListError> {
        let after: Option<Scoped<ConversationId>> = paging::decode_of(tenant, cursor)?;
        let after = after.map(|id| id.as_str().to_owned());
        let mut pager =
            Pager::new(format!("{}ids", keys::prefix_of(tenant)), Partition::all(), after, limit)
                .filtered(*filter != SummaryFilter::default());
        while let Some(rows) = pager.rows(self).await? {
            let summaries = self.query_all(queries_for(&rows, decode::query_summary)?).await?;
            for (row, summary) in rows.into_iter().zip(summaries) {
                let id = decode::id(&row.member)?;
                let summary = decode::listed_summary(self.sealer.as_deref(), &id, summary)?;
                let summary = summary.filter(|summary| filter.admits(summary));
                pager.take(row, summary.map(|summary| (id, summary)));
            }
        }
        Ok(pager.page(|id| Some(id.to_owned())))
    }

    async fn inbox(
        &self,
        tenant: &Tenant,
        filter: &InboxFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<InboxEntry>, ListError> {
        let after: Option<InboxKey> = paging::decode_of(tenant, cursor)?;
        if let Some(id) = &filter.conversation {
            let mut entries = self.open_entries(&Scoped::new(tenant, id)).await?;
            entries.retain(|(key, _)| Some(key) > after.as_ref());
            let entries = entries.into_iter().map(Ok);
            return paging::page(entries, limit, |entry| filter.admits(entry));
        }
        let after = after.as_ref().map(keys::inbox_member);
        let mut pager =
            Pager::new(format!("{}open", keys::prefix_of(tenant)), Partition::all(), after, limit)
                .filtered(*filter != InboxFilter::default());
        while let Some(rows) = pager.rows(self).await? {
            let queries = rows.iter().map(query_entry).collect();
            for (row, entry) in rows.into_iter().zip(self.query_all(queries).await?) {
                let json: Option<Vec<u8>> = read("inbox entry", entry)?;
                let entry = json.map(|json| self.inbox_entry(&row.member, &json));
                let entry = sealing::listed(entry.transpose())?;
                let entry = entry.filter(|entry| filter.admits(entry));
                pager.take(row, entry);
            }
        }
        Ok(pager.page(keys::inbox_key))
    }

    async fn tenants(&self) -> Result<BTreeSet<Tenant>, StoreError> {
        let queries = Partition::all().map(Tag::Partition).map(|tag| {
            let mut command = cmd("SMEMBERS");
            command.arg(tag.key("tenants"));
            (tag, command)
        });
        let mut tenants = BTreeSet::from([Tenant::default()]);
        for answer in self.query_all(queries.collect()).await? {
            let names: Vec<String> = read("tenants", answer)?;
            tenants.extend(names.iter().filter_map(|name| Tenant::parse(name).ok()));
        }
        Ok(tenants)
    }

    async fn all_tenants(&self) -> Result<BTreeSet<Tenant>, StoreError> {
        self.find_all_tenants().await
    }

    async fn open_suspensions(
        &self,
        tenant: &Tenant,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<SuspensionCount>, ListError> {
        self.open_suspensions_page(tenant, cursor, limit).await
    }

    async fn alarms(
        &self,
        limit: usize,
    ) -> Result<Vec<(Scoped<ConversationId>, Timestamp)>, StoreError> {
        let mut alarms = self.read_alarms(&PartitionSet::all(), "+inf", limit).await?;
        alarms.truncate(limit);
        Ok(alarms)
    }

    async fn due_alarms(
        &self,
        partitions: &PartitionSet,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Scoped<ConversationId>, Timestamp)>, StoreError> {
        self.read_alarms(partitions, &keys::score_until(until), limit).await
    }

    async fn active(
        &self,
        partitions: &PartitionSet,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<(Scoped<ConversationId>, Option<Claim>)>, ListError> {
        let after: Option<Scoped<ConversationId>> = paging::decode(cursor)?;
        let after = after.map(|id| id.as_str().to_owned());
        let mut pager = Pager::new("active".to_owned(), partitions.iter(), after, limit);
        while let Some(rows) = pager.rows(self).await? {
            let holdings = self.query_all(queries_for(&rows, decode::query_occupancy)?).await?;
            for (row, holding) in rows.into_iter().zip(holdings) {
                let id = decode::id(&row.member)?;
                let holding = decode::occupancy(&id, holding)?.claim();
                pager.take(row, Some((id, holding)));
            }
        }
        Ok(pager.page(|id| Some(id.to_owned())))
    }

    async fn last_seqs(
        &self,
        ids: &[Scoped<ConversationId>],
    ) -> Result<Vec<Option<Seq>>, StoreError> {
        let answers = self.query_all(ids.iter().map(decode::query_seq).collect()).await?;
        ids.iter().zip(answers).map(|(id, answer)| decode::seq(id, answer)).collect()
    }

    async fn put_agent(
        &self,
        tenant: &Tenant,
        agent: StoredAgent,
        response: Option<StoredResponse>,
    ) -> Result<bool, StoreError> {
        let (name, none) = (Scoped::new(tenant, &agent.name), NextEntries::none());
        Ok(self.agent_by_script(&name, Some(&agent), response, &none).await? == 0)
    }

    async fn put_agent_if(
        &self,
        tenant: &Tenant,
        agent: StoredAgent,
        response: Option<StoredResponse>,
        newest: Option<&Revision>,
    ) -> Result<bool, StoreError> {
        let (name, none) = (Scoped::new(tenant, &agent.name), NextEntries::none());
        let answer = self.agent_if_by_script(&name, &agent, response, newest, &none).await?;
        Ok(answer != OTHER_REVISION)
    }

    async fn reserve(
        &self,
        scope: &ResponseScope,
        response: StoredResponse,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.reserve_by_script(scope, response, now).await
    }

    async fn agent(&self, name: &Scoped<AgentName>) -> Result<Option<StoredAgent>, StoreError> {
        let (tag, command) = query_newest(name);
        match self.query_confirmed::<Option<String>>(tag, command).await? {
            Some(revision) => self.revision(&name.sibling(&Revision::new(revision))).await,
            None => Ok(None),
        }
    }

    async fn newest(&self, name: &Scoped<AgentName>) -> Result<Option<Revision>, StoreError> {
        let (tag, command) = query_newest(name);
        // Each turn asks for it. Its definition is confirmed as it is read; only that there is none
        // is an answer by itself.
        let newest: Option<String> = match self.query(tag, command.clone()).await? {
            Some(newest) => Some(newest),
            None => self.query_confirmed(tag, command).await?,
        };
        Ok(newest.map(Revision::new))
    }

    async fn revision(
        &self,
        revision: &Scoped<Revision>,
    ) -> Result<Option<StoredAgent>, StoreError> {
        let mut command = cmd("HGET");
        let key = Tag::Agents.listing(revision.prefix(), "revisions");
        command.arg(key.into_string()).arg(revision.local().as_str());
        let stored: Option<Vec<u8>> = self.query_confirmed(Tag::Agents, command).await?;
        stored.map(|stored| self.opened_agent(revision, stored)).transpose()
    }

    async fn agents(&self, tenant: &Tenant) -> Result<Vec<StoredAgent>, StoreError> {
        let prefix = keys::prefix_of(tenant);
        let key = |name| Tag::Agents.listing(&prefix, name).into_string();
        let mut command = cmd("HGETALL");
        command.arg(key("newest"));
        let newest: HashMap<String, String> = self.query_confirmed(Tag::Agents, command).await?;
        if newest.is_empty() {
            return Ok(Vec::new());
        }
        // The newest revision of a name is never removed, and what was replaced since stays a while.
        // The fields of rollouts name no revision.
        let revisions: Vec<String> = newest.into_values().collect();
        let mut command = cmd("HMGET");
        command.arg(key("revisions")).arg(&revisions);
        let agents: Vec<Option<Vec<u8>>> = self.query(Tag::Agents, command).await?;
        let agents = revisions.into_iter().zip(agents).filter_map(|(revision, stored)| {
            let revision = Scoped::new(tenant, &Revision::new(revision));
            Some(self.opened_agent(&revision, stored?))
        });
        let mut agents: Vec<StoredAgent> = agents.collect::<Result<_, _>>()?;
        agents.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(agents)
    }

    async fn delete_agent(
        &self,
        name: &Scoped<AgentName>,
        response: Option<StoredResponse>,
    ) -> Result<bool, StoreError> {
        Ok(self.agent_by_script(name, None, response, &NextEntries::none()).await? == 1)
    }

    async fn set_decision(
        &self,
        agent: &Scoped<AgentName>,
        id: &DecisionId,
        decision: Option<&RememberedDecision>,
    ) -> Result<bool, StoreError> {
        Ok(self.decision_by_script(agent, id, decision, &NextEntries::none()).await? == 1)
    }

    async fn decisions(
        &self,
        agent: &Scoped<AgentName>,
    ) -> Result<Vec<RememberedDecision>, StoreError> {
        let mut command = cmd("HVALS");
        command.arg(Tag::Agents.key_of("decisions", agent.as_str()));
        let found: Vec<Vec<u8>> = self.query_confirmed(Tag::Agents, command).await?;
        let label = Label { kind: "decision", owner: agent.as_str(), part: "" };
        let found = found.iter().map(|json| {
            let json = self.open_value(label, Cow::Borrowed(json))?;
            decode::parse::<RememberedDecision>("decision", &json).map(Some)
        });
        // One that cannot be read decides nothing.
        let found = found.filter_map(|decision| sealing::listed(decision).transpose());
        let mut found = found.collect::<Result<Vec<_>, _>>()?;
        found.sort_by(|one, other| one.id.cmp(&other.id));
        Ok(found)
    }

    async fn change_key(&self, change: KeyChange) -> Result<bool, StoreError> {
        Ok(self.api_key_by_script(&change, &NextEntries::none()).await? == 1)
    }

    async fn keys(&self, known: Option<u64>) -> Result<Option<KeyList>, StoreError> {
        self.read_api_keys(known).await
    }

    async fn mark_keys_used(&self, used: &[(ScopedKeyId, Timestamp)]) -> Result<(), StoreError> {
        self.api_keys_used_by_script(used).await
    }

    async fn keys_used(&self, tenant: &Tenant) -> Result<BTreeMap<String, Timestamp>, StoreError> {
        self.read_api_keys_used(tenant).await
    }
}

impl Redis {
    pub(super) async fn query_row(&self, (tag, command): (Tag, Cmd)) -> Result<Value, StoreError> {
        self.query(tag, command).await
    }

    /// The definition of this revision, given what is stored.
    fn opened_agent(
        &self,
        revision: &Scoped<Revision>,
        stored: Vec<u8>,
    ) -> Result<StoredAgent, StoreError> {
        let json = self.open_value(Label::definition(revision), stored.into())?;
        decode::parse("agent", &json)
    }

    /// The definition as it is stored.
    pub(super) fn sealed_agent(
        &self,
        name: &Scoped<AgentName>,
        agent: &StoredAgent,
    ) -> Result<Vec<u8>, StoreError> {
        let revision = name.sibling(&agent.revision);
        Ok(self.seal(Label::definition(&revision), json(agent)?.into())?.into_owned())
    }

    /// The first `limit` alarms of each partition up to a score, sorted.
    async fn read_alarms(
        &self,
        partitions: &PartitionSet,
        until: &str,
        limit: usize,
    ) -> Result<Vec<(Scoped<ConversationId>, Timestamp)>, StoreError> {
        let mut alarms = Vec::new();
        for (id, at) in self.read_due("alarms", partitions, until, limit).await? {
            alarms.push((decode::id(&id)?, at));
        }
        alarms.sort_by(|(id, at), (other, later)| (at, id).cmp(&(later, other)));
        Ok(alarms)
    }

    /// The first `limit` members of the sorted set of this name of each partition, up to a score.
    pub(super) async fn read_due(
        &self,
        name: &str,
        partitions: &PartitionSet,
        until: &str,
        limit: usize,
    ) -> Result<Vec<(String, Timestamp)>, StoreError> {
        let queries = partitions.iter().map(|partition| {
            let tag = Tag::Partition(partition);
            let mut command = cmd("ZRANGE");
            command.arg(tag.key(name)).arg("-inf").arg(until).arg("BYSCORE");
            command.arg("LIMIT").arg(0).arg(limit).arg("WITHSCORES");
            (tag, command)
        });
        let mut due = Vec::new();
        for answer in self.query_all(queries.collect()).await? {
            let rows: Vec<(String, f64)> = read(name, answer)?;
            due.extend(rows.into_iter().map(|(member, score)| (member, keys::time(score))));
        }
        Ok(due)
    }

    /// The inbox entry of this member.
    pub(super) fn inbox_entry(&self, member: &str, json: &[u8]) -> Result<InboxEntry, StoreError> {
        let Some((_, id, ..)) = keys::inbox_key(member).filter(|_| sealing::is_sealed(json)) else {
            return decode::parse("inbox entry", json);
        };
        let opened = self.open_value(decode::inbox_label(&id), Cow::Borrowed(json))?;
        let entry: InboxEntry = decode::parse("inbox entry", &opened)?;
        if keys::inbox_member(&keys::pending_key(&id, &entry.pending)) != member {
            return Err(sealing::unreadable(id.as_str(), "an inbox entry belongs elsewhere"));
        }
        Ok(entry)
    }

    /// The open suspensions of one conversation, in order: no more than its one turn has calls.
    async fn open_entries(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<Vec<(InboxKey, InboxEntry)>, StoreError> {
        let tag = Tag::of(id);
        let mut command = cmd("HVALS");
        command.arg(tag.key_of("o", id.as_str()));
        let entries: Vec<Vec<u8>> = self.query(tag, command).await?;
        let entries = entries.iter().map(|json| {
            let json = self.open_value(decode::inbox_label(id), Cow::Borrowed(json))?;
            let entry: InboxEntry = decode::parse("inbox entry", &json)?;
            Ok::<_, StoreError>((keys::pending_key(id, &entry.pending), entry))
        });
        let mut entries = entries.collect::<Result<Vec<_>, _>>()?;
        entries.sort_by(|(key, _), (other, _)| key.cmp(other));
        Ok(entries)
    }
}

fn query_newest(name: &Scoped<AgentName>) -> (Tag, Cmd) {
    let mut command = cmd("HGET");
    let key = Tag::Agents.listing(name.prefix(), "newest");
    command.arg(key.into_string()).arg(name.local().as_str());
    (Tag::Agents, command)
}

fn queries_for(
    rows: &[Row],
    query: fn(&Scoped<ConversationId>) -> (Tag, Cmd),
) -> Result<Vec<(Tag, Cmd)>, StoreError> {
    rows.iter().map(|row| Ok(query(&decode::id(&row.member)?))).collect()
}

pub(super) fn query_entry(row: &Row) -> (Tag, Cmd) {
    let id = keys::inbox_key(&row.member).map(|(_, id, _, _)| id);
    let tag = Tag::Partition(row.partition);
    let mut command = cmd("HGET");
    command.arg(tag.key_of("o", id.as_ref().map_or("", Scoped::as_str))).arg(&row.member);
    (tag, command)
}
