//! Whole stores, as lines and back.
#![allow(clippy::unwrap_used)]

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
    let mut import = StoreImport::new(store.clone(), holder("import"), || at(1_000));
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
    let mut dying = StoreImport::new(target.clone(), holder("import"), || at(1_000));
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
        let mut import = StoreImport::new(target, holder("import"), || at(1_000));
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
