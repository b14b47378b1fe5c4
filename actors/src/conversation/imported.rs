//! What a commit of events that happened elsewhere writes.

use std::sync::Arc;

use abide_conversation::State;
use abide_conversation::event::Event;

use super::external::queue_entries;
use super::relist::summary;
use crate::journal::{Commit, Relisting};

/// The commit of the last events of an import, after which the state is `next`; the keys of the metadata
/// by which the conversation is found are `indexed`.
///
/// Nothing is counted and no webhook is owed anything: it happened elsewhere.
pub fn imported(next: &Arc<State>, events: Arc<[Event]>, indexed: Arc<[String]>) -> Commit {
    let (summary, relisting) = (summary(next), Relisting::Whole { indexed });
    Commit {
        opened: next.pending_calls(),
        state: (!next.has_unknown_events).then(|| next.clone()),
        queued: Some(queue_entries(next)),
        relisting,
        ..Commit::new(events, summary)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::relist::tests::state_after;
    use super::*;

    #[test]
    fn what_happened_elsewhere_keeps_its_alarm_and_its_open_calls_and_owes_nothing() {
        let waiting = Arc::new(state_after(6));
        let commit = imported(&waiting, Arc::from([]), Arc::from([]));
        assert_eq!(commit.summary.alarm, Some("2026-11-27T00:00:00Z".parse().unwrap()));
        assert_eq!((commit.opened, commit.owed), (waiting.pending_calls(), Vec::new()));
        assert_eq!(waiting.pending_calls().len(), 1);
        assert_eq!((commit.state, commit.usage), (Some(waiting), None));
    }
}
