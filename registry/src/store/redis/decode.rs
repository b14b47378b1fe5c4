//! What is read back, from Redis' answers.

use abide_actors::journal::{Claim, ConversationSummary, Holder, StoreError, StoredResponse};
use abide_conversation::state::ConversationStatus;
use abide_conversation::{AgentName, ConversationId, Timestamp};
use redis::{Cmd, Value, cmd};
use serde::de::DeserializeOwned;

use super::error::refused;
use super::execute::read;
use super::keys::Tag;

/// Asks for what [`head`] reads.
pub(super) fn ask_head(id: &ConversationId) -> (Tag, Cmd) {
    let fields = ["seq", "agent", "head", "alarm", "active", "metadata"];
    ask_fields(id, &fields)
}

/// Asks for what [`holding`] reads.
pub(super) fn ask_holding(id: &ConversationId) -> (Tag, Cmd) {
    ask_fields(id, &["node", "incarnation", "epoch"])
}

/// Asks for what [`seq`] reads.
pub(super) fn ask_seq(id: &ConversationId) -> (Tag, Cmd) {
    ask_fields(id, &["seq"])
}

fn ask_fields(id: &ConversationId, fields: &[&str]) -> (Tag, Cmd) {
    let tag = Tag::of(id);
    let mut command = cmd("HMGET");
    command.arg(tag.key_of("c", id.as_str())).arg(fields);
    (tag, command)
}

type Text = Option<String>;

pub(super) fn head(
    id: &ConversationId,
    row: Value,
) -> Result<Option<ConversationSummary>, StoreError> {
    let named = || named(id);
    let row: (Option<u64>, Text, Text, Text, Text, Text) = read(&named(), row)?;
    let (Some(last_seq), Some(agent), Some(head), alarm, active, metadata) = row else {
        return Ok(None);
    };
    let (state, created_at): (ConversationStatus, Timestamp) = parse(&named(), head.as_bytes())?;
    let alarm = alarm.filter(|at| !at.is_empty()).map(|at| at.parse());
    let alarm = alarm.transpose().map_err(|error| refused(format!("{}: {error}", named())))?;
    let metadata = metadata.map(|json| parse(&named(), json.as_bytes())).transpose()?;
    Ok(Some(ConversationSummary {
        agent: AgentName::new(agent),
        state,
        last_seq,
        created_at,
        metadata: metadata.unwrap_or_default(),
        alarm,
        active: active.as_deref() == Some("1"),
    }))
}

pub(super) fn holding(id: &ConversationId, row: Value) -> Result<Option<Claim>, StoreError> {
    let row: (Text, Text, Option<u64>) = read(&named(id), row)?;
    Ok(match row {
        (Some(node), Some(incarnation), Some(epoch)) => {
            Some(Claim { holder: Holder { node, incarnation }, epoch })
        }
        _ => None,
    })
}

pub(super) fn seq(id: &ConversationId, row: Value) -> Result<Option<u64>, StoreError> {
    let (seq,): (Option<u64>,) = read(&named(id), row)?;
    Ok(seq)
}

/// An answer without the nonce before it.
pub(super) fn answer(scope: &str, value: &[u8]) -> Result<StoredResponse, StoreError> {
    let json = value.iter().position(|byte| *byte == b' ').map(|at| &value[at + 1..]);
    parse(&Tag::of_scope(scope).key_of("a", scope), json.unwrap_or_default())
}

/// Reads JSON that this program wrote; `what` names it where it cannot be read.
pub(super) fn parse<T: DeserializeOwned>(what: &str, json: &[u8]) -> Result<T, StoreError> {
    abide_conversation::from_json(json).map_err(|error| refused(format!("{what}: {error}")))
}

fn named(id: &ConversationId) -> String {
    Tag::of(id).key_of("c", id.as_str())
}
