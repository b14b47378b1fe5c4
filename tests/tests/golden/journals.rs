//! Stored journals: each event parses, serialises as it was stored, and folds to the same state.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use abide_conversation::event::EventData;
use abide_conversation::{Event, State, checked_fold, evolve, from_json, replay};
use abide_registry::store::STATE_FORMAT;
use serde_json::Value;

use crate::lines::{includes, lines, path};
use crate::schema_coverage::Schemas;

const JOURNALS: &str = "journals.jsonl";
/// Parts of the schemas that no program writes, because they are defaults, or spelled in another way.
const NEVER_WRITTEN_PARTS: [&str; 4] =
    ["Shape: choice 0", "Shape#0: \"agent\"", "Subject.roles: absent", "OnInterrupt: \"ask\""];

/// Events, by journal and `seq`, that were written by hand to cover every field, at places where no
/// conversation can have them. Journals that are appended later need no such exception.
const HAND_WRITTEN: [(usize, u64); 17] = [
    (0, 15),
    (0, 16),
    (0, 17),
    (0, 19),
    (1, 30),
    (1, 31),
    (1, 32),
    (1, 34),
    (2, 20),
    (2, 41),
    (2, 43),
    (2, 44),
    (2, 45),
    (2, 48),
    (3, 8),
    (4, 8),
    (5, 8),
];

/// The journals: each event as it was stored, and as it parses.
pub(crate) fn journals() -> Vec<Vec<(Value, Event)>> {
    let read = |stored: Value| {
        let event = from_json(stored.to_string().as_bytes());
        let event = event.unwrap_or_else(|error| panic!("{error}: {stored}"));
        (stored, event)
    };
    let journal = |line: &String| serde_json::from_str::<Vec<Value>>(line).unwrap();
    lines(JOURNALS).iter().map(|line| journal(line).into_iter().map(read).collect()).collect()
}

#[test]
fn every_event_that_was_ever_stored_is_written_again_as_it_was() {
    for (stored, event) in journals().into_iter().flatten() {
        assert!(
            !matches!(event.data, EventData::Unknown(_)),
            "an event type that is no longer known: {stored}"
        );
        let written = serde_json::to_value(&event).unwrap();
        assert!(includes(&written, &stored), "stored {stored}\nwritten {written}");
        let again: Event = from_json(written.to_string().as_bytes()).unwrap();
        assert_eq!(again, event, "{stored}");
    }
}

#[test]
fn only_hand_written_events_are_impossible() {
    let mut impossible = Vec::new();
    for (index, journal) in journals().into_iter().enumerate() {
        let mut state = State::default();
        for (_, event) in journal {
            if checked_fold(state.clone(), &event).is_err() {
                impossible.push((index, event.seq.get()));
            }
            evolve(&mut state, &event);
        }
    }
    assert_eq!(impossible, HAND_WRITTEN);
}

/// Compares with the schemas of the API, which another test compares with the code: a new type,
/// field or constant has no line yet.
#[test]
fn every_kind_of_event_and_every_field_of_it_is_among_them() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../nodes/openapi.json");
    let api: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    let schemas = Schemas(api["components"]["schemas"].as_object().unwrap());
    let mut covered = BTreeSet::new();
    for (stored, _) in journals().into_iter().flatten() {
        schemas.cover("JournalEvent", &stored, &mut covered);
    }
    let parts = schemas.parts("JournalEvent");
    // Whether an event has a turn depends on its type.
    let is_required = |part: &&String| {
        !part.contains("Event.turn_id") && !NEVER_WRITTEN_PARTS.contains(&part.as_str())
    };
    let missing: Vec<_> = parts.difference(&covered).filter(is_required).collect();
    assert!(parts.len() > 300, "{}", parts.len());
    assert!(missing.is_empty(), "{JOURNALS} has no event with {missing:#?}");
}

/// The states belong to one format of the cached state: a node of another build must not read a
/// cache that it would misread.
#[test]
fn every_journal_folds_to_the_state_that_its_format_has() {
    let name = format!("states/{STATE_FORMAT}.jsonl");
    let states: Vec<String> = journals().into_iter().map(fold).collect();
    let known = if path(&name).exists() { lines(&name) } else { Vec::new() };
    let differing = (0..states.len()).filter(|index| known.get(*index) != states.get(*index));
    if let Some(index) = differing.into_iter().next() {
        let now = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("states.jsonl");
        fs::write(&now, states.join("\n") + "\n").unwrap();
        let known = known.get(index).map_or("nothing", String::as_str);
        panic!(
            "journal {index} folds to {}\nand not to {known}\nWhere the fold or the shape of the \
             state has changed, raise STATE_FORMAT, and make {} the file {name}. Where journals \
             were appended, append their states.",
            states[index],
            now.display(),
        );
    }
}

fn fold(journal: Vec<(Value, Event)>) -> String {
    let events = journal.iter().map(|(_, event)| event);
    let state = replay(State::default(), events);
    let written = serde_json::to_string(&state).unwrap();
    assert_eq!(from_json::<State>(written.as_bytes()).unwrap(), state, "it reads back as it was");
    written
}
