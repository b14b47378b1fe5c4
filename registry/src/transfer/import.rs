//! Reads a conversation from lines into a store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use abide_actors::blobs::{Blob, named_blobs};
use abide_actors::conversation::imported;
use abide_actors::journal::{
    Claim, Commit, Holder, ResponseScope, StoreError, StoredResponse, event_json,
};
use abide_conversation::command::{CopiedEvents, Create, Update};
use abide_conversation::event::{Created, EventData, lost_member};
use abide_conversation::fork::Fork;
use abide_conversation::identity::Participants;
use abide_conversation::limits::check_event;
use abide_conversation::{
    Action, AgentName, CheckedFold, Command, ConversationId, Event, IllegalEvent, Principal,
    Revision, Scoped, Seq, State, Tenant, Timestamp, decide_and_fold, from_json,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::claim::claim_whole;
use super::error::ImportError;
use super::line::{EXPORT_FORMAT, Line, MAX_BLOB_BYTES, MAX_DEPTH, MAX_EVENT_BYTES, Marker, depth};
use crate::CLOCK_SKEW;
use crate::cluster_client::ClusterClient;
use crate::store::{StagedJournal, Store, StoredAgent};

/// How many events are written at once, and their bytes, which stay in memory until then.
const PAGE_EVENTS: usize = 256;
const PAGE_BYTES: usize = 1 << 20;
/// The blobs that one conversation names, whose ids stay in memory until it is whole.
const MAX_NAMED_BLOBS: usize = 100_000;
/// The definitions of one conversation.
const MAX_DEFINITIONS: usize = 16;

/// The imports of this process, which name what each has aside.
static IMPORTS: AtomicU64 = AtomicU64::new(0);

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
    source: CheckedFold,
    /// The conversation, as far as it was written, aside or not.
    written: Arc<State>,
    /// Whether the conversation may be there.
    may_be_written: bool,
    /// What was read and not written.
    page: Vec<Event>,
    page_bytes: usize,
    /// What of it is aside, where nobody sees it, until it is whole.
    staged: StagedJournal,
    claim: Option<Claim>,
    /// Who knows which holders are dead; `None` where no node is.
    cluster: Option<ClusterClient>,
    response: Option<StoredResponse>,
}

struct Header {
    id: ConversationId,
    agent: AgentName,
    last_seq: Seq,
}

impl Import {
    /// An import as the conversation `id`: under the id of the source, as it is, if `keeps_id`; else
    /// as a copy in which all open work is cancelled. `me` claims the conversation when it is whole.
    pub fn new(
        store: Arc<dyn Store>,
        me: Holder,
        id: Option<Scoped<ConversationId>>,
        tenant: &Tenant,
        now: Timestamp,
    ) -> Self {
        let keeps_id = id.is_none();
        let nameless = || Scoped::new(tenant, &ConversationId::new("x"));
        let id = id.unwrap_or_else(nameless);
        let number = IMPORTS.fetch_add(1, Ordering::Relaxed);
        let import = format!("{}-{number}", me.incarnation);
        let (last_seq, blobs) = (Seq::ZERO, BTreeSet::new());
        let staged = StagedJournal { id: id.clone(), import, last_seq, blobs };
        Self {
            store,
            me,
            id,
            keeps_id,
            now,
            header: None,
            definitions: Vec::new(),
            has_blobs: false,
            is_whole: false,
            source: CheckedFold::default(),
            written: Arc::default(),
            may_be_written: false,
            page: Vec::new(),
            page_bytes: 0,
            staged,
            claim: None,
            cluster: None,
            response: None,
        }
    }

    /// Lets the import replace the claims of holders that are dead.
    #[must_use]
    pub fn with_cluster(self, cluster: ClusterClient) -> Self {
        Self { cluster: Some(cluster), ..self }
    }

    /// Lets the import keep this for a repeat of its request.
    #[must_use]
    pub fn with_response(self, response: Option<StoredResponse>) -> Self {
        Self { response, ..self }
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
        self.source.state().exists()
    }

    /// The last event that was read.
    fn read_upto(&self) -> Seq {
        self.source.state().seq
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
        let readable = 1..=u64::from(EXPORT_FORMAT);
        if let Some(format) = marker.format.filter(|format| !readable.contains(format)) {
            return Err(ImportError::OtherFormat(format));
        }
        if self.is_whole {
            return Err(ImportError::Misplaced("follows the end"));
        }
        if marker.abide.is_none() {
            let event: Event = from_json(line).map_err(not_a_line)?;
            if let Some(path) = lost_member(line, &event).map_err(not_a_line)? {
                return Err(ImportError::UnknownMember(path));
            }
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
                if last_seq != self.read_upto() {
                    return Err(ImportError::Misplaced("last_seq: ends another journal"));
                }
                self.source.check_end()?;
                self.is_whole = true;
                Ok(Taken::End)
            }
            Line::StoreEnd { .. } => {
                Err(ImportError::Misplaced("ends a store, and is no line of a conversation"))
            }
        }
    }

    async fn begin(&mut self, header: Header) -> Result<(), ImportError> {
        if self.header.is_some() {
            return Err(ImportError::Misplaced("begins a second conversation"));
        }
        if self.keeps_id {
            let id = ConversationId::parse(header.id.as_str());
            let id =
                id.ok_or(ImportError::Misplaced("id: is one that no conversation can have"))?;
            self.id = self.id.sibling(&id);
            self.staged.id = self.id.clone();
        }
        self.header = Some(header);
        let present = self.store.summary(&self.id).await.map_err(ImportError::Store)?;
        if present.is_none() {
            return Ok(());
        }
        let Some(response) = &self.response else { return Err(ImportError::Exists) };
        let scope = ResponseScope::Conversation(self.id.clone());
        let first = self.store.stored_response(&scope, &response.key, self.now).await;
        let first = first.map_err(ImportError::Store)?;
        let is_repeat = first.is_some_and(|first| first.fingerprint == response.fingerprint);
        Err(if is_repeat { ImportError::Repeated } else { ImportError::Exists })
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
            Some(header) if header.last_seq == self.read_upto() && self.has_events() => Ok(()),
            Some(_) => Err(ImportError::Misplaced("stands before the end of the journal")),
            None => Err(ImportError::Misplaced("stands before the conversation")),
        }
    }

    async fn event(&mut self, event: Event, bytes: usize) -> Result<(), ImportError> {
        let Some(header) = &self.header else {
            return Err(ImportError::Misplaced("stands before the conversation"));
        };
        if event.seq > header.last_seq || self.has_blobs {
            return Err(ImportError::Misplaced("seq: is an event behind the end of the journal"));
        }
        if let EventData::Unknown(unknown) = &event.data {
            return Err(ImportError::UnknownEvent(unknown.kind.clone()));
        }
        if matches!(&event.data, EventData::Created(created) if created.agent != header.agent) {
            return Err(ImportError::Misplaced(
                "data.agent: names another agent than the conversation",
            ));
        }
        let latest = self.now.checked_add(CLOCK_SKEW).unwrap_or(Timestamp::MAX);
        if event.at > latest {
            return Err(ImportError::Misplaced("at: lies in the future, by more than a minute"));
        }
        check_event(&header.id, self.source.state(), &event)?;
        let is_full = self.page.len() >= PAGE_EVENTS || self.page_bytes + bytes > PAGE_BYTES;
        if is_full && !self.page.is_empty() {
            self.write(false).await?;
        }
        self.source.fold(&event)?;
        self.page_bytes += bytes;
        self.page.push(event);
        Ok(())
    }

    /// The definitions that the conversation needs and the place does not have.
    pub async fn needed_definitions(&self) -> Result<Vec<NeededDefinition>, ImportError> {
        let State { turn, dispatches, .. } = self.source.state();
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
            let newest = self.store.newest(&self.id.sibling(name)).await;
            let is_newest = is_first && newest.map_err(ImportError::Store)?.is_none();
            let is_missing = in_use.remove(revision) && !self.has_revision(revision).await?;
            if is_newest || is_missing {
                needed.push(NeededDefinition { definition: definition.clone(), is_newest });
            }
        }
        for revision in in_use {
            if !self.has_revision(revision).await? {
                return Err(ImportError::MissingRevision(revision.clone()));
            }
        }
        Ok(needed)
    }

    async fn has_revision(&self, revision: &Revision) -> Result<bool, ImportError> {
        let found = self.store.revision(&self.id.sibling(revision)).await;
        Ok(found.map_err(ImportError::Store)?.is_some())
    }

    /// Refuses a conversation whose end is missing.
    pub fn require_whole(&self) -> Result<(), ImportError> {
        if !self.is_whole {
            return Err(ImportError::Misplaced("is the last one, but the end is missing"));
        }
        if self.source.state().forking.is_some() {
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
        if self.staged.last_seq > Seq::ZERO {
            self.store.unstage(&self.staged).await?;
        }
        let Some(claim) = self.claim.take() else { return Ok(()) };
        if self.may_be_written {
            self.store.delete(&self.id, &claim, None, Vec::new()).await?;
        }
        self.store.release(&self.id, &claim).await
    }

    /// Writes what was read: aside, or at last as the end of a conversation that is there as a whole.
    async fn write(&mut self, is_last: bool) -> Result<(), ImportError> {
        let page = std::mem::take(&mut self.page);
        self.page_bytes = 0;
        let (events, next) = if self.keeps_id {
            (page, Arc::new(self.source.state().clone()))
        } else {
            self.copied(page, is_last)?
        };
        self.written = next.clone();
        if !is_last {
            let json = event_json(&events).map_err(ImportError::Store)?;
            self.staged.blobs.extend(json.iter().flat_map(|json| named_blobs(json)));
            if self.staged.blobs.len() > MAX_NAMED_BLOBS {
                return Err(ImportError::Misplaced(
                    "names more than 100000 blobs with those before",
                ));
            }
            let staged = self.store.stage(&self.staged, events.into()).await;
            self.staged.last_seq = next.seq;
            return staged.map_err(ImportError::Store);
        }
        let claim = self.claimed().await?;
        let indexed = self.indexed_keys().await.map_err(ImportError::Store)?;
        let responses = self.response.clone().into_iter().collect();
        let commit = Commit { responses, ..imported(&next, events.into(), indexed) };
        // Written, for all that is known, even if the answer is lost.
        self.may_be_written = true;
        let written = if self.staged.last_seq > Seq::ZERO {
            self.store.publish(&self.staged, &claim, commit).await
        } else {
            self.store.append(&self.id, &claim, commit).await
        };
        match written {
            Ok(()) => Ok(()),
            Err(StoreError::Fenced) => Err(ImportError::TakenUp),
            Err(StoreError::Conflict) => {
                self.may_be_written = false;
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
            let members = Some(self.source.state().participants.members.clone());
            let by = Principal::new("system");
            // The last end that was written, if it is still to come.
            let expires_at = self.source.state().expires_at.filter(|at| self.now < *at);
            let update = Update {
                metadata: None,
                title: None,
                members,
                expires_at: Some(expires_at),
                by,
                identity: None,
            };
            let updated = decided(&state, Action::Update(update))?;
            events.extend(updated.events);
            state = updated.state;
        }
        Ok((events, state))
    }

    fn create(&self, first: Event) -> Result<Create, ImportError> {
        let created_at = Some(first.at);
        let (EventData::Created(created), Some(header)) = (first.data, &self.header) else {
            return Err(IllegalEvent::NotCreated.into());
        };
        let Created { agent, assigns, metadata, title, tools, owner, members, .. } = created;
        let conversation_id = header.id.clone();
        let fork = Fork { conversation_id, at_seq: header.last_seq, created_at };
        Ok(Create {
            agent,
            assigns,
            metadata,
            title,
            expires_at: None,
            tools,
            parent: None,
            fork: Some(fork),
            participants: Participants { owner, members },
        })
    }

    async fn claimed(&mut self) -> Result<Claim, ImportError> {
        let cluster = self.cluster.as_ref();
        let claim = claim_whole(&*self.store, &self.id, &self.me, cluster).await?;
        self.claim = Some(claim.clone());
        Ok(claim)
    }
}
