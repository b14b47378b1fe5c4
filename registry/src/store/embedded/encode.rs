//! Commits and responses as bytes, which their callers encode: that is the costly part of a write.

use std::sync::Arc;

use abide_actors::journal::{Claim, Commit, InboxEntry, ResponseScope, StoreError, StoredResponse};
use abide_conversation::{ConversationId, Scoped, Timestamp};
use serde::Serialize;

use super::super::KeyChange;
use super::tables::Record;

/// A commit as bytes.
pub(super) struct Append {
    pub(super) id: Scoped<ConversationId>,
    pub(super) held: Claim,
    pub(super) commit: Commit,
    pub(super) record: Vec<u8>,
    pub(super) events: Arc<[Vec<u8>]>,
    pub(super) entries: Vec<Vec<u8>>,
    pub(super) state: Option<Vec<u8>>,
    pub(super) responses: Vec<EncodedResponse>,
}

/// A response to keep, as bytes.
pub(super) struct EncodedResponse {
    pub(super) scope: String,
    pub(super) key: String,
    pub(super) expires_at: Timestamp,
    pub(super) json: Vec<u8>,
}

impl Append {
    /// Encodes a commit, which is the costly part, on the caller's thread.
    pub(super) fn new(
        id: &Scoped<ConversationId>,
        held: &Claim,
        commit: Commit,
    ) -> Result<Self, StoreError> {
        let record = json(&Record { epoch: held.epoch, summary: commit.summary.clone() })?;
        let events = commit.event_json()?;
        let entries = commit.opened.iter().map(|pending| {
            let (conversation_id, agent) = (id.local(), commit.summary.agent.clone());
            let participants = commit.summary.participants.clone();
            json(&InboxEntry { conversation_id, agent, participants, pending: pending.clone() })
        });
        let entries = entries.collect::<Result<_, _>>()?;
        let state = commit.state.as_ref().map(json).transpose()?;
        let scope = ResponseScope::Conversation(id.clone());
        let responses =
            commit.responses.iter().map(|response| EncodedResponse::new(&scope, response));
        let responses = responses.collect::<Result<_, _>>()?;
        let (id, held) = (id.clone(), held.clone());
        Ok(Self { id, held, commit, record, events, entries, state, responses })
    }
}

impl EncodedResponse {
    pub(super) fn new(
        scope: &ResponseScope,
        response: &StoredResponse,
    ) -> Result<Self, StoreError> {
        let (scope, key) = (scope.text(), response.key.clone());
        Ok(Self { scope, key, expires_at: response.expires_at, json: json(response)? })
    }
}

/// The response to keep with a write, if there is one.
pub(super) fn response(
    scope: &ResponseScope,
    response: Option<StoredResponse>,
) -> Result<Option<EncodedResponse>, StoreError> {
    response.map(|response| EncodedResponse::new(scope, &response)).transpose()
}

/// The API key that a change stores; `None` if it removes one.
pub(super) fn changed_key(change: &KeyChange) -> Result<Option<Vec<u8>>, StoreError> {
    match change {
        KeyChange::Add(key) | KeyChange::Update(key) => json(key).map(Some),
        KeyChange::Remove(_) => Ok(None),
    }
}

pub(super) fn json(value: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(value).map_err(|error| StoreError::Unavailable(error.to_string()))
}
