//! The reads from the file, each from one snapshot.

use std::ops::Bound;

use abide_actors::journal::{
    ConversationSummary, InboxEntry, InboxFilter, ResponseScope, StoredConversation, StoredResponse,
};
use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::{
    AgentName, ConversationId, DecisionId, Event, Revision, Scoped, Seq, State, Tenant, Timestamp,
    replay,
};
use redb::{Error, ReadTransaction, TableError};

use super::super::paging::{self, InboxKey};
use super::super::sealing::{Label, OwnKey, open_own};
use super::super::{Page, StoredAgent, SummaryFilter};
use super::encryption::{self, Snapshot, inbox_entry};
use super::tables::{self, Record};
use crate::partition::{Partition, PartitionSet};

/// The events that are folded at once as a conversation is loaded: more than usually follow a cached
/// state, and each may have a megabyte.
const PAGE_EVENTS: usize = 64;

/// The epoch and summary of a conversation.
pub(super) fn record(
    from: &Snapshot<'_>,
    id: &Scoped<ConversationId>,
) -> Result<Option<Record>, Error> {
    sealed_record(from, id)?.map(|record| record.opened(from.sealer, id)).transpose()
}

/// The epoch and summary of a conversation, as they are stored.
pub(super) fn sealed_record(
    from: &ReadTransaction,
    id: &Scoped<ConversationId>,
) -> Result<Option<Record>, Error> {
    let Some(heads) = tables::HEADS.open(from, &id.tenant())? else { return Ok(None) };
    let record = heads.get(id.as_str())?;
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
    from: &Snapshot<'_>,
    id: &Scoped<ConversationId>,
    max_bytes: usize,
) -> Result<Option<Option<StoredConversation>>, Error> {
    let Some(record) = sealed_record(from, id)? else { return Ok(Some(None)) };
    let own = record.own_key(from.sealer, id).map_err(encryption::failed)?;
    let cached = from.open_table(tables::STATES)?.get(id.as_str())?;
    let Some(max_event_bytes) =
        max_bytes.checked_sub(cached.as_ref().map_or(0, |row| row.value().1.len()))
    else {
        return Ok(None);
    };
    let cached = match cached.as_ref().map(|cached| cached.value()) {
        Some((tables::STATE_FORMAT, json)) => {
            let json = open_own(own.as_ref(), "state", "", json).map_err(encryption::failed)?;
            abide_conversation::from_json::<State>(&json).ok()
        }
        Some(_) | None => None,
    };
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
    from: &Snapshot<'_>,
    id: &Scoped<ConversationId>,
    after: Seq,
    limit: usize,
    max_bytes: usize,
) -> Result<Option<Vec<Event>>, Error> {
    let mut events = Vec::new();
    let Some(record) = sealed_record(from, id)? else { return Ok(Some(events)) };
    let own = record.own_key(from.sealer, id).map_err(encryption::failed)?;
    let journal = from.open_table(tables::JOURNAL)?;
    let id = id.as_str();
    let rows =
        journal.range((Bound::Excluded((id, after.get())), Bound::Included((id, u64::MAX))))?;
    let mut left = max_bytes;
    for row in rows.take(limit) {
        let (key, json) = row?;
        let Some(rest) = left.checked_sub(json.value().len()) else { return Ok(None) };
        left = rest;
        events.push(event(own.as_ref(), key.value().1, json.value())?);
    }
    Ok(Some(events))
}

/// The event of this number.
fn event(own: Option<&OwnKey>, seq: u64, json: &[u8]) -> Result<Event, Error> {
    match own {
        None => tables::parse("event", json),
        Some(own) => {
            let json = own.open("event", &seq.to_string(), json).map_err(encryption::failed)?;
            tables::parse("event", &json)
        }
    }
}

pub(super) fn events_before(
    from: &Snapshot<'_>,
    id: &Scoped<ConversationId>,
    before: Seq,
    limit: usize,
) -> Result<Vec<Event>, Error> {
    // The events do not show whether it exists: those of a deleted one may remain for a while.
    let Some(record) = sealed_record(from, id)? else { return Ok(Vec::new()) };
    let own = record.own_key(from.sealer, id).map_err(encryption::failed)?;
    let journal = from.open_table(tables::JOURNAL)?;
    let rows = journal.range((id.as_str(), 0)..(id.as_str(), before.get()))?.rev();
    let rows = rows.take(limit).map(|row| {
        let (key, json) = row?;
        event(own.as_ref(), key.value().1, json.value())
    });
    rows.collect()
}

pub(super) fn response(
    from: &ReadTransaction,
    scope: &ResponseScope,
    key: &str,
    now: Timestamp,
) -> Result<Option<StoredResponse>, Error> {
    let Some(json) = from.open_table(tables::RESPONSES)?.get((scope.text().as_str(), key))? else {
        return Ok(None);
    };
    let response: StoredResponse = tables::parse("answer", json.value())?;
    Ok((now < response.expires_at).then_some(response))
}

pub(super) fn conversations(
    from: &Snapshot<'_>,
    tenant: &Tenant,
    filter: &SummaryFilter,
    after: Option<Scoped<ConversationId>>,
    limit: usize,
) -> Result<Page<(Scoped<ConversationId>, ConversationSummary)>, Error> {
    let Some(heads) = tables::HEADS.open(from, tenant)? else { return Ok(paging::empty()) };
    let start = after.as_ref().map_or(Bound::Unbounded, |id| Bound::Excluded(id.as_str()));
    let rows = heads.range::<&str>((start, Bound::Unbounded))?.map(|row| {
        let (key, json) = row?;
        let id: Scoped<ConversationId> = tables::id(key.value())?;
        let record: Record = tables::parse("head", json.value())?;
        let summary = record.listed(from.sealer, &id)?;
        Ok((id.clone(), (id, summary)))
    });
    paging::page(rows, limit, |(_, summary)| filter.admits(summary))
}

pub(super) fn active(
    from: &ReadTransaction,
    partitions: &PartitionSet,
    after: Option<Scoped<ConversationId>>,
    limit: usize,
) -> Result<Page<Scoped<ConversationId>>, Error> {
    let active = from.open_table(tables::ACTIVE)?;
    let start = after.as_ref().map_or(Bound::Unbounded, |id| Bound::Excluded(id.as_str()));
    let rows = active.range::<&str>((start, Bound::Unbounded))?.map(|row| {
        let id: Scoped<ConversationId> = tables::id(row?.0.value())?;
        Ok((id.clone(), id))
    });
    paging::page(rows, limit, |id| partitions.contains(Partition::from(id)))
}

pub(super) fn inbox(
    from: &Snapshot<'_>,
    tenant: &Tenant,
    filter: &InboxFilter,
    after: Option<InboxKey>,
    limit: usize,
) -> Result<Page<InboxEntry>, Error> {
    let Some(inbox) = tables::INBOX.open(from, tenant)? else { return Ok(paging::empty()) };
    if let Some(id) = &filter.conversation {
        let rows = open_keys(from, &Scoped::new(tenant, id))?
            .into_iter()
            .filter(|key| Some(key) > after.as_ref());
        let rows = rows.filter_map(|key| {
            let json = inbox.get(tables::inbox_key(&key)).transpose()?;
            let entry = json.map_err(Error::from);
            let entry = entry.and_then(|json| inbox_entry(from, &key, json.value()).map(Some));
            let entry = encryption::listed(entry).transpose()?;
            Some(entry.map(|entry| (key, entry)))
        });
        return paging::page(rows, limit, |entry| filter.admits(entry));
    }
    let start = after.as_ref().map(tables::inbox_key).map_or(Bound::Unbounded, Bound::Excluded);
    let rows = inbox.range((start, Bound::Unbounded))?.filter_map(|row| {
        let row = row.map_err(Error::from).and_then(|(key, json)| {
            let key = tables::inbox_key_from_row(key.value())?;
            let entry = encryption::listed(inbox_entry(from, &key, json.value()).map(Some))?;
            Ok(entry.map(|entry| (key, entry)))
        });
        row.transpose()
    });
    paging::page(rows, limit, |entry| filter.admits(entry))
}

/// The inbox keys of one conversation by deadline. They are few: at most one per call of its turn.
pub(super) fn open_keys(
    from: &ReadTransaction,
    id: &Scoped<ConversationId>,
) -> Result<Vec<InboxKey>, Error> {
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
) -> Result<Vec<(Scoped<ConversationId>, Timestamp)>, Error> {
    let alarms = from.open_table(tables::ALARMS)?;
    let rows = alarms.range::<(tables::Nanos, &str)>(..)?.take(limit);
    let alarms = rows.map(|row| {
        let key = row?.0;
        let (at, id) = key.value();
        Ok((tables::id(id)?, tables::timestamp(at)?))
    });
    alarms.collect()
}

pub(super) fn revision(
    from: &Snapshot<'_>,
    id: &Scoped<Revision>,
) -> Result<Option<StoredAgent>, Error> {
    let Some(stored) = from.open_table(tables::REVISIONS)?.get(id.as_str())? else {
        return Ok(None);
    };
    tables::parse("agent", &from.open(Label::definition(id), stored.value())?).map(Some)
}

pub(super) fn agent(
    from: &Snapshot<'_>,
    name: &Scoped<AgentName>,
) -> Result<Option<StoredAgent>, Error> {
    match newest(from, name)? {
        Some(newest) => revision(from, &name.sibling(&newest)),
        None => Ok(None),
    }
}

pub(super) fn newest(
    from: &ReadTransaction,
    name: &Scoped<AgentName>,
) -> Result<Option<Revision>, Error> {
    let Some(agents) = tables::AGENTS.open(from, &name.tenant())? else { return Ok(None) };
    let newest = agents.get(name.as_str())?;
    Ok(newest.map(|newest| Revision::new(newest.value())))
}

pub(super) fn decisions(
    from: &Snapshot<'_>,
    agent: &Scoped<AgentName>,
) -> Result<Vec<RememberedDecision>, Error> {
    let decisions = from.open_table(tables::DECISIONS)?;
    let label = Label { kind: "decision", owner: agent.as_str(), part: "" };
    let mut found = Vec::new();
    for row in decisions.range((agent.as_str(), "")..)? {
        let (key, json) = row?;
        if key.value().0 != agent.as_str() {
            break;
        }
        // One that cannot be read decides nothing.
        found.extend(encryption::listed(decision(from, label, json.value()))?);
    }
    Ok(found)
}

/// A decision, and what is stored of it.
pub(super) fn stored_decision(
    from: &Snapshot<'_>,
    agent: &Scoped<AgentName>,
    id: &DecisionId,
) -> Result<Option<(RememberedDecision, Vec<u8>)>, Error> {
    let label = Label { kind: "decision", owner: agent.as_str(), part: "" };
    let stored = from.open_table(tables::DECISIONS)?.get((agent.as_str(), id.as_str()))?;
    let Some(stored) = stored.map(|stored| stored.value().to_vec()) else { return Ok(None) };
    Ok(decision(from, label, &stored)?.map(|decision| (decision, stored)))
}

fn decision(
    from: &Snapshot<'_>,
    label: Label<'_>,
    value: &[u8],
) -> Result<Option<RememberedDecision>, Error> {
    tables::parse("decision", &from.open(label, value)?).map(Some)
}

pub(super) fn agents(from: &Snapshot<'_>, tenant: &Tenant) -> Result<Vec<StoredAgent>, Error> {
    let Some(agents) = tables::AGENTS.open(from, tenant)? else { return Ok(Vec::new()) };
    let newest = agents.range::<&str>(..)?.map(|row| {
        let newest = Revision::new(row?.1.value());
        revision(from, &Scoped::new(tenant, &newest))
    });
    newest.filter_map(Result::transpose).collect()
}
