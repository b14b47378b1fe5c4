//! A whole store is written as lines, also where something of it cannot be read.

use std::sync::Arc;

use abide_actors::identity::{Incarnation, NodeName};
use abide_actors::journal::Holder;
use abide_conversation::{Scoped, Seq, Timestamp};
use abide_registry::store::Store;
use abide_registry::store::memory::Memory;
use abide_registry::transfer::{Exported, ImportError, StoreImport, export_store};

use crate::flaky_store::FlakyStore;
use crate::test_node::TestNode;

const AGENT: &str = "{name: a, model: {provider: scripted, script: [{text: hello}]}}";

/// What an export of the store returns, and its lines.
async fn exported(store: Arc<FlakyStore>) -> (Exported, Vec<Vec<u8>>) {
    let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
    let written = tokio::spawn(async move { export_store(&*store, &sender).await });
    let mut lines = Vec::new();
    while let Some(line) = receiver.recv().await {
        lines.push(line);
    }
    (written.await.unwrap().unwrap(), lines)
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_left_out_of_an_export_which_says_so() {
    let store = Arc::new(FlakyStore::default());
    let node = TestNode::with_store(store.clone(), AGENT).await;
    for id in ["a", "b", "c"] {
        node.send(id, "go").await.unwrap();
        node.turn_end(id, 1).await;
    }
    // The first event of it can be read: a part of the conversation is written.
    *store.damaged_event.lock().unwrap() = Some((Scoped::parse("b").unwrap(), Seq::new(2)));
    let (told, lines) = exported(store.clone()).await;
    let expected = Exported { conversations: 2, missing: 1, missing_ids: vec!["b".to_owned()] };
    assert_eq!(told, expected);

    let target: Arc<dyn Store> = Arc::new(Memory::default());
    let me = Holder { node: NodeName::new("import"), incarnation: Incarnation::new("1") };
    let mut import = StoreImport::new(target.clone(), me, || Timestamp::MAX);
    let (last, others) = lines.split_last().unwrap();
    for line in others {
        import.take(line).await.unwrap();
    }
    let ended = import.take(last).await;
    let Err(ImportError::Missing { count: 1, ids }) = ended else { panic!("{ended:?}") };
    assert_eq!((ids.as_str(), import.counts().imported), ("b", 2));
    for (id, is_there) in [("a", true), ("b", false), ("c", true)] {
        let events = target.events(&Scoped::parse(id).unwrap(), Seq::ZERO, 9).await.unwrap();
        assert_eq!(!events.is_empty(), is_there, "{id}");
    }

    *store.damaged_event.lock().unwrap() = None;
    let (told, lines) = exported(store).await;
    assert_eq!(told, Exported { conversations: 3, ..Exported::default() });
    let last = String::from_utf8(lines.last().unwrap().clone()).unwrap();
    assert_eq!(last.trim(), r#"{"abide":"store_end","conversations":3}"#);
}
