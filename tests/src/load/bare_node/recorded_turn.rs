//! A turn as a node has journalled and streamed it.

use std::sync::Arc;

use abide_actors::journal::{
    ClosedSuspension, Commit, ConversationSummary, ListEntry, Relisting, event_json,
};
use abide_actors::usage_counts::UsageCounts;
use abide_conversation::{Event, State, evolve, wanted};
use serde_json::{Value, json};

use super::super::{LoadError, load_error};

/// The journal of a turn under load.
const JOURNAL: &str = include_str!("journal.jsonl");
/// How many of the journal's events each commit has.
const EVENTS_PER_COMMIT: [usize; 5] = [3, 3, 2, 1, 2];
/// The frames that follow each commit. The first one is answered before anybody listens.
const FRAMES: [&str; 5] = [
    "",
    include_str!("suspended.frames"),
    include_str!("resolved.frames"),
    include_str!("returned.frames"),
    include_str!("ended.frames"),
];

/// What happens at once: the events of one commit, and the frames that tell of them.
pub(super) struct RecordedCommit {
    pub(super) events: Arc<[Event]>,
    frames: Vec<RecordedFrame>,
}

/// A frame: the lines around its JSON, and its JSON.
struct RecordedFrame {
    before: String,
    data: Value,
    after: String,
}

impl RecordedCommit {
    /// The bytes of the frames, written anew.
    pub(super) fn encode_frames(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for RecordedFrame { before, data, after } in &self.frames {
            bytes.extend_from_slice(before.as_bytes());
            // A value can always be written to memory.
            let _ = serde_json::to_writer(&mut bytes, data);
            bytes.extend_from_slice(after.as_bytes());
        }
        bytes
    }
}

/// The commits of a turn as they were recorded.
pub(super) fn recorded_commits() -> Result<Vec<RecordedCommit>, LoadError> {
    let events = JOURNAL.lines().map(|line| abide_conversation::from_json(line.as_bytes()));
    let events: Result<Vec<Event>, _> = events.collect();
    let events = events.map_err(|error| load_error("the bare journal", error))?;
    let mut remaining = &*events;
    let commits = EVENTS_PER_COMMIT.into_iter().zip(FRAMES).map(|(count, frames)| {
        let (current, rest) = remaining.split_at_checked(count).unwrap_or((remaining, &[]));
        remaining = rest;
        let frames = frames.split_inclusive("\n\n").map(parse_frame).collect::<Result<_, _>>()?;
        Ok(RecordedCommit { events: current.into(), frames })
    });
    commits.collect()
}

fn parse_frame(frame: &str) -> Result<RecordedFrame, LoadError> {
    let parts = frame.split_once("data: ").and_then(|(name, rest)| {
        let (data, after) = rest.split_once('\n')?;
        Some((name, data, after))
    });
    let (name, data, after) =
        parts.ok_or_else(|| LoadError("a bare frame has no data".to_owned()))?;
    let data = serde_json::from_str(data).map_err(|error| load_error("a bare frame", error))?;
    Ok(RecordedFrame { before: format!("{name}data: "), data, after: format!("\n{after}") })
}

/// The commits of a turn, with their summaries and open calls.
pub(in super::super) fn commits() -> Result<Vec<Commit>, LoadError> {
    let mut state = State::default();
    let recorded = recorded_commits()?;
    recorded.into_iter().map(|recorded| commit(&mut state, recorded.events)).collect()
}

/// The commit of events that are folded into the state.
pub(super) fn commit(state: &mut State, events: Arc<[Event]>) -> Result<Commit, LoadError> {
    let (was_open, was_active_at) = (state.pending_calls(), state.active_at);
    events.iter().for_each(|event| evolve(state, event));
    let is_open = state.pending_calls();
    let closed =
        was_open.iter().filter(|open| !is_open.iter().any(|it| it.call_id == open.call_id));
    let closed = closed.map(|open| ClosedSuspension {
        call_id: open.call_id.clone(),
        suspension: open.suspension,
        expires_at: open.expires_at,
    });
    Ok(Commit {
        closed: closed.collect(),
        opened: is_open.into_iter().filter(|_| was_open.is_empty()).collect(),
        usage: UsageCounts::of(&events),
        json: Some(event_json(&events).map_err(|error| load_error("an event", error))?),
        relisting: if state.active_at == was_active_at {
            Relisting::Unchanged
        } else {
            Relisting::Touched
        },
        ..Commit::new(events, summary(state)?)
    })
}

/// What the store knows of a conversation in this state.
pub(in super::super) fn summary(state: &State) -> Result<ConversationSummary, LoadError> {
    Ok(ConversationSummary {
        agent: state.agent.clone().ok_or_else(|| LoadError("no agent".to_owned()))?,
        status: state.status(),
        last_seq: state.seq,
        created_at: state.created_at.unwrap_or_default(),
        metadata: state.metadata.clone(),
        participants: Default::default(),
        alarm: state.alarm(),
        active: !wanted(state).is_empty(),
        listing: ListEntry::of(state),
    })
}

/// The whole journal, as a node answers it.
pub(super) fn journal() -> Value {
    let events = JOURNAL.lines().map(|line| serde_json::from_str(line).unwrap_or_default());
    json!({"events": events.collect::<Vec<Value>>()})
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_commits_are_a_whole_turn_whose_call_is_opened_and_closed() {
        let commits = commits().unwrap();
        let events: usize = commits.iter().map(|commit| commit.events.len()).sum();
        assert_eq!((events, JOURNAL.lines().count()), (11, 11));
        let count = |of: fn(&Commit) -> usize| commits.iter().map(of).collect::<Vec<_>>();
        assert_eq!(count(|commit| commit.opened.len()), [0, 1, 0, 0, 0]);
        assert_eq!(count(|commit| commit.closed.len()), [0, 0, 1, 0, 0]);
        assert_eq!(count(|commit| commit.summary.active.into()), [1, 0, 1, 1, 0]);
        for (recorded, frames) in recorded_commits().unwrap().iter().zip(FRAMES) {
            assert_eq!(String::from_utf8(recorded.encode_frames()).unwrap(), frames);
        }
    }
}
