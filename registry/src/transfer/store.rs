//! Reads what was written of a whole store into another one.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use abide_actors::blobs::BlobHold;
use abide_actors::journal::Holder;
use abide_conversation::{ConversationId, Scoped, Tenant, Timestamp};
use serde::Deserialize;

use super::error::ImportError;
use super::import::{Import, NeededDefinition, Taken};
use super::line::Line;
use crate::store::{Store, StoredAgent};

/// What an import of a store has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportCounts {
    pub imported: u64,
    /// Conversations that were there already, and were left as they are.
    pub skipped: u64,
    /// The first of those that have fewer events than the lines: others, or those of an earlier version
    /// whose import died.
    pub shorter: Vec<Scoped<ConversationId>>,
    /// The first of those whose lines have no end, because they were deleted while they were written, or
    /// could not be read. They were left out.
    pub cut_off: Vec<Scoped<ConversationId>>,
}

/// How many conversations of a kind are named.
const MAX_NAMED: usize = 20;

/// An import of the conversations of all tenants under their ids, with their agents. What is there
/// already stays as it is, so that an import that was cut off can be repeated.
pub struct StoreImport {
    store: Arc<dyn Store>,
    me: Holder,
    /// What time it is: conversations may be exported while others are imported.
    now: fn() -> Timestamp,
    current: Option<Import>,
    /// Whether the lines belong to a conversation that is there.
    skips: bool,
    /// Whether events of that conversation have come.
    has_skipped_events: bool,
    counts: ImportCounts,
    progress: Progress,
}

/// How much of the lines has come.
#[derive(Default)]
struct Progress {
    /// The conversations that have begun, and those of them that have ended.
    begun: u64,
    ended: u64,
    /// Whether a line was one of a whole store.
    is_store: bool,
    /// Whether the end of the store has come.
    is_whole: bool,
}

/// What says where a line belongs.
#[derive(Deserialize)]
struct Outline {
    abide: Option<String>,
    #[serde(default)]
    tenant: Option<Tenant>,
}

impl Outline {
    fn kind(&self) -> Option<&str> {
        self.abide.as_deref()
    }

    /// Whether the line is of no conversation that has begun. One whose end has not come then was
    /// deleted at the source while it was written.
    fn is_outside(&self) -> bool {
        match self.kind() {
            Some("conversation" | "store_end") => true,
            // Within a conversation definitions name no tenant.
            Some("definition") => self.tenant.is_some(),
            Some(_) | None => false,
        }
    }
}

impl StoreImport {
    /// An import into a store, in which `me` claims each conversation until it is whole.
    pub fn new(store: Arc<dyn Store>, me: Holder, now: fn() -> Timestamp) -> Self {
        Self {
            store,
            me,
            now,
            current: None,
            skips: false,
            has_skipped_events: false,
            counts: ImportCounts::default(),
            progress: Progress::default(),
        }
    }

    /// Takes the next line. After an error nothing is left of its conversation.
    pub async fn take(&mut self, line: &[u8]) -> Result<(), ImportError> {
        let taken = self.take_line(line).await;
        match taken {
            Err(ImportError::Exists) if self.is_at_head() => self.skip().await,
            Err(error) => {
                if let Some(mut import) = self.current.take() {
                    import.undo().await.map_err(ImportError::Store)?;
                }
                Err(error)
            }
            Ok(()) => Ok(()),
        }
    }

    /// What was done so far.
    pub fn counts(&self) -> &ImportCounts {
        &self.counts
    }

    /// Ends the import. The end of the last conversation is missing, or that of the store, unless
    /// the lines are those of one conversation: then what was whole before is imported.
    pub async fn finish(&mut self) -> Result<(), ImportError> {
        let lacks_end = self.skips || self.current.is_some();
        self.leave_out().await?;
        if lacks_end {
            return Err(ImportError::Misplaced("is the last one, but the end is missing"));
        }
        let Progress { begun, is_store, is_whole, .. } = self.progress;
        let is_one_conversation = begun == 1 && !is_store;
        if is_whole || is_one_conversation { Ok(()) } else { Err(ImportError::StoreEndMissing) }
    }

    /// Leaves a conversation that is there as it is.
    async fn skip(&mut self) -> Result<(), ImportError> {
        (self.skips, self.has_skipped_events) = (true, false);
        self.counts.skipped += 1;
        let Some(import) = self.current.take() else { return Ok(()) };
        let present = self.store.summary(import.id()).await.map_err(ImportError::Store)?;
        let is_shorter = present.is_some_and(|present| present.last_seq < import.last_seq());
        if is_shorter && self.counts.shorter.len() < MAX_NAMED {
            self.counts.shorter.push(import.id().clone());
        }
        Ok(())
    }

    /// Leaves out a conversation whose end has not come.
    async fn leave_out(&mut self) -> Result<(), ImportError> {
        self.skips = false;
        let Some(mut import) = self.current.take() else { return Ok(()) };
        import.undo().await.map_err(ImportError::Store)?;
        if self.counts.cut_off.len() < MAX_NAMED {
            self.counts.cut_off.push(import.id().clone());
        }
        Ok(())
    }

    /// Whether an event of the present conversation was read, or skipped.
    fn has_events(&self) -> bool {
        let is_read = self.current.as_ref().is_some_and(Import::has_events);
        is_read || self.skips && self.has_skipped_events
    }

    fn is_at_head(&self) -> bool {
        self.current.as_ref().is_some_and(|import| !import.has_events())
    }

    async fn take_line(&mut self, line: &[u8]) -> Result<(), ImportError> {
        let outline: Outline = serde_json::from_slice(line)
            .map_err(|error| ImportError::NotALine(error.to_string()))?;
        if self.progress.is_whole {
            return Err(ImportError::Misplaced("follows the end of the store"));
        }
        let kind = outline.kind();
        // The definitions of a conversation stand before its events, and name no tenant.
        if outline.is_outside() || kind == Some("definition") && self.has_events() {
            self.leave_out().await?;
        }
        self.progress.begun += u64::from(kind == Some("conversation"));
        self.progress.is_store |= outline.tenant.is_some();
        if self.skips {
            self.has_skipped_events |= kind.is_none();
            if kind == Some("end") {
                self.progress.ended += 1;
                self.skips = false;
            }
            return Ok(());
        }
        if kind == Some("store_end") {
            return self.end_store(line);
        }
        let is_definition = kind == Some("definition");
        let tenant = outline.tenant.unwrap_or_default();
        if self.current.is_none() && is_definition {
            self.progress.is_store = true;
            return self.put_newest(&tenant, line).await;
        }
        let (store, me) = (self.store.clone(), self.me.clone());
        let now = (self.now)();
        let import = self.current.get_or_insert_with(|| Import::new(store, me, None, &tenant, now));
        match import.take(line).await? {
            Taken::Nothing => Ok(()),
            Taken::Blob(blob) => {
                let id = import.id().sibling(&blob.id());
                let hold = BlobHold::of_conversation(import.id(), now);
                let stored = self.store.store_blob(&id, &blob, Some(&hold)).await;
                stored.map(drop).map_err(ImportError::Store)
            }
            Taken::End => self.complete().await,
        }
    }

    async fn complete(&mut self) -> Result<(), ImportError> {
        let Some(import) = &mut self.current else { return Ok(()) };
        let tenant = import.id().tenant();
        let needed = import.needed_definitions().await?;
        for NeededDefinition { definition, is_newest } in needed {
            let stored = if is_newest {
                self.store.put_agent_if(&tenant, definition, None, None).await.map(drop)
            } else {
                self.store.add_revision(&tenant, definition).await
            };
            stored.map_err(ImportError::Store)?;
        }
        import.finish().await?;
        self.current = None;
        self.counts.imported += 1;
        self.progress.ended += 1;
        Ok(())
    }

    /// Takes the end of the store, which says how many conversations come before it.
    fn end_store(&mut self, line: &[u8]) -> Result<(), ImportError> {
        let line = abide_conversation::from_json(line);
        match line.map_err(|error| ImportError::NotALine(error.to_string()))? {
            Line::StoreEnd { conversations, missing, missing_ids }
                if conversations == self.progress.ended =>
            {
                self.progress.is_whole = true;
                if missing > 0 {
                    let ids = missing_ids.join(", ");
                    return Err(ImportError::Missing { count: missing, ids });
                }
                Ok(())
            }
            Line::StoreEnd { .. }
            | Line::Conversation { .. }
            | Line::Definition { .. }
            | Line::Blob { .. }
            | Line::End { .. } => Err(ImportError::Misplaced(
                "conversations: is not the number of those before the end of the store",
            )),
        }
    }

    /// Makes a definition the newest of its name, unless the name has one.
    async fn put_newest(&self, tenant: &Tenant, line: &[u8]) -> Result<(), ImportError> {
        let line = abide_conversation::from_json(line);
        let line = line.map_err(|error| ImportError::NotALine(error.to_string()))?;
        let Line::Definition { agent: name, revision, definition, .. } = line else {
            return Err(ImportError::Misplaced("stands before the conversation"));
        };
        let scoped = Scoped::new(tenant, &name);
        if self.store.newest(&scoped).await.map_err(ImportError::Store)?.is_some() {
            return Ok(());
        }
        let agent = StoredAgent { name, revision, definition, put_at: Some((self.now)()) };
        let put = self.store.put_agent_if(tenant, agent, None, None).await;
        put.map(drop).map_err(ImportError::Store)
    }
}
