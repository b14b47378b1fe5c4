//! Reads what was written of a whole store into another one.

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
    /// The first of those whose lines have no end, because they were deleted while they were written.
    /// They were left out.
    pub cut_off: Vec<Scoped<ConversationId>>,
}

/// How many conversations of a kind are named.
const MAX_NAMED: usize = 20;

/// An import of the conversations of all tenants under their ids, with their agents. What is there
/// already stays as it is, so that an import that was cut off can be repeated.
pub struct StoreImport {
    store: Arc<dyn Store>,
    me: Holder,
    now: Timestamp,
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
    pub fn new(store: Arc<dyn Store>, me: Holder, now: Timestamp) -> Self {
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
        let import =
            self.current.get_or_insert_with(|| Import::new(store, me, None, &tenant, self.now));
        match import.take(line).await? {
            Taken::Nothing => Ok(()),
            Taken::Blob(blob) => {
                let id = import.id().sibling(&blob.id());
                let hold = BlobHold::of_conversation(import.id(), self.now);
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
            Line::StoreEnd { conversations } if conversations == self.progress.ended => {
                self.progress.is_whole = true;
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
        let agent = StoredAgent { name, revision, definition, put_at: Some(self.now) };
        let put = self.store.put_agent_if(tenant, agent, None, None).await;
        put.map(drop).map_err(ImportError::Store)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use abide_conversation::event::EventData;
    use abide_conversation::{Event, Seq};
    use serde_json::json;

    use super::super::export_store;
    use super::*;
    use crate::store::conformance::{at, claim_conversation, commit, holder, id};
    use crate::store::embedded::{Durability, Embedded};
    use crate::store::memory::Memory;

    async fn lines(store: &Arc<dyn Store>) -> Vec<Vec<u8>> {
        let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
        let store = store.clone();
        let written = tokio::spawn(async move { export_store(&*store, &sender).await });
        let mut lines = Vec::new();
        while let Some(line) = receiver.recv().await {
            lines.push(line);
        }
        written.await.unwrap().unwrap();
        lines
    }

    async fn read(store: &Arc<dyn Store>, lines: &[Vec<u8>]) -> Result<ImportCounts, ImportError> {
        let mut import = StoreImport::new(store.clone(), holder("import"), at(0));
        for line in lines {
            import.take(line).await?;
        }
        import.finish().await?;
        Ok(import.counts().clone())
    }

    fn updated(seq: u64) -> Event {
        let data = json!({"metadata": {"n": seq}, "by": "ada"});
        let data = EventData::Updated(serde_json::from_value(data).unwrap());
        Event { seq: Seq::new(seq), at: at(0), turn_id: None, data }
    }

    /// A tenant that has an agent, and no conversation.
    fn idle() -> Tenant {
        Tenant::parse("calm").unwrap()
    }

    /// Conversations of two tenants, of which one has more events than a page, and agents of two.
    async fn source() -> Arc<dyn Store> {
        let store: Arc<dyn Store> = Arc::new(Memory::default());
        for (name, last) in [("a", 1), ("b", 700), ("acme/c", 3)] {
            let held = claim_conversation(&*store, name).await;
            let mut all = commit(1, last);
            let first = all.events.first().cloned();
            all.events = first.into_iter().chain((2..=last).map(updated)).collect();
            store.append(&id(name), &held, all).await.unwrap();
        }
        let agent = StoredAgent {
            name: "demo".into(),
            revision: "r1".into(),
            definition: json!({"name": "demo"}),
            put_at: None,
        };
        store.put_agent(&Tenant::default(), agent.clone(), None).await.unwrap();
        store.put_agent(&idle(), agent, None).await.unwrap();
        store
    }

    async fn assert_same(one: &Arc<dyn Store>, other: &Arc<dyn Store>) {
        for name in ["a", "b", "acme/c"] {
            let events = one.events(&id(name), Seq::ZERO, 1_000).await.unwrap();
            assert!(!events.is_empty());
            assert_eq!(other.events(&id(name), Seq::ZERO, 1_000).await.unwrap(), events, "{name}");
        }
        for tenant in [Tenant::default(), idle()] {
            let agents = one.agents(&tenant).await.unwrap();
            let theirs = other.agents(&tenant).await.unwrap();
            assert_eq!(agents[0].definition, theirs[0].definition, "{tenant}");
        }
    }

    #[tokio::test]
    async fn a_store_moves_to_a_file_and_back() {
        let source = source().await;
        let directory = tempfile::tempdir().unwrap();
        let file = Embedded::open(directory.path(), Durability::Os).unwrap();
        let file: Arc<dyn Store> = Arc::new(file);
        let all = ImportCounts { imported: 3, ..ImportCounts::default() };
        assert_eq!(read(&file, &lines(&source).await).await.unwrap(), all.clone());
        assert_same(&source, &file).await;
        let back: Arc<dyn Store> = Arc::new(Memory::default());
        assert_eq!(read(&back, &lines(&file).await).await.unwrap(), all);
        assert_same(&source, &back).await;
    }

    #[tokio::test]
    async fn an_import_that_was_cut_off_is_repeated() {
        let source = source().await;
        let lines = lines(&source).await;
        let target: Arc<dyn Store> = Arc::new(Memory::default());
        let cut = read(&target, &lines[..lines.len() - 2]).await;
        assert!(matches!(cut, Err(ImportError::Misplaced(_))), "{cut:?}");
        assert_eq!(target.summary(&id("b")).await, Ok(None), "its first pages were removed");
        let counts = read(&target, &lines).await.unwrap();
        assert_eq!(counts, ImportCounts { imported: 1, skipped: 2, ..ImportCounts::default() });
        assert_same(&source, &target).await;
    }

    #[tokio::test]
    async fn a_conversation_that_was_deleted_while_it_was_written_is_left_out_and_no_other() {
        let source = source().await;
        let mut lines = lines(&source).await;
        let last = |lines: &[Vec<u8>], part: &str| {
            let has_it = |line: &Vec<u8>| String::from_utf8_lossy(line).contains(part);
            lines.iter().rposition(has_it).unwrap()
        };
        let end = last(&lines, "\"last_seq\":700}");
        lines.remove(end);
        let store_end = String::from_utf8(lines.pop().unwrap()).unwrap();
        // A definition of the next tenant follows, and then its conversation.
        let definition = lines.remove(last(&lines, "\"tenant\":\"calm\""));
        lines.insert(end.min(lines.len()), definition);
        lines.push(store_end.replace('3', "2").into_bytes());
        for is_there in [false, true] {
            let target: Arc<dyn Store> = Arc::new(Memory::default());
            let mut expected = ImportCounts { imported: 2, ..ImportCounts::default() };
            if is_there {
                let held = claim_conversation(&*target, "b").await;
                target.append(&id("b"), &held, commit(1, 1)).await.unwrap();
                (expected.skipped, expected.shorter) = (1, vec![id("b")]);
            } else {
                expected.cut_off = vec![id("b")];
            }
            assert_eq!(read(&target, &lines).await.unwrap(), expected);
            let left = target.summary(&id("b")).await.unwrap();
            assert_eq!(left.map(|it| it.last_seq), is_there.then(|| Seq::new(1)));
            assert_eq!(target.agents(&idle()).await.unwrap().len(), 1);
        }
    }

    #[tokio::test]
    async fn an_import_that_died_leaves_nothing_that_anybody_sees() {
        let lines = lines(&source().await).await;
        let cut: Vec<_> = lines.iter().take(lines.len() / 2).cloned().collect();
        let target: Arc<dyn Store> = Arc::new(Memory::default());
        let mut dying = StoreImport::new(target.clone(), holder("import"), at(0));
        for line in &cut {
            dying.take(line).await.unwrap();
        }
        drop(dying);
        assert_eq!(target.summary(&id("b")).await, Ok(None));
        let counts = read(&target, &lines).await.unwrap();
        assert_eq!(counts, ImportCounts { imported: 1, skipped: 2, ..ImportCounts::default() });
    }

    #[tokio::test]
    async fn what_is_there_with_fewer_events_is_named_and_left() {
        let lines = lines(&source().await).await;
        let target: Arc<dyn Store> = Arc::new(Memory::default());
        let held = claim_conversation(&*target, "b").await;
        target.append(&id("b"), &held, commit(1, 1)).await.unwrap();
        let counts = read(&target, &lines).await.unwrap();
        let shorter = vec![id("b")];
        let expected = ImportCounts { imported: 2, skipped: 1, shorter, ..ImportCounts::default() };
        assert_eq!(counts, expected);
        let left = target.summary(&id("b")).await.unwrap().unwrap();
        assert_eq!(left.last_seq, Seq::new(1));
    }

    /// Where each line ends a conversation, the lines up to there.
    fn cuts(lines: &[Vec<u8>]) -> Vec<&[Vec<u8>]> {
        let is_end = |at: &usize| lines[*at].starts_with(br#"{"abide":"end""#);
        (0..lines.len()).filter(is_end).map(|at| &lines[..=at]).collect()
    }

    #[tokio::test]
    async fn lines_that_were_cut_off_between_conversations_are_imported_and_are_no_whole_store() {
        let lines = lines(&source().await).await;
        let before_all = lines.iter().position(|line| line.starts_with(br#"{"abide":"conv"#));
        for (cut, whole) in [(&lines[..0], 0), (&lines[..before_all.unwrap()], 0)]
            .into_iter()
            .chain(cuts(&lines).into_iter().zip(1..))
        {
            let target: Arc<dyn Store> = Arc::new(Memory::default());
            let mut import = StoreImport::new(target, holder("import"), at(0));
            for line in cut {
                import.take(line).await.unwrap();
            }
            let ended = import.finish().await;
            assert!(matches!(ended, Err(ImportError::StoreEndMissing)), "{whole}: {ended:?}");
            assert_eq!(import.counts().imported, whole);
        }
    }

    #[tokio::test]
    async fn the_lines_of_one_conversation_need_no_end_of_a_store() {
        let source = source().await;
        let (sender, mut receiver) = tokio::sync::mpsc::channel(1_000);
        super::super::export(&*source, &id("b"), false, &sender).await.unwrap();
        drop(sender);
        let mut one = Vec::new();
        while let Some(line) = receiver.recv().await {
            one.push(line);
        }
        let target: Arc<dyn Store> = Arc::new(Memory::default());
        assert_eq!(read(&target, &one).await.unwrap().imported, 1);
        assert_eq!(read(&target, &one).await.unwrap().skipped, 1);
        let two = [one.clone(), one].concat();
        let refused = read(&target, &two).await;
        assert!(matches!(refused, Err(ImportError::StoreEndMissing)), "{refused:?}");
    }

    #[tokio::test]
    async fn a_store_that_lost_a_conversation_or_goes_on_behind_its_end_is_refused() {
        let lines = lines(&source().await).await;
        let heads: Vec<usize> = (0..lines.len())
            .filter(|at| lines[*at].starts_with(br#"{"abide":"conversation""#))
            .collect();
        let without = [&lines[..heads[1]], &lines[heads[2]..]].concat();
        let behind = [lines.clone(), lines[heads[0]..heads[1]].to_vec()].concat();
        for refused in [without, behind] {
            let target: Arc<dyn Store> = Arc::new(Memory::default());
            let refused = read(&target, &refused).await;
            assert!(matches!(refused, Err(ImportError::Misplaced(_))), "{refused:?}");
        }
    }
}
