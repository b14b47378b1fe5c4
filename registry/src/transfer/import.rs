//! Reads a conversation from lines into a store.

use std::collections::BTreeSet;
use std::sync::Arc;

use abide_actors::blobs::Blob;
use abide_actors::conversation::imported;
use abide_actors::journal::{Claim, Holder, StoreError};
use abide_conversation::command::{CopiedEvents, Create, Update};
use abide_conversation::event::{Created, EventData};
use abide_conversation::fork::Fork;
use abide_conversation::identity::Participants;
use abide_conversation::{
    Action, AgentName, Command, ConversationId, Event, IllegalEvent, Principal, Rejection,
    Revision, Scoped, Seq, State, Tenant, Timestamp, checked_fold, decide_and_fold, from_json,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::line::{EXPORT_FORMAT, Line, MAX_BLOB_BYTES, MAX_DEPTH, MAX_EVENT_BYTES, Marker, depth};
use crate::store::{Store, StoredAgent};

/// The events of one commit, and their bytes, unless a turn has more: a conversation that is kept is
/// written from one rest to the next.
const PAGE_EVENTS: usize = 256;
const PAGE_BYTES: usize = 1 << 20;
/// The bytes of one commit at most, which stay in memory until it is written.
const MAX_PAGE_BYTES: usize = 32 << 20;
/// The definitions of one conversation.
const MAX_DEFINITIONS: usize = 16;

/// Why an import was refused.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("is no JSON that an export has: {0}")]
    NotALine(String),
    #[error("has format {0}; this version reads up to {EXPORT_FORMAT}")]
    NewerFormat(u64),
    #[error("{0}")]
    Misplaced(&'static str),
    #[error("is an event of type {0:?}, which this version does not know")]
    UnknownEvent(String),
    #[error("cannot have happened: {0}")]
    Illegal(#[from] IllegalEvent),
    #[error("cannot be copied: {0}")]
    Rejected(#[from] Rejection),
    #[error("is a blob whose bytes have another hash than its id")]
    OtherHash,
    #[error("is longer than {0} bytes")]
    TooLong(usize),
    #[error("belongs to a turn of more than {MAX_PAGE_BYTES} bytes")]
    TurnTooLarge,
    #[error("the conversation already exists")]
    Exists,
    #[error("the conversation was taken up while it was written")]
    TakenUp,
    #[error(transparent)]
    Store(StoreError),
}

/// What the caller is to do with a line.
#[derive(Debug)]
pub enum Taken {
    Nothing,
    /// To be stored.
    Blob(Blob),
    /// The conversation is whole: to be [finished](Import::finish).
    End,
}

/// A definition that the place lacks.
#[derive(Debug)]
pub struct NeededDefinition {
    pub definition: StoredAgent,
    /// Whether the place has no agent of the name, so that it becomes its newest definition. Else an
    /// open turn runs on it.
    pub is_newest: bool,
}

/// An import of one conversation. Its lines are taken in their order; each event goes through the
/// checked fold before it is written.
pub struct Import {
    store: Arc<dyn Store>,
    me: Holder,
    id: Scoped<ConversationId>,
    keeps_id: bool,
    now: Timestamp,
    header: Option<Header>,
    definitions: Vec<StoredAgent>,
    has_blobs: bool,
    is_whole: bool,
    /// The source, as far as it was read.
    source: State,
    /// The conversation, as far as it was written.
    written: Arc<State>,
    /// What was read and not written.
    page: Vec<Event>,
    page_bytes: usize,
    claim: Option<Claim>,
}

struct Header {
    id: ConversationId,
    agent: AgentName,
    last_seq: Seq,
}

impl Import {
    /// An import as the conversation `id`: under the id of the source, as it is, if `keeps_id`; else
    /// as a copy in which all open work is cancelled. `me` claims the conversation until it is whole.
    pub fn new(
        store: Arc<dyn Store>,
        me: Holder,
        id: Option<Scoped<ConversationId>>,
        tenant: &Tenant,
        now: Timestamp,
    ) -> Self {
        let keeps_id = id.is_none();
        let nameless = || Scoped::new(tenant, &ConversationId::new("x"));
        Self {
            store,
            me,
            id: id.unwrap_or_else(nameless),
            keeps_id,
            now,
            header: None,
            definitions: Vec::new(),
            has_blobs: false,
            is_whole: false,
            source: State::default(),
            written: Arc::default(),
            page: Vec::new(),
            page_bytes: 0,
            claim: None,
        }
    }

    /// The id under which the conversation is written.
    pub fn id(&self) -> &Scoped<ConversationId> {
        &self.id
    }

    /// The last event of the source.
    pub(super) fn last_seq(&self) -> Seq {
        self.header.as_ref().map_or(Seq::ZERO, |header| header.last_seq)
    }

    /// Whether the journal has begun.
    pub(super) fn has_events(&self) -> bool {
        self.source.exists()
    }

    /// Takes the next line.
    pub async fn take(&mut self, line: &[u8]) -> Result<Taken, ImportError> {
        let not_a_line = |error: serde_json::Error| ImportError::NotALine(error.to_string());
        if depth(line) > MAX_DEPTH {
            return Err(ImportError::NotALine(format!("deeper than {MAX_DEPTH} levels")));
        }
        let marker: Marker = serde_json::from_slice(line).map_err(not_a_line)?;
        let is_blob = marker.abide.as_deref() == Some("blob");
        if !is_blob && line.len() > MAX_EVENT_BYTES {
            return Err(ImportError::TooLong(MAX_EVENT_BYTES));
        }
        if let Some(format) = marker.format.filter(|format| *format > u64::from(EXPORT_FORMAT)) {
            return Err(ImportError::NewerFormat(format));
        }
        if self.is_whole {
            return Err(ImportError::Misplaced("follows the end"));
        }
        if marker.abide.is_none() {
            let event: Event = from_json(line).map_err(not_a_line)?;
            return self.event(event, line.len()).await.map(|()| Taken::Nothing);
        }
        match from_json(line).map_err(not_a_line)? {
            Line::Conversation { format: _, tenant: _, id, agent, last_seq } => {
                self.begin(Header { id, agent, last_seq }).await.map(|()| Taken::Nothing)
            }
            Line::Definition { tenant: _, agent: name, revision, definition } => {
                let put_at = None;
                self.definition(StoredAgent { name, revision, definition, put_at })
            }
            Line::Blob { id, media_type, data } => {
                self.require_journal()?;
                self.has_blobs = true;
                let bytes = STANDARD.decode(data);
                let bytes = bytes.map_err(|error| ImportError::NotALine(error.to_string()))?;
                if bytes.len() > MAX_BLOB_BYTES {
                    return Err(ImportError::TooLong(MAX_BLOB_BYTES));
                }
                let blob = Blob::new(&media_type, bytes);
                if blob.id() == id { Ok(Taken::Blob(blob)) } else { Err(ImportError::OtherHash) }
            }
            Line::End { last_seq } => {
                self.require_journal()?;
                if last_seq != self.source.seq {
                    return Err(ImportError::Misplaced("ends another journal"));
                }
                self.is_whole = true;
                Ok(Taken::End)
            }
        }
    }

    async fn begin(&mut self, header: Header) -> Result<(), ImportError> {
        if self.header.is_some() {
            return Err(ImportError::Misplaced("begins a second conversation"));
        }
        if self.keeps_id {
            let id = ConversationId::parse(header.id.as_str());
            let id = id.ok_or(ImportError::Misplaced("has an id that no conversation can have"))?;
            self.id = self.id.sibling(&id);
        }
        self.header = Some(header);
        match self.store.summary(&self.id).await.map_err(ImportError::Store)? {
            Some(_) => Err(ImportError::Exists),
            None => Ok(()),
        }
    }

    fn definition(&mut self, definition: StoredAgent) -> Result<Taken, ImportError> {
        if self.header.is_none() {
            return Err(ImportError::Misplaced("stands before the conversation"));
        }
        if self.definitions.len() >= MAX_DEFINITIONS {
            return Err(ImportError::Misplaced("is one definition too many"));
        }
        self.definitions.push(definition);
        Ok(Taken::Nothing)
    }

    /// Refuses what may only follow the whole journal.
    fn require_journal(&self) -> Result<(), ImportError> {
        match &self.header {
            Some(header) if header.last_seq == self.source.seq && self.source.exists() => Ok(()),
            Some(_) => Err(ImportError::Misplaced("stands before the end of the journal")),
            None => Err(ImportError::Misplaced("stands before the conversation")),
        }
    }

    async fn event(&mut self, event: Event, bytes: usize) -> Result<(), ImportError> {
        let Some(header) = &self.header else {
            return Err(ImportError::Misplaced("stands before the conversation"));
        };
        if event.seq > header.last_seq || self.has_blobs {
            return Err(ImportError::Misplaced("is an event behind the end of the journal"));
        }
        if let EventData::Unknown(unknown) = &event.data {
            return Err(ImportError::UnknownEvent(unknown.kind.clone()));
        }
        if matches!(&event.data, EventData::Created(created) if created.agent != header.agent) {
            return Err(ImportError::Misplaced("names another agent than the conversation"));
        }
        let is_full = self.page.len() >= PAGE_EVENTS || self.page_bytes + bytes > PAGE_BYTES;
        if is_full && !self.page.is_empty() && (!self.keeps_id || is_at_rest(&self.source)) {
            self.write(false).await?;
        }
        self.source = checked_fold(std::mem::take(&mut self.source), &event)?;
        self.page_bytes += bytes;
        if self.page_bytes > MAX_PAGE_BYTES {
            return Err(ImportError::TurnTooLarge);
        }
        self.page.push(event);
        Ok(())
    }

    /// The definitions that the conversation needs and the place does not have.
    pub async fn needed_definitions(&self) -> Result<Vec<NeededDefinition>, StoreError> {
        let State { turn, dispatches, .. } = &self.source;
        let mut in_use: BTreeSet<&Revision> = BTreeSet::new();
        if self.keeps_id {
            in_use.extend(turn.iter().map(|turn| &turn.revision));
            in_use.extend(dispatches.values().map(|run| &run.revision));
        }
        let mut needed = Vec::new();
        for (index, definition) in self.definitions.iter().enumerate() {
            let StoredAgent { name, revision, .. } = definition;
            let is_own = self.header.as_ref().is_some_and(|header| header.agent == *name);
            let is_first = index == 0 && is_own;
            let is_newest = is_first && self.store.newest(&self.id.sibling(name)).await?.is_none();
            let is_missing = in_use.contains(revision)
                && self.store.revision(&self.id.sibling(revision)).await?.is_none();
            if is_newest || is_missing {
                needed.push(NeededDefinition { definition: definition.clone(), is_newest });
            }
        }
        Ok(needed)
    }

    /// Refuses a conversation whose end is missing.
    pub fn require_whole(&self) -> Result<(), ImportError> {
        if !self.is_whole {
            return Err(ImportError::Misplaced("is the last one, but the end is missing"));
        }
        if self.source.forking.is_some() {
            return Err(ImportError::Misplaced("ends a conversation that is still being copied"));
        }
        Ok(())
    }

    /// Writes what is left, so that the conversation is there, and gives it up to whoever takes it up.
    pub async fn finish(&mut self) -> Result<(), ImportError> {
        self.require_whole()?;
        self.write(true).await?;
        if let Some(claim) = self.claim.take() {
            // The conversation is whole. A claim that stays is the next holder's to replace.
            if let Err(error) = self.store.release(&self.id, &claim).await {
                tracing::warn!(conversation = %self.id, %error, "claim of an import not released");
            }
        }
        Ok(())
    }

    /// Removes what was written of an import that failed.
    pub async fn undo(&mut self) -> Result<(), StoreError> {
        let Some(claim) = self.claim.take() else { return Ok(()) };
        if self.written.exists() {
            self.store.delete(&self.id, &claim, None, Vec::new()).await?;
        }
        self.store.release(&self.id, &claim).await
    }

    async fn write(&mut self, is_last: bool) -> Result<(), ImportError> {
        let page = std::mem::take(&mut self.page);
        self.page_bytes = 0;
        let (events, next) = if self.keeps_id {
            (page, Arc::new(self.source.clone()))
        } else {
            self.copied(page, is_last)?
        };
        let claim = self.claimed().await?;
        let indexed = self.indexed_keys().await.map_err(ImportError::Store)?;
        let commit = imported(&next, events.into(), is_last, indexed);
        // Written, for all that is known, even if the answer is lost.
        self.written = next;
        match self.store.append(&self.id, &claim, commit).await {
            Ok(()) => Ok(()),
            Err(StoreError::Fenced) => Err(ImportError::TakenUp),
            Err(StoreError::Conflict) => {
                self.written = Arc::default();
                Err(ImportError::Exists)
            }
            Err(error) => Err(ImportError::Store(error)),
        }
    }

    /// The keys of the metadata by which the agent's conversations are found at this place.
    async fn indexed_keys(&self) -> Result<Arc<[String]>, StoreError> {
        let Some(header) = &self.header else { return Ok(Arc::from([])) };
        let there = self.store.agent(&self.id.sibling(&header.agent)).await?;
        let brought = self.definitions.iter().find(|brought| brought.name == header.agent);
        let definition = there.as_ref().or(brought);
        let keys = definition.and_then(|definition| definition.definition["index"].as_array());
        let keys = keys.into_iter().flatten().filter_map(|key| key.as_str().map(str::to_owned));
        Ok(keys.collect())
    }

    /// The events of a copy: a fork of the source, whose open work it cancels at its end.
    fn copied(
        &self,
        mut page: Vec<Event>,
        is_last: bool,
    ) -> Result<(Vec<Event>, Arc<State>), ImportError> {
        let (mut events, mut state) = (Vec::new(), self.written.clone());
        let decided =
            |state: &Arc<State>, action| decide_and_fold(state, Command { at: self.now, action });
        if !state.exists() {
            let create = self.create(page.remove(0))?;
            let created = decided(&state, Action::Create(create))?;
            events.extend(created.events);
            state = created.state;
        }
        let copied = CopiedEvents { after: state.seq, events: page, is_last };
        let copied = decided(&state, Action::EventsCopied(copied))?;
        events.extend(copied.events);
        state = copied.state;
        if is_last {
            // The copy began with the first members of the source, some of whom may have been removed.
            let members = Some(self.source.participants.members.clone());
            let by = Principal::new("system");
            let update = Update { metadata: None, title: None, members, by, identity: None };
            let updated = decided(&state, Action::Update(update))?;
            events.extend(updated.events);
            state = updated.state;
        }
        Ok((events, state))
    }

    fn create(&self, first: Event) -> Result<Create, ImportError> {
        let (EventData::Created(created), Some(header)) = (first.data, &self.header) else {
            return Err(IllegalEvent::NotCreated.into());
        };
        let Created { agent, assigns, metadata, title, tools, owner, members, .. } = created;
        let fork = Fork { conversation_id: header.id.clone(), at_seq: header.last_seq };
        Ok(Create {
            agent,
            assigns,
            metadata,
            title,
            tools,
            parent: None,
            fork: Some(fork),
            participants: Participants { owner, members },
        })
    }

    async fn claimed(&mut self) -> Result<Claim, ImportError> {
        if let Some(claim) = &self.claim {
            return Ok(claim.clone());
        }
        // An actor of this node that found nothing under the id is fenced.
        let claim = self.store.claim(&self.id, &self.me, Some(&self.me)).await;
        let claim = claim.map_err(ImportError::Store)?;
        if claim.holder != self.me {
            return Err(ImportError::Exists);
        }
        self.claim = Some(claim.clone());
        Ok(claim)
    }
}

/// Whether nothing runs, nor would if the journal ended here.
fn is_at_rest(state: &State) -> bool {
    state.turn.is_none()
        && state.queue.is_empty()
        && state.dispatches.is_empty()
        && state.forking.is_none()
}
