//! Decodes the answers of Redis to rows of the store, and builds the queries for them.

use abide_actors::identity::{Epoch, Incarnation, NodeName};
use abide_actors::journal::{
    Claim, ConversationSummary, Holder, ResponseScope, StoreError, StoredResponse,
};
use abide_conversation::state::ConversationStatus;
use abide_conversation::{AgentName, ConversationId, Scoped, Seq, Timestamp};
use redis::{Cmd, Value, cmd};
use serde::de::DeserializeOwned;

use super::super::super::Occupancy;
pub(in crate::store::redis) use super::super::super::sealing::parse;
use super::super::super::sealing::{self, Label, Sealer};
use super::super::command::error::refused;
use super::super::command::keys::{self, Tag};
use super::super::connection::execute::read;
use super::indexed_row::IndexedRow;

/// The query for [`summary`].
pub(in crate::store::redis) fn query_summary(id: &Scoped<ConversationId>) -> (Tag, Cmd) {
    query_fields(id, &SUMMARY)
}

/// The fields of a summary.
const SUMMARY: [&str; 9] =
    ["seq", "agent", "head", "alarm", "active", "metadata", "participants", "listing", "key"];

/// The fields of a conversation with its content. But for the participants, each is the kind of what
/// its data key seals there, too.
pub(in crate::store::redis) const LISTING: &str = "listing";
pub(in crate::store::redis) const METADATA: &str = "metadata";
pub(in crate::store::redis) const PARTICIPANTS: &str = "participants";
pub(in crate::store::redis) const STATE: &str = "state";

/// The label of the inbox entries of a conversation. An entry names its call itself.
pub(in crate::store::redis) fn inbox_label(id: &Scoped<ConversationId>) -> Label<'_> {
    Label { kind: "inbox", owner: id.as_str(), part: "" }
}

/// The query for [`occupancy`].
pub(in crate::store::redis) fn query_occupancy(id: &Scoped<ConversationId>) -> (Tag, Cmd) {
    query_fields(id, &["node", "incarnation", "epoch", "seq"])
}

/// The query for [`indexed`].
pub(super) fn query_indexed(id: &Scoped<ConversationId>) -> (Tag, Cmd) {
    query_fields(id, &["seq", "alarm", "active", "listed", "queued"])
}

/// The query for [`seq`].
pub(in crate::store::redis) fn query_seq(id: &Scoped<ConversationId>) -> (Tag, Cmd) {
    query_fields(id, &["seq"])
}

fn query_fields(id: &Scoped<ConversationId>, fields: &[&str]) -> (Tag, Cmd) {
    let tag = Tag::of(id);
    let mut command = cmd("HMGET");
    command.arg(tag.key_of("c", id.as_str())).arg(fields);
    (tag, command)
}

type Text = Option<String>;
type Bytes = Option<Vec<u8>>;

/// A row of [`query_summary`].
type SummaryRow = (Option<u64>, Text, Text, Text, Text, Bytes, Text, Bytes, Bytes);

pub(in crate::store::redis) fn summary(
    sealer: Option<&Sealer>,
    id: &Scoped<ConversationId>,
    row: Value,
) -> Result<Option<ConversationSummary>, StoreError> {
    read_summary(sealer, id, row, false)
}

/// The participants of a row of [`query_summary`] as they are stored; nothing stands for none.
pub(in crate::store::redis) fn stored_participants(
    id: &Scoped<ConversationId>,
    row: Value,
) -> Result<String, StoreError> {
    let (.., participants, _, _): SummaryRow = read(&key_name(id), row)?;
    Ok(participants.unwrap_or_default())
}

/// The summary in a list: without the content that cannot be read, so that the others are listed.
pub(in crate::store::redis) fn listed_summary(
    sealer: Option<&Sealer>,
    id: &Scoped<ConversationId>,
    row: Value,
) -> Result<Option<ConversationSummary>, StoreError> {
    read_summary(sealer, id, row, true)
}

fn read_summary(
    sealer: Option<&Sealer>,
    id: &Scoped<ConversationId>,
    row: Value,
    is_in_list: bool,
) -> Result<Option<ConversationSummary>, StoreError> {
    let name = || key_name(id);
    let row: SummaryRow = read(&name(), row)?;
    let (last_seq, agent, status_and_time, alarm, active, metadata, participants, listing, key) =
        row;
    let (Some(last_seq), Some(agent)) = (last_seq, agent) else { return Ok(None) };
    let Some(status_and_time) = status_and_time else { return Ok(None) };
    let (status, created_at): (ConversationStatus, Timestamp) =
        parse(&name(), status_and_time.as_bytes())?;
    let alarm = alarm.filter(|at| !at.is_empty()).map(|at| at.parse());
    let alarm = alarm.transpose().map_err(|error| refused(format!("{}: {error}", name())))?;
    let opened = |kind, value: Bytes| {
        let opened = value.map(|value| open_content(sealer, id, key.as_deref(), kind, value));
        opened.transpose()
    };
    let metadata = content(&name(), opened(METADATA, metadata), is_in_list)?;
    let participants = participants.map(|json| parse(&name(), json.as_bytes())).transpose()?;
    let listing = content(&name(), opened(LISTING, listing), is_in_list)?;
    Ok(Some(ConversationSummary {
        agent: AgentName::new(agent),
        status,
        last_seq: Seq::new(last_seq),
        created_at,
        metadata: metadata.unwrap_or_default(),
        participants: participants.unwrap_or_default(),
        alarm,
        active: active.as_deref() == Some("1"),
        listing: listing.unwrap_or_default(),
    }))
}

/// A part of the content, if it is there, and in a list if it can be read.
fn content<T: DeserializeOwned>(
    name: &str,
    opened: Result<Option<Vec<u8>>, StoreError>,
    is_in_list: bool,
) -> Result<Option<T>, StoreError> {
    let read = opened.and_then(|json| json.map(|json| parse(name, &json)).transpose());
    if is_in_list { sealing::listed(read) } else { read }
}

/// A part of a summary that may be sealed, given the data key as it is stored.
fn open_content(
    sealer: Option<&Sealer>,
    id: &Scoped<ConversationId>,
    key: Option<&[u8]>,
    kind: &'static str,
    value: Vec<u8>,
) -> Result<Vec<u8>, StoreError> {
    if !sealing::is_sealed(&value) {
        return Ok(value);
    }
    match (sealer, key) {
        (Some(sealer), Some(key)) => {
            Ok(sealer.own_key(id, key)?.open(kind, "", &value)?.into_owned())
        }
        (Some(_) | None, _) => Err(sealing::without_key(id.as_str())),
    }
}

pub(in crate::store::redis) fn occupancy(
    id: &Scoped<ConversationId>,
    row: Value,
) -> Result<Occupancy, StoreError> {
    let (node, incarnation, epoch, seq): (Text, Text, Option<u64>, Option<u64>) =
        read(&key_name(id), row)?;
    let claim = match (node, incarnation, epoch) {
        (Some(node), Some(incarnation), Some(epoch)) => {
            let node = NodeName::new(node);
            let holder = Holder { node, incarnation: Incarnation::new(incarnation) };
            Some(Claim { holder, epoch: Epoch::new(epoch) })
        }
        _ => None,
    };
    Ok(Occupancy::new(claim, seq.is_some()))
}

/// What a conversation is indexed by; `None` if there is none.
pub(in crate::store::redis) fn indexed(
    id: &Scoped<ConversationId>,
    row: Value,
) -> Result<Option<IndexedRow>, StoreError> {
    let (seq, alarm, active, listed, queued): (Option<u64>, Text, Text, Text, Text) =
        read(&key_name(id), row)?;
    let fields = [alarm, active, listed, queued].map(Option::unwrap_or_default);
    Ok(seq.map(|seq| IndexedRow::new(seq, fields.into())))
}

pub(in crate::store::redis) fn seq(
    id: &Scoped<ConversationId>,
    row: Value,
) -> Result<Option<Seq>, StoreError> {
    let (seq,): (Option<u64>,) = read(&key_name(id), row)?;
    Ok(seq.map(Seq::new))
}

/// Decodes the id of a conversation in an index.
pub(in crate::store::redis) fn id(member: &str) -> Result<Scoped<ConversationId>, StoreError> {
    Scoped::parse(member).map_err(|error| refused(format!("{member}: {error}")))
}

/// Decodes a stored response, which follows a nonce.
pub(in crate::store::redis) fn response(
    scope: &ResponseScope,
    value: &[u8],
) -> Result<StoredResponse, StoreError> {
    let json = value.iter().position(|byte| *byte == b' ').map(|at| &value[at + 1..]);
    let (tag, name) = keys::of_scope(scope);
    parse(&tag.key_of("a", &name), json.unwrap_or_default())
}

fn key_name(id: &Scoped<ConversationId>) -> String {
    Tag::of(id).key_of("c", id.as_str())
}
