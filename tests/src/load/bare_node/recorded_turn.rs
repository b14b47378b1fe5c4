//! A turn as a node has journalled and streamed it.

use abide_actors::journal::{ClosedSuspension, Commit, ConversationSummary, ListEntry, Relisting};
use abide_actors::usage_counts::UsageCounts;
use abide_conversation::{Event, State, replay, wanted};
use serde_json::{Value, json};

use super::super::{LoadError, load_error};

/// The journal of a turn under load.
const JOURNAL: &str = include_str!("journal.jsonl");
/// How many of the journal's events each commit has.
const EVENTS_PER_COMMIT: [usize; 5] = [3, 3, 2, 1, 2];
/// The frames that follow each commit. The first one is answered before anybody listens.
pub(super) const FRAMES: [&str; 5] = [
    "",
    include_str!("suspended.frames"),
    include_str!("resolved.frames"),
    include_str!("returned.frames"),
    include_str!("ended.frames"),
];

/// The commits of a turn, with their summaries and open calls.
pub(in super::super) fn commits() -> Result<Vec<Commit>, LoadError> {
    let events = JOURNAL.lines().map(|line| abide_conversation::from_json(line.as_bytes()));
    let events: Result<Vec<Event>, _> = events.collect();
    let events = events.map_err(|error| load_error("the bare journal", error))?;
    let mut remaining = &*events;
    let mut state = State::default();
    let mut commits = Vec::new();
    for count in EVENTS_PER_COMMIT {
        let (current, rest) = remaining.split_at_checked(count).unwrap_or((remaining, &[]));
        let (before, active_at) = (state.pending_calls(), state.active_at);
        state = replay(state, current);
        let after = state.pending_calls();
        let closed =
            before.iter().filter(|open| !after.iter().any(|it| it.call_id == open.call_id));
        let summary = summary(&state)?;
        commits.push(Commit {
            closed: closed
                .map(|open| ClosedSuspension {
                    call_id: open.call_id.clone(),
                    suspension: open.suspension,
                    expires_at: open.expires_at,
                })
                .collect(),
            opened: after.into_iter().filter(|_| before.is_empty()).collect(),
            usage: UsageCounts::of(current),
            relisting: if state.active_at == active_at {
                Relisting::Unchanged
            } else {
                Relisting::Touched
            },
            ..Commit::new(current.into(), summary)
        });
        remaining = rest;
    }
    Ok(commits)
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
        assert!(FRAMES[1..].iter().all(|frames| frames.ends_with("\n\n")));
    }
}
