//! Pages of what is owed to a webhook, and of what is dead.

use abide_actors::journal::StoreError;
use abide_actors::notices::WebhookKey;
use abide_conversation::{ConversationId, Scoped};
use redis::cmd;

use super::super::super::super::notices::{Attempts, DeadNotice, Delivery, LISTED_PER_QUEUE};
use super::super::super::super::{ListError, Page, paging};
use super::super::super::Redis;
use super::super::super::command::keys::{self, Tag};
use super::super::super::connection::execute::read;
use super::super::super::rows::decode;
use super::super::owed_queues::queue_name;
use super::parse_notice;
use crate::partition::Partition;

/// How many partitions are asked at once.
const PARTITIONS_AT_ONCE: usize = 16;
/// Members of one score that a page may have to skip: those of one microsecond.
const MAX_TIES: usize = 1_000;

/// The last member of a page: its partition, score, and name.
type Place = (usize, f64, String);

impl Redis {
    /// The conversations that owe something, with the first notices of each.
    pub(super) async fn owed_page(
        &self,
        webhook: &WebhookKey,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<Delivery>, ListError> {
        let (places, cursor) = self.members("no", webhook, cursor, limit).await?;
        let mut queries = Vec::new();
        for (partition, id) in &places {
            let (tag, id) = (Tag::Partition(*partition), decode::id(id)?);
            let mut notices = cmd("LRANGE");
            notices.arg(tag.key_of("nq", &queue_name(webhook, &id)));
            notices.arg(0).arg(LISTED_PER_QUEUE - 1);
            let mut attempts = cmd("HGET");
            attempts.arg(tag.key_of("nt", webhook.as_str())).arg(id.as_str());
            let mut due = cmd("ZSCORE");
            due.arg(tag.key_of("nd", webhook.as_str())).arg(id.as_str());
            queries.extend([(tag, notices), (tag, attempts), (tag, due)]);
        }
        let mut answers = self.query_all(queries).await?.into_iter();
        let mut items = Vec::new();
        for (_, id) in places {
            let conversation: Scoped<ConversationId> = decode::id(&id)?;
            let mut next = || answers.next().unwrap_or(redis::Value::Nil);
            let notices: Vec<Vec<u8>> = read("notices", next())?;
            let attempts: Option<Vec<u8>> = read("attempts", next())?;
            let attempts = attempts.map(|json| decode::parse("attempts", &json)).transpose()?;
            let mut attempts: Option<Attempts> = attempts;
            let mut due = read::<Option<f64>>("due", next())?.map(keys::time);
            for text in notices {
                items.push(Delivery {
                    conversation: conversation.clone(),
                    notice: self.opened_notice(&conversation, parse_notice(&text)?)?,
                    attempts: attempts.take().unwrap_or_default(),
                    due: due.take(),
                    dead_at: None,
                });
            }
        }
        Ok(Page { items, cursor })
    }

    /// The dead notices.
    pub(super) async fn dead_page(
        &self,
        webhook: &WebhookKey,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<Delivery>, ListError> {
        let (places, cursor) = self.members("nz", webhook, cursor, limit).await?;
        let queries = places.iter().map(|(partition, name)| {
            let tag = Tag::Partition(*partition);
            let mut command = cmd("HGET");
            command.arg(tag.key_of("nx", webhook.as_str())).arg(name);
            (tag, command)
        });
        let mut items = Vec::new();
        for answer in self.query_all(queries.collect()).await? {
            let json: Option<Vec<u8>> = read("dead notice", answer)?;
            let dead = json.map(|json| decode::parse::<DeadNotice>("dead notice", &json));
            if let Some(dead) = dead.transpose()? {
                let notice = self.opened_notice(&dead.conversation, dead.notice.clone())?;
                items.push(Delivery::from(DeadNotice { notice, ..dead }));
            }
        }
        Ok(Page { items, cursor })
    }

    /// The next members of the sorted sets of this kind, one after another partition, by score.
    async fn members(
        &self,
        kind: &'static str,
        webhook: &WebhookKey,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<(Partition, String)>, Option<String>), ListError> {
        let mut after: Option<Place> = paging::decode(cursor)?;
        let first = after.as_ref().map_or(0, |(partition, ..)| *partition);
        let partitions: Vec<Partition> = Partition::all().skip(first).collect();
        let (mut found, limit) = (Vec::new(), limit.max(1));
        for block in partitions.chunks(PARTITIONS_AT_ONCE) {
            for (partition, members) in
                self.members_of(kind, webhook, block, after.as_ref(), limit).await?
            {
                let index = partition.index();
                let last = after.take().filter(|(at, ..)| *at == index);
                let is_after = |(name, score): &(String, f64)| {
                    last.as_ref().is_none_or(|(_, at, last)| (*score, name) > (*at, last))
                };
                for (name, score) in members.into_iter().filter(is_after) {
                    if found.len() == limit {
                        let last: Option<&(Place, Partition)> = found.last();
                        let cursor = last.map(|(place, _)| paging::encode(place));
                        return Ok((names(found), cursor));
                    }
                    found.push(((index, score, name), partition));
                }
            }
        }
        Ok((names(found), None))
    }

    async fn members_of(
        &self,
        kind: &'static str,
        webhook: &WebhookKey,
        partitions: &[Partition],
        after: Option<&Place>,
        limit: usize,
    ) -> Result<Vec<(Partition, Vec<(String, f64)>)>, StoreError> {
        self.ask_partitions(partitions.iter().copied(), |tag| {
            let place = after.filter(|(index, ..)| {
                Partition::all().nth(*index).map(Tag::Partition) == Some(tag)
            });
            let least = place.map_or("-inf".to_owned(), |(_, score, _)| format!("{score:.0}"));
            let most = limit + 1 + if place.is_some() { MAX_TIES } else { 0 };
            let mut command = cmd("ZRANGE");
            command.arg(tag.key_of(kind, webhook.as_str())).arg(least).arg("+inf");
            command.arg("BYSCORE").arg("LIMIT").arg(0).arg(most).arg("WITHSCORES");
            command
        })
        .await
    }
}

fn names(found: Vec<(Place, Partition)>) -> Vec<(Partition, String)> {
    found.into_iter().map(|((_, _, name), partition)| (partition, name)).collect()
}
