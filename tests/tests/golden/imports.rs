//! Stored journals as lines of an export: each that can have happened is imported as it is.

use std::sync::Arc;

use abide_actors::identity::{Incarnation, NodeName};
use abide_actors::journal::{Holder, Journal as _};
use abide_conversation::event::EventData;
use abide_conversation::{ConversationId, Event, Scoped, Seq, State, Tenant, Timestamp, replay};
use abide_registry::store::memory::Memory;
use abide_registry::transfer::{ImportCounts, StoreImport};
use serde_json::{Value, json};

use crate::journals::journals;

/// Journals that were written by hand, with events that no conversation can have, and the reason
/// why the import refuses each.
const IMPOSSIBLE: [(usize, &str); 9] = [
    (0, "cannot have happened"),
    (1, "cannot have happened"),
    (2, "call DENIED has no tool_call event"),
    (3, "cannot have happened"),
    (4, "cannot have happened"),
    (5, "cannot have happened"),
    (6, "still being copied"),
    (8, "call n has no tool_call event"),
    (10, "call n has no tool_call event"),
];

/// The lines of an export of the journal.
fn export(id: &str, journal: &[(Value, Event)]) -> Vec<String> {
    let Some(EventData::Created(created)) = journal.first().map(|(_, event)| &event.data) else {
        panic!("a journal begins with its creation");
    };
    let agent = &created.agent;
    let last_seq = journal.len();
    let state = replay(State::default(), journal.iter().map(|(_, event)| event));
    let turn = state.turn.iter().map(|turn| &turn.revision);
    let used = turn.chain(state.dispatches.values().map(|run| &run.revision));
    let definition = |revision| {
        json!({"abide": "definition", "agent": agent, "revision": revision,
            "definition": {"name": agent}})
    };
    let head = json!({"abide": "conversation", "format": 1, "id": id, "agent": agent,
        "last_seq": last_seq});
    let lines = [head].into_iter().chain(used.map(definition));
    let lines = lines.chain(journal.iter().map(|(stored, _)| stored.clone()));
    let end = json!({"abide": "end", "last_seq": last_seq});
    lines.chain([end]).map(|line| line.to_string()).collect()
}

async fn import(store: &Arc<Memory>, lines: &[String]) -> Result<ImportCounts, String> {
    let me = Holder { node: NodeName::new("import"), incarnation: Incarnation::new("import-1") };
    let mut import = StoreImport::new(store.clone(), me, || Timestamp::MAX);
    for line in lines {
        import.take(line.as_bytes()).await.map_err(|error| error.to_string())?;
    }
    import.finish().await.map_err(|error| error.to_string())?;
    Ok(import.counts().clone())
}

#[tokio::test]
async fn every_journal_that_can_have_happened_is_imported_as_it_was_stored() {
    let mut refused = Vec::new();
    for (index, journal) in journals().into_iter().enumerate() {
        let store = Arc::new(Memory::default());
        let id = format!("golden-{index}");
        if let Err(error) = import(&store, &export(&id, &journal)).await {
            let named = IMPOSSIBLE.iter().find(|(impossible, _)| *impossible == index);
            let (_, named) = named.unwrap_or_else(|| panic!("journal {index}: {error}"));
            assert!(error.contains(named), "journal {index}: {error}");
            refused.push(index);
            continue;
        }
        let id = Scoped::new(&Tenant::default(), &ConversationId::new(id));
        let events = store.events(&id, Seq::ZERO, journal.len()).await.unwrap();
        let expected: Vec<Event> = journal.into_iter().map(|(_, event)| event).collect();
        assert_eq!(events, expected, "journal {index}");
    }
    let impossible: Vec<usize> = IMPOSSIBLE.iter().map(|(index, _)| *index).collect();
    assert_eq!(refused, impossible);
}
