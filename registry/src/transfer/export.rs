//! Writes conversations as lines.

use std::collections::BTreeSet;

use abide_actors::blobs::{Blob, named_blobs};
use abide_actors::journal::{ConversationSummary, StoreError};
use abide_conversation::{BlobId, ConversationId, Event, Revision, Scoped, Seq, State, evolve};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use tokio::sync::mpsc::Sender;

use super::line::{EXPORT_FORMAT, Line};
use crate::store::{ListError, Page, Store, StoredAgent, SummaryFilter};

/// How many events, and conversations, are read at a time.
const PAGE_ROWS: usize = 64;

/// How many conversations that are left out are named.
const MAX_NAMED: usize = 20;

/// Why an export is not whole.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("the conversation does not exist, or no longer")]
    NotFound,
    /// Nobody reads the lines any more.
    #[error("the reader has gone")]
    Gone,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Writes one conversation as it is now, whatever happens to it meanwhile: its definitions, its
/// journal, and the blobs that the journal names. With `names_tenant` the lines say whose it is.
pub async fn export(
    store: &dyn Store,
    id: &Scoped<ConversationId>,
    names_tenant: bool,
    lines: &Sender<Vec<u8>>,
) -> Result<(), ExportError> {
    let summary = store.summary(id).await?.ok_or(ExportError::NotFound)?;
    let writer = Writer { store, id, lines, tenant: names_tenant.then(|| id.tenant()) };
    writer.write(&summary).await
}

/// What an export of a store has written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    pub conversations: u64,
    /// How many could not be read, and were left out.
    pub missing: u64,
    /// The first of those.
    pub missing_ids: Vec<String>,
}

impl Exported {
    fn note_missing(&mut self, id: &Scoped<ConversationId>) {
        self.missing += 1;
        if self.missing_ids.len() < MAX_NAMED {
            self.missing_ids.push(id.to_string());
        }
    }
}

/// Writes the agents of all tenants, and each of their conversations as it is at that moment; the
/// last line says how many were written. One that is deleted meanwhile is left out, and so is one that
/// cannot be read, which the last line says.
pub async fn export_store(
    store: &dyn Store,
    lines: &Sender<Vec<u8>>,
) -> Result<Exported, ExportError> {
    let mut exported = Exported::default();
    let mut tenants = store.all_tenants().await?;
    tenants.insert(abide_conversation::Tenant::default());
    for tenant in &tenants {
        for StoredAgent { name, revision, definition, .. } in store.agents(tenant).await? {
            let tenant = Some(tenant.clone());
            send(lines, &Line::Definition { tenant, agent: name, revision, definition }).await?;
        }
        let (filter, mut cursor) = (SummaryFilter::default(), None);
        loop {
            let page = store.conversations(tenant, &filter, cursor.as_deref(), PAGE_ROWS).await;
            let Page { items, cursor: next } = page.map_err(|error| match error {
                ListError::Store(error) => error,
                ListError::Cursor => StoreError::Unavailable(error.to_string()),
            })?;
            for (id, _) in items {
                // What was written of one that is left out has no end, so that nobody reads it.
                match export(store, &id, true, lines).await {
                    Ok(()) => exported.conversations += 1,
                    Err(ExportError::NotFound) => {}
                    Err(ExportError::Store(StoreError::Unreadable(reason))) => {
                        tracing::error!(conversation = %id, reason, "conversation not exported");
                        exported.note_missing(&id);
                    }
                    Err(error) => return Err(error),
                }
            }
            cursor = next;
            if cursor.is_none() {
                break;
            }
        }
    }
    let Exported { conversations, missing, missing_ids } = exported.clone();
    send(lines, &Line::StoreEnd { conversations, missing, missing_ids }).await?;
    Ok(exported)
}

struct Writer<'a> {
    store: &'a dyn Store,
    id: &'a Scoped<ConversationId>,
    lines: &'a Sender<Vec<u8>>,
    tenant: Option<abide_conversation::Tenant>,
}

impl Writer<'_> {
    async fn write(&self, summary: &ConversationSummary) -> Result<(), ExportError> {
        let ConversationSummary { agent, last_seq, .. } = summary;
        send(
            self.lines,
            &Line::Conversation {
                format: EXPORT_FORMAT,
                tenant: self.tenant.clone(),
                id: self.id.local(),
                agent: agent.clone(),
                last_seq: *last_seq,
            },
        )
        .await?;
        let mut written = BTreeSet::new();
        if let Some(newest) = self.store.newest(&self.id.sibling(agent)).await? {
            self.definition(newest, &mut written).await?;
        }
        let (state, blobs) = self.events(*last_seq).await?;
        for run in state.dispatches.into_values() {
            self.definition(run.revision, &mut written).await?;
        }
        if let Some(turn) = state.turn {
            self.definition(turn.revision, &mut written).await?;
        }
        for id in blobs {
            if let Some(blob) = self.store.blob(&self.id.sibling(&id)).await? {
                self.blob(id, &blob).await?;
            }
        }
        send(self.lines, &Line::End { last_seq: *last_seq }).await
    }

    /// Writes the events up to this one. Returns the state after it, and the blobs that they name.
    async fn events(&self, last_seq: Seq) -> Result<(State, BTreeSet<BlobId>), ExportError> {
        let (mut state, mut blobs) = (State::default(), BTreeSet::new());
        while state.seq < last_seq {
            let page: Vec<Event> = self.store.events(self.id, state.seq, PAGE_ROWS).await?;
            if page.is_empty() {
                return Err(ExportError::NotFound);
            }
            for event in page.iter().filter(|event| event.seq <= last_seq) {
                let json = encode(event)?;
                blobs.extend(named_blobs(&json));
                evolve(&mut state, event);
                self.lines.send(json).await.map_err(|_| ExportError::Gone)?;
            }
        }
        Ok((state, blobs))
    }

    async fn definition(
        &self,
        revision: Revision,
        written: &mut BTreeSet<Revision>,
    ) -> Result<(), ExportError> {
        if !written.insert(revision.clone()) {
            return Ok(());
        }
        let found = self.store.revision(&self.id.sibling(&revision)).await?;
        let Some(StoredAgent { name: agent, definition, .. }) = found else { return Ok(()) };
        send(self.lines, &Line::Definition { tenant: None, agent, revision, definition }).await
    }

    async fn blob(&self, id: BlobId, blob: &Blob) -> Result<(), ExportError> {
        let media_type = blob.media_type().to_owned();
        send(self.lines, &Line::Blob { id, media_type, data: STANDARD.encode(blob.bytes()) }).await
    }
}

async fn send(lines: &Sender<Vec<u8>>, line: &Line) -> Result<(), ExportError> {
    lines.send(encode(line)?).await.map_err(|_| ExportError::Gone)
}

/// A line, with its line feed.
fn encode(value: &impl Serialize) -> Result<Vec<u8>, ExportError> {
    let json = serde_json::to_vec(value);
    let mut json = json.map_err(|error| StoreError::Unavailable(error.to_string()))?;
    json.push(b'\n');
    Ok(json)
}
