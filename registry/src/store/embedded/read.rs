//! The reads from the file, each from one snapshot.

use std::ops::Bound;

use abide_actors::journal::{
    ConversationSummary, InboxEntry, InboxFilter, StoredConversation, StoredResponse,
};
use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::{ConversationId, Event, Revision, Seq, State, Timestamp, replay};
use redb::{Error, ReadTransaction, TableError};

use super::super::paging::{self, InboxKey};
use super::super::{Page, StoredAgent, SummaryFilter};
use super::tables::{self, Record};
use crate::partition::{Partition, PartitionSet};

/// The events that are folded at once as a conversation is loaded: more than usually follow a cached
/// state, and each may have a megabyte.
const PAGE_EVENTS: usize = 64;

/// The epoch and summary of a conversation.
pub(super) fn record(from: &ReadTransaction, id: &str) -> Result<Option<Record>, Error> {
    let record = from.open_table(tables::HEADS)?.get(id)?;
    record.map(|json| tables::parse("head", json.value())).transpose()
}

/// How many processes ended while the conversation was at work.
pub(super) fn deaths(from: &ReadTransaction, id: &str) -> Result<u32, Error> {
    match from.open_table(tables::DEATHS) {
        Ok(deaths) => Ok(deaths.get(id)?.map_or(0, |count| count.value())),
        // A store of an earlier version that had no room for the table.
        Err(TableError::TableDoesNotExist(_)) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// The cached state, or the beginning if no cache can be read, with the whole pages of events
/// after it folded in, and the rest of the events: no more than a page and the state are in memory at
/// once. The outer `None` means that the state or a page exceeds `max_bytes`; the inner, that the
/// conversation does not exist.
pub(super) fn load(
    from: &ReadTransaction,
    id: &str,
    max_bytes: usize,
) -> Result<Option<Option<StoredConversation>>, Error> {
    let Some(record) = record(from, id)? else { return Ok(Some(None)) };
    let cached = from.open_table(tables::STATES)?.get(id)?;
    let Some(max_event_bytes) =
        max_bytes.checked_sub(cached.as_ref().map_or(0, |row| row.value().1.len()))
    else {
        return Ok(None);
    };
    let cached = cached.and_then(|cached| {
        let (format, json) = cached.value();
        (format == tables::STATE_FORMAT)
            .then(|| abide_conversation::from_json::<State>(json).ok())?
    });
    let fits = |state: &State| state.seq <= record.summary.last_seq;
    let mut state = cached.filter(fits).unwrap_or_default();
    let cached_seq = state.seq;
    loop {
        let page = events(from, id, state.seq, PAGE_EVENTS, max_event_bytes)?;
        let Some(events) = page else { return Ok(None) };
        if events.len() < PAGE_EVENTS {
            return Ok(Some(Some(StoredConversation { state, events, cached_seq })));
        }
        state = replay(state, &events);
    }
}

/// Events in order; `None` if they exceed `max_bytes`.
pub(super) fn events(
    from: &ReadTransaction,
    id: &str,
    after: Seq,
    limit: usize,
    max_bytes: usize,
) -> Result<Option<Vec<Event>>, Error> {
    let mut events = Vec::new();
    if !exists(from, id)? {
        return Ok(Some(events));
    }
    let journal = from.open_table(tables::JOURNAL)?;
    let rows =
        journal.range((Bound::Excluded((id, after.get())), Bound::Included((id, u64::MAX))))?;
    let mut left = max_bytes;
    for row in rows.take(limit) {
        let json = row?.1;
        let Some(rest) = left.checked_sub(json.value().len()) else { return Ok(None) };
        left = rest;
        events.push(tables::parse("event", json.value())?);
    }
    Ok(Some(events))
}

/// Whether the conversation exists. Its events do not show that: a deleted conversation's events
/// may remain for a while.
fn exists(from: &ReadTransaction, id: &str) -> Result<bool, Error> {
    Ok(from.open_table(tables::HEADS)?.get(id)?.is_some())
}

pub(super) fn events_before(
    from: &ReadTransaction,
    id: &str,
    before: Seq,
    limit: usize,
) -> Result<Vec<Event>, Error> {
    if !exists(from, id)? {
        return Ok(Vec::new());
    }
    let journal = from.open_table(tables::JOURNAL)?;
    let rows = journal.range((id, 0)..(id, before.get()))?.rev();
    rows.take(limit).map(|row| tables::parse("event", row?.1.value())).collect()
}

pub(super) fn response(
    from: &ReadTransaction,
    scope: &str,
    key: &str,
    now: Timestamp,
) -> Result<Option<StoredResponse>, Error> {
    let Some(json) = from.open_table(tables::RESPONSES)?.get((scope, key))? else {
        return Ok(None);
    };
    let response: StoredResponse = tables::parse("answer", json.value())?;
    Ok((now < response.expires_at).then_some(response))
}

pub(super) fn conversations(
    from: &ReadTransaction,
    filter: &SummaryFilter,
    after: Option<ConversationId>,
    limit: usize,
) -> Result<Page<(ConversationId, ConversationSummary)>, Error> {
    let heads = from.open_table(tables::HEADS)?;
    let start = after.as_ref().map_or(Bound::Unbounded, |id| Bound::Excluded(id.as_str()));
    let rows = heads.range::<&str>((start, Bound::Unbounded))?.map(|row| {
        let (key, json) = row?;
        let id = ConversationId::new(key.value());
        let record: Record = tables::parse("head", json.value())?;
        Ok((id.clone(), (id, record.summary)))
    });
    paging::page(rows, limit, |(_, summary)| filter.admits(summary))
}

pub(super) fn active(
    from: &ReadTransaction,
    partitions: &PartitionSet,
    after: Option<ConversationId>,
    limit: usize,
) -> Result<Page<ConversationId>, Error> {
    let active = from.open_table(tables::ACTIVE)?;
    let start = after.as_ref().map_or(Bound::Unbounded, |id| Bound::Excluded(id.as_str()));
    let rows = active.range::<&str>((start, Bound::Unbounded))?.map(|row| {
        let id = ConversationId::new(row?.0.value());
        Ok((id.clone(), id))
    });
    paging::page(rows, limit, |id| partitions.contains(Partition::from(id)))
}

pub(super) fn inbox(
    from: &ReadTransaction,
    filter: &InboxFilter,
    after: Option<InboxKey>,
    limit: usize,
) -> Result<Page<InboxEntry>, Error> {
    let inbox = from.open_table(tables::INBOX)?;
    if let Some(id) = &filter.conversation {
        let rows = open_keys(from, id)?.into_iter().filter(|key| Some(key) > after.as_ref());
        let rows = rows.filter_map(|key| {
            let json = inbox.get(tables::inbox_key(&key)).transpose()?;
            let parse = |json: &[u8]| tables::parse("inbox entry", json);
            Some(json.map_err(Error::from).and_then(|json| Ok((key, parse(json.value())?))))
        });
        return paging::page(rows, limit, |entry| filter.admits(entry));
    }
    let start = after.as_ref().map(tables::inbox_key).map_or(Bound::Unbounded, Bound::Excluded);
    let rows = inbox.range((start, Bound::Unbounded))?.map(|row| {
        let (key, json) = row?;
        Ok((tables::inbox_key_from_row(key.value())?, tables::parse("inbox entry", json.value())?))
    });
    paging::page(rows, limit, |entry| filter.admits(entry))
}

/// The inbox keys of one conversation by deadline. They are few: at most one per call of its turn.
fn open_keys(from: &ReadTransaction, id: &ConversationId) -> Result<Vec<InboxKey>, Error> {
    let mut keys = Vec::new();
    for row in from.open_table(tables::OPEN)?.range((id.as_str(), "", 0)..)? {
        let (key, at) = row?;
        let (conversation, call, suspension) = key.value();
        if conversation != id.as_str() {
            break;
        }
        keys.push(tables::inbox_key_from_row((at.value(), conversation, call, suspension))?);
    }
    keys.sort();
    Ok(keys)
}

pub(super) fn alarms(
    from: &ReadTransaction,
    limit: usize,
) -> Result<Vec<(ConversationId, Timestamp)>, Error> {
    let alarms = from.open_table(tables::ALARMS)?;
    let rows = alarms.range::<(tables::Nanos, &str)>(..)?.take(limit);
    let alarms = rows.map(|row| {
        let key = row?.0;
        let (at, id) = key.value();
        Ok((ConversationId::new(id), tables::timestamp(at)?))
    });
    alarms.collect()
}

pub(super) fn revision(from: &ReadTransaction, id: &str) -> Result<Option<StoredAgent>, Error> {
    let json = from.open_table(tables::REVISIONS)?.get(id)?;
    json.map(|json| tables::parse("agent", json.value())).transpose()
}

pub(super) fn agent(from: &ReadTransaction, name: &str) -> Result<Option<StoredAgent>, Error> {
    match from.open_table(tables::AGENTS)?.get(name)? {
        Some(newest) => revision(from, newest.value()),
        None => Ok(None),
    }
}

pub(super) fn newest(from: &ReadTransaction, name: &str) -> Result<Option<Revision>, Error> {
    let newest = from.open_table(tables::AGENTS)?.get(name)?;
    Ok(newest.map(|newest| Revision::new(newest.value())))
}

pub(super) fn decisions(
    from: &ReadTransaction,
    agent: &str,
) -> Result<Vec<RememberedDecision>, Error> {
    let decisions = from.open_table(tables::DECISIONS)?;
    let mut found = Vec::new();
    for row in decisions.range((agent, "")..)? {
        let (key, json) = row?;
        if key.value().0 != agent {
            break;
        }
        found.push(tables::parse("decision", json.value())?);
    }
    Ok(found)
}

pub(super) fn agents(from: &ReadTransaction) -> Result<Vec<StoredAgent>, Error> {
    let agents = from.open_table(tables::AGENTS)?;
    let newest = agents.range::<&str>(..)?.map(|row| revision(from, row?.1.value()));
    newest.filter_map(Result::transpose).collect()
}
