//! The webhooks, and what is owed to them, in Redis.

mod pages;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use abide_actors::journal::StoreError;
use abide_actors::notices::{Webhook, WebhookKey};
use abide_conversation::{ConversationId, Scoped, Seq, Timestamp};
use async_trait::async_trait;
use redis::{Cmd, cmd};

use super::super::super::notices::{
    Attempts, DeadNotice, Delivery, DeliveryState, MAX_DEAD_PER_PARTITION, NoticeCounts,
    NoticeHead, NoticeQueue, Outbox, Settlement, StoredNotice, WebhookChange, WebhookEdit,
    WebhookList,
};
use super::super::super::sealing::Label;
use super::super::super::{ListError, Page};
use super::super::Redis;
use super::super::audit::operations::NextEntries;
use super::super::command::error::refused;
use super::super::command::keys::{self, Key, Tag};
use super::super::command::script::ScriptCall;
use super::super::connection::execute::read;
use super::super::rows::decode;
use super::super::scripts::{
    DROP_NOTICES, NOTICE_HEAD, REDELIVER_NOTICE, SETTLE_NOTICE, WEBHOOKS, json,
};
use super::owed_queues::{prefix, queue_name};
use crate::partition::{Partition, PartitionSet};

/// The hash of the webhooks of all tenants.
pub(in crate::store::redis) const HOOKS: &str = "webhooks";
/// How many queues one call drops.
const MAX_DROPPED_QUEUES: usize = 256;
/// How many webhooks of a partition one read finds due.
const MAX_DUE_WEBHOOKS: usize = 1_000;

/// The keys of one webhook in a partition, in the order of the scripts.
fn keys_of(tag: Tag, webhook: &WebhookKey) -> [Key<'_>; 7] {
    let own = |kind| tag.own(kind, webhook.as_str());
    let (index, counts) = (tag.common("owed"), tag.common("owed_counts"));
    [index, counts, own("nd"), own("no"), own("nt"), own("nx"), own("nz")]
}

/// The name of a dead notice.
fn dead_name(id: &Scoped<ConversationId>, seq: Seq) -> String {
    format!("{seq} {id}")
}

/// A notice as its queue has it.
fn parse_notice(text: &[u8]) -> Result<StoredNotice, StoreError> {
    let json = text.splitn(3, |byte| *byte == b' ').nth(2).unwrap_or_default();
    decode::parse("notice", json)
}

impl Redis {
    fn opened_notice(
        &self,
        conversation: &Scoped<ConversationId>,
        stored: StoredNotice,
    ) -> Result<StoredNotice, StoreError> {
        match &self.sealer {
            Some(sealer) => sealer.open_notice(conversation.as_str(), stored),
            None => Ok(stored),
        }
    }

    /// Returns what the script returns.
    pub(in crate::store::redis) async fn webhooks_by_script(
        &self,
        change: &WebhookChange,
        entries: &NextEntries,
    ) -> Result<u8, StoreError> {
        let nonce = self.nonce();
        let mut keys = vec![Tag::Agents.common(HOOKS), Tag::Agents.common("webhooks_version")];
        keys.push(Tag::Agents.own("done", &nonce));
        keys.extend(entries.keys());
        let call = ScriptCall::new(&WEBHOOKS, Tag::Agents, keys);
        let mut call = call.arg(change.version).arg(change.changes.len());
        for edit in &change.changes {
            let key = edit.key();
            let stored = match edit {
                WebhookEdit::Put(webhook) => {
                    self.seal(Label::webhook(key.as_str()), json(webhook)?.into())?
                }
                WebhookEdit::Remove(_) => Cow::default(),
            };
            call = call.arg(key.as_str()).arg(&*stored);
        }
        self.call_durably(call.entries(entries)?).await
    }

    /// Asks each of these partitions by a command.
    async fn ask_partitions<T: redis::FromRedisValue>(
        &self,
        partitions: impl Iterator<Item = Partition>,
        command: impl Fn(Tag) -> Cmd,
    ) -> Result<Vec<(Partition, T)>, StoreError> {
        let partitions: Vec<Partition> = partitions.collect();
        let queries = partitions.iter().map(|partition| {
            let tag = Tag::Partition(*partition);
            (tag, command(tag))
        });
        let answers = self.query_all(queries.collect()).await?;
        let rows = partitions.into_iter().zip(answers);
        rows.map(|(partition, answer)| Ok((partition, read("notices", answer)?))).collect()
    }

    async fn oldest(
        &self,
        of: Vec<(Partition, WebhookKey)>,
    ) -> Result<Option<Timestamp>, StoreError> {
        let queries = of.iter().map(|(partition, webhook)| {
            let tag = Tag::Partition(*partition);
            let mut command = cmd("ZRANGE");
            command.arg(tag.key_of("no", webhook.as_str())).arg(0).arg(0).arg("WITHSCORES");
            (tag, command)
        });
        let mut oldest: Option<Timestamp> = None;
        for answer in self.query_all(queries.collect()).await? {
            let first: Vec<(String, f64)> = read("notices", answer)?;
            let first = first.first().map(|(_, score)| keys::time(*score));
            oldest = oldest.into_iter().chain(first).min();
        }
        Ok(oldest)
    }
}

#[async_trait]
impl Outbox for Redis {
    async fn webhooks(&self, known: Option<u64>) -> Result<Option<WebhookList>, StoreError> {
        let mut command = cmd("GET");
        command.arg(Tag::Agents.key("webhooks_version"));
        let version: Option<u64> = self.query_confirmed(Tag::Agents, command).await?;
        let version = version.unwrap_or_default();
        if known == Some(version) {
            return Ok(None);
        }
        // Webhooks that change meanwhile are read again with the next version.
        let mut command = cmd("HGETALL");
        command.arg(Tag::Agents.key(HOOKS));
        let webhooks: BTreeMap<String, Vec<u8>> =
            self.query_confirmed(Tag::Agents, command).await?;
        let webhooks = webhooks.iter().map(|(key, stored)| {
            let json = self.open_value(Label::webhook(key), Cow::Borrowed(stored))?;
            decode::parse::<Webhook>("webhook", &json)
        });
        Ok(Some(WebhookList { version, webhooks: webhooks.collect::<Result<_, _>>()? }))
    }

    async fn change_webhooks(&self, change: &WebhookChange) -> Result<bool, StoreError> {
        Ok(self.webhooks_by_script(change, &NextEntries::none()).await? == 1)
    }

    async fn due_webhooks(
        &self,
        partitions: &PartitionSet,
        until: Timestamp,
    ) -> Result<Vec<(Partition, WebhookKey)>, StoreError> {
        let found: Vec<(_, Vec<String>)> = self
            .ask_partitions(partitions.iter(), |tag| {
                let mut command = cmd("ZRANGE");
                command.arg(tag.key("owed")).arg("-inf").arg(keys::score_until(until));
                command.arg("BYSCORE").arg("LIMIT").arg(0).arg(MAX_DUE_WEBHOOKS);
                command
            })
            .await?;
        let mut due = Vec::new();
        for (partition, webhooks) in found {
            for webhook in webhooks {
                due.push((partition, parse_key(&webhook)?));
            }
        }
        Ok(due)
    }

    async fn due_queues(
        &self,
        webhook: &WebhookKey,
        partitions: &[Partition],
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, Scoped<ConversationId>)>, StoreError> {
        let found: Vec<(_, Vec<(String, f64)>)> = self
            .ask_partitions(partitions.iter().copied(), |tag| {
                let mut command = cmd("ZRANGE");
                command.arg(tag.key_of("nd", webhook.as_str())).arg("-inf");
                command.arg(keys::score_until(until)).arg("BYSCORE");
                command.arg("LIMIT").arg(0).arg(limit).arg("WITHSCORES");
                command
            })
            .await?;
        let rows = found.into_iter().flat_map(|(_, rows)| rows);
        rows.map(|(id, score)| Ok((keys::time(score), decode::id(&id)?))).collect()
    }

    async fn old_queues(
        &self,
        webhook: &WebhookKey,
        partitions: &PartitionSet,
        since: Timestamp,
        limit: usize,
    ) -> Result<Vec<Scoped<ConversationId>>, StoreError> {
        let found: Vec<(_, Vec<String>)> = self
            .ask_partitions(partitions.iter(), |tag| {
                let mut command = cmd("ZRANGE");
                command.arg(tag.key_of("no", webhook.as_str())).arg("-inf");
                command.arg(format!("({}", keys::score(since))).arg("BYSCORE");
                command.arg("LIMIT").arg(0).arg(limit);
                command
            })
            .await?;
        found.into_iter().flat_map(|(_, ids)| ids).map(|id| decode::id(&id)).collect()
    }

    async fn notice_head(&self, queue: &NoticeQueue) -> Result<Option<NoticeHead>, StoreError> {
        let NoticeQueue { webhook, conversation } = queue;
        let (tag, name) = (Tag::of(conversation), queue_name(webhook, conversation));
        let own = |kind| tag.own(kind, webhook.as_str());
        let keys = [own("nd"), tag.own("nq", &name), own("nt")];
        let call = ScriptCall::new(&NOTICE_HEAD, tag, keys).arg(conversation.as_str());
        // Nobody is told of what a fail-over may take back.
        let found: Option<(Vec<u8>, Vec<u8>, f64)> = self.call_confirmed(call).await?;
        let Some((notice, attempts, due)) = found else { return Ok(None) };
        let attempts = match attempts.as_slice() {
            [] => Attempts::default(),
            json => decode::parse("attempts", json)?,
        };
        let notice = self.opened_notice(conversation, parse_notice(&notice)?)?;
        Ok(Some(NoticeHead { notice, attempts, due: keys::time(due) }))
    }

    async fn settle_notice(
        &self,
        queue: &NoticeQueue,
        head: &NoticeHead,
        settlement: &Settlement,
    ) -> Result<Option<NoticeHead>, StoreError> {
        let NoticeQueue { webhook, conversation } = queue;
        let (tag, name) = (Tag::of(conversation), queue_name(webhook, conversation));
        let [index, counts, due_key, since, attempts_key, dead, deaths] = keys_of(tag, webhook);
        let own = tag.own("nq", &name);
        let keys = [index, counts, due_key, since, own, attempts_key, dead, deaths];
        let (due, attempts, dead) = match settlement {
            Settlement::Delivered { at } => (*at, Vec::new(), Vec::new()),
            Settlement::Retry { due, attempts } => (*due, json(attempts)?, Vec::new()),
            Settlement::Dead { at, attempts } => {
                let mut notice = head.notice.clone();
                if let Some(sealer) = &self.sealer {
                    notice = sealer.seal_notice(conversation.as_str(), notice)?;
                }
                let conversation = conversation.clone();
                let (attempts, dead_at) = (attempts.clone(), *at);
                (*at, Vec::new(), json(&DeadNotice { conversation, notice, attempts, dead_at })?)
            }
        };
        let seq = head.notice.seq;
        let call = ScriptCall::new(&SETTLE_NOTICE, tag, keys)
            .arg(seq.get())
            .arg(webhook.as_str())
            .arg(conversation.as_str())
            .arg(keys::score(due))
            .arg(attempts)
            .arg(dead)
            .arg(dead_name(conversation, seq))
            .arg(MAX_DEAD_PER_PARTITION);
        // The next notice is as safe as this write.
        let next: Option<Vec<u8>> = self.call_durably(call).await?;
        let head = |notice| NoticeHead { notice, attempts: Attempts::default(), due };
        let open = |text: Vec<u8>| self.opened_notice(conversation, parse_notice(&text)?);
        Ok(next.map(open).transpose()?.map(head))
    }

    async fn drop_notices(
        &self,
        webhook: &WebhookKey,
        partition: Partition,
    ) -> Result<bool, StoreError> {
        let tag = Tag::Partition(partition);
        let mut command = cmd("ZRANGE");
        command.arg(tag.key_of("nd", webhook.as_str())).arg(0).arg(MAX_DROPPED_QUEUES - 1);
        let ids: Vec<String> = self.query(tag, command).await?;
        let names: Result<Vec<String>, StoreError> =
            ids.iter().map(|id| Ok(queue_name(webhook, &decode::id(id)?))).collect();
        let names = names?;
        let mut keys = keys_of(tag, webhook).to_vec();
        keys.extend(names.iter().map(|name| tag.own("nq", name)));
        let mut call = ScriptCall::new(&DROP_NOTICES, tag, keys).arg(webhook.as_str());
        for id in &ids {
            call = call.arg(id);
        }
        self.call(call).await
    }

    async fn notice_counts(&self, webhook: &WebhookKey) -> Result<NoticeCounts, StoreError> {
        let owed: Vec<(Partition, Option<i64>)> = self
            .ask_partitions(Partition::all(), |tag| {
                let mut command = cmd("HGET");
                command.arg(tag.key("owed_counts")).arg(webhook.as_str());
                command
            })
            .await?;
        let dead: Vec<(_, u64)> = self
            .ask_partitions(Partition::all(), |tag| {
                let mut command = cmd("ZCARD");
                command.arg(tag.key_of("nz", webhook.as_str()));
                command
            })
            .await?;
        let count = |(_, count): &(Partition, Option<i64>)| {
            u64::try_from(count.unwrap_or_default()).unwrap_or_default()
        };
        let there = owed.iter().filter(|row| count(row) > 0).map(|(it, _)| (*it, webhook.clone()));
        Ok(NoticeCounts {
            oldest: self.oldest(there.collect()).await?,
            owed: owed.iter().map(count).sum(),
            dead: dead.iter().map(|(_, count)| count).sum(),
        })
    }

    async fn owed_in(&self, partitions: &PartitionSet) -> Result<NoticeCounts, StoreError> {
        let counts: Vec<(Partition, HashMap<String, i64>)> = self
            .ask_partitions(partitions.iter(), |tag| {
                let mut command = cmd("HGETALL");
                command.arg(tag.key("owed_counts"));
                command
            })
            .await?;
        let mut all = NoticeCounts::default();
        let mut there = Vec::new();
        for (partition, counts) in counts {
            for (webhook, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
                all.owed += u64::try_from(count).unwrap_or_default();
                there.push((partition, parse_key(&webhook)?));
            }
        }
        all.oldest = self.oldest(there).await?;
        Ok(all)
    }

    async fn deliveries(
        &self,
        webhook: &WebhookKey,
        state: DeliveryState,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<Delivery>, ListError> {
        match state {
            DeliveryState::Owed => self.owed_page(webhook, cursor, limit).await,
            DeliveryState::Dead => self.dead_page(webhook, cursor, limit).await,
        }
    }

    async fn redeliver(
        &self,
        queue: &NoticeQueue,
        seq: Seq,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let NoticeQueue { webhook, conversation } = queue;
        let (tag, name) = (Tag::of(conversation), dead_name(conversation, seq));
        let mut command = cmd("HGET");
        command.arg(tag.key_of("nx", webhook.as_str())).arg(&name);
        let dead: Option<Vec<u8>> = self.query(tag, command).await?;
        let Some(dead) = dead else { return Ok(false) };
        let dead: DeadNotice = decode::parse("dead notice", &dead)?;
        let notice = StoredNotice { since: now, ..dead.notice };
        let (queue_name, nonce) = (queue_name(webhook, conversation), self.nonce());
        let [index, counts, due, since, attempts, dead, deaths] = keys_of(tag, webhook);
        let own = tag.own("nq", &queue_name);
        let outcome = tag.own("done", &nonce);
        let keys = [index, counts, due, since, own, attempts, dead, deaths, outcome];
        let call = ScriptCall::new(&REDELIVER_NOTICE, tag, keys)
            .arg(name)
            .arg(webhook.as_str())
            .arg(conversation.as_str())
            .arg(keys::score(now))
            .json(prefix(&notice), &notice)?;
        self.call_durably(call).await
    }
}

fn parse_key(text: &str) -> Result<WebhookKey, StoreError> {
    Scoped::parse(text).map_err(|error| refused(format!("webhook {text}: {error}")))
}
