//! Commits and responses as bytes, which their callers encode: that is the costly part of a write.

use std::borrow::Cow;
use std::sync::Arc;

use abide_actors::blobs::blobs_of_commit;
use abide_actors::journal::{
    Claim, Commit, InboxEntry, Relisting, ResponseScope, StoreError, StoredResponse,
};
use abide_conversation::{ConversationId, Scoped, Timestamp};
use serde::Serialize;

use super::super::blob_names::Naming;
use super::super::listing::Entry;
use super::super::sealing::{CommitKey, Label, Sealer, seal_own, seal_response, sealed_events};
use super::super::{KeyChange, StagedJournal};
use super::encryption::{inbox_part, seal_owed};
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
    /// What lists show, if the store is encrypted and the commit writes all of it.
    pub(super) entry: Option<Entry>,
    /// The events before those of the commit, which are aside.
    pub(super) staged: Option<StagedJournal>,
    /// The blobs that the events name.
    pub(super) namings: Vec<Naming>,
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
        mut commit: Commit,
        sealer: Option<&Sealer>,
        key: Option<&CommitKey>,
    ) -> Result<Self, StoreError> {
        let own = key.map(|key| &key.own);
        let summary = commit.summary.clone();
        let mut record = Record { epoch: held.epoch, summary, key: None, sealed: None };
        own.map(|own| record.seal(own)).transpose()?;
        let record = json(&record)?;
        let events = sealed_events(&commit.events, &commit.event_json()?, own)?;
        let entries = commit.opened.iter().map(|pending| {
            let (conversation_id, agent) = (id.local(), commit.summary.agent.clone());
            let participants = commit.summary.participants.clone();
            let entry =
                InboxEntry { conversation_id, agent, participants, pending: pending.clone() };
            inbox_entry(id, &entry, sealer)
        });
        let entries = entries.collect::<Result<_, StoreError>>()?;
        let state = commit.state.as_ref().map(json).transpose()?;
        let state = state.map(|json| Ok(seal_own(own, "state", "", &json)?.into_owned()));
        let state = state.transpose()?;
        let scope = ResponseScope::Conversation(id.clone());
        let responses = commit.responses.iter().cloned();
        let responses = responses.map(|response| EncodedResponse::new(&scope, response, sealer));
        let responses = responses.collect::<Result<_, _>>()?;
        commit.owed = seal_owed(sealer, id, std::mem::take(&mut commit.owed))?;
        let index_key = sealer.and_then(Sealer::new_index_key);
        let entry = match (&commit.relisting, index_key) {
            (Relisting::Whole { indexed }, Some(_)) => {
                Some(Entry::new(&commit.summary, indexed, index_key))
            }
            (Relisting::Whole { .. } | Relisting::Touched | Relisting::Unchanged, _) => None,
        };
        let namings = Naming::all(id, blobs_of_commit(&commit)?);
        Ok(Self {
            id: id.clone(),
            held: held.clone(),
            commit,
            record,
            events,
            entries,
            state,
            responses,
            entry,
            staged: None,
            namings,
        })
    }
}

/// An inbox entry as it is stored.
pub(super) fn inbox_entry(
    id: &Scoped<ConversationId>,
    entry: &InboxEntry,
    sealer: Option<&Sealer>,
) -> Result<Vec<u8>, StoreError> {
    let json = json(entry)?;
    let Some(sealer) = sealer else { return Ok(json) };
    let part = inbox_part(entry.pending.call_id.as_str(), entry.pending.suspension);
    let label = Label { kind: "inbox", owner: id.as_str(), part: &part };
    sealer.seal(label, json.into()).map(Cow::into_owned)
}

impl EncodedResponse {
    pub(super) fn new(
        scope: &ResponseScope,
        response: StoredResponse,
        sealer: Option<&Sealer>,
    ) -> Result<Self, StoreError> {
        let response = seal_response(sealer, scope, response)?;
        let json = json(&response)?;
        let StoredResponse { key, expires_at, .. } = response;
        Ok(Self { scope: scope.text(), key, expires_at, json })
    }
}

/// The response to keep with a write, if there is one.
pub(super) fn response(
    scope: &ResponseScope,
    response: Option<StoredResponse>,
    sealer: Option<&Sealer>,
) -> Result<Option<EncodedResponse>, StoreError> {
    response.map(|response| EncodedResponse::new(scope, response, sealer)).transpose()
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
