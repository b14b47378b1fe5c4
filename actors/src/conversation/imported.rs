//! What a commit of events that happened elsewhere writes.

use std::sync::Arc;

use abide_conversation::State;
use abide_conversation::event::Event;

use super::external::queue_entries;
use super::relist::summary;
use crate::journal::{Commit, ConversationSummary, Relisting};

/// A commit of imported events, after which the state is `next`; the keys of the metadata by which the
/// conversation is found are `indexed`.
///
/// Only the last one lists what the conversation waits for and works on. Until then nobody takes it
/// up, whatever becomes of the import. Nothing is counted and no webhook is owed anything: it
/// happened elsewhere.
pub fn imported(
    next: &Arc<State>,
    events: Arc<[Event]>,
    is_last: bool,
    indexed: Arc<[String]>,
) -> Commit {
    let (summary, relisting) = (summary(next), Relisting::Whole { indexed });
    if !is_last {
        let summary = ConversationSummary { alarm: None, active: false, ..summary };
        return Commit { relisting, ..Commit::new(events, summary) };
    }
    Commit {
        opened: next.pending_calls(),
        state: (!next.has_unknown_events).then(|| next.clone()),
        queued: Some(queue_entries(next)),
        relisting,
        ..Commit::new(events, summary)
    }
}
