//! The last events of a live conversation, so that a model step need not read them again.

use std::collections::VecDeque;
use std::sync::Arc;

use abide_conversation::Seq;
use abide_conversation::event::Event;

/// The JSON of the events that an actor holds. Actors must stay small, and a store is fast.
const MAX_BYTES: usize = 64 << 10;

/// Consecutive events up to the journal's last; a cache that may be dropped at any time.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecentEvents {
    /// The events of each commit, with their bytes.
    commits: VecDeque<(Arc<[Event]>, usize)>,
    bytes: usize,
}

impl RecentEvents {
    /// Adds the events of the next commit, and drops the oldest commits that exceed the limit.
    /// `bytes` is the length of the events' JSON.
    pub(crate) fn push(&mut self, events: Arc<[Event]>, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.commits.push_back((events, bytes));
        while self.bytes > MAX_BYTES
            && let Some((_, bytes)) = self.commits.pop_front()
        {
            self.bytes -= bytes;
        }
    }

    /// All events after a `seq`; `None` if some of them were dropped.
    pub(crate) fn after(&self, seq: Seq) -> Option<impl Iterator<Item = &Event>> {
        let first = self.commits.iter().find_map(|(events, _)| events.first())?;
        let is_whole = first.seq <= seq.next();
        let events = self.commits.iter().flat_map(|(events, _)| events.iter());
        is_whole.then(|| events.filter(move |event| event.seq > seq))
    }
}

#[cfg(test)]
mod tests {
    use abide_conversation::Timestamp;
    use abide_conversation::event::{EventData, SummaryFailed};

    use super::*;

    fn push(recent: &mut RecentEvents, from: u64, to: u64, bytes: usize) {
        let events = events(from, to, bytes);
        let bytes = events.iter().map(crate::limits::encoded_len).sum();
        recent.push(events, bytes);
    }

    fn events(from: u64, to: u64, bytes: usize) -> Arc<[Event]> {
        let data = || EventData::SummaryFailed(SummaryFailed { reason: "x".repeat(bytes) });
        let event = |seq| Event {
            seq: Seq::new(seq),
            at: Timestamp::UNIX_EPOCH,
            turn_id: None,
            data: data(),
        };
        (from..=to).map(event).collect()
    }

    fn seqs(recent: &RecentEvents, after: u64) -> Option<Vec<u64>> {
        Some(recent.after(Seq::new(after))?.map(|event| event.seq.get()).collect())
    }

    #[test]
    fn it_has_all_events_after_a_seq_or_none() {
        let mut recent = RecentEvents::default();
        assert_eq!(seqs(&recent, 0), None);
        push(&mut recent, 3, 4, 1);
        push(&mut recent, 5, 7, 1);
        assert_eq!(seqs(&recent, 1), None);
        assert_eq!(seqs(&recent, 2), Some(vec![3, 4, 5, 6, 7]));
        assert_eq!(seqs(&recent, 5), Some(vec![6, 7]));
        assert_eq!(seqs(&recent, 7), Some(Vec::new()));
    }

    #[test]
    fn the_oldest_commits_are_dropped_and_a_commit_over_the_limit_drops_all() {
        let mut recent = RecentEvents::default();
        for seq in 1..=100 {
            push(&mut recent, seq, seq, MAX_BYTES / 10);
        }
        assert!(recent.bytes <= MAX_BYTES && recent.bytes > MAX_BYTES / 2);
        assert_eq!(seqs(&recent, 98), Some(vec![99, 100]));
        assert_eq!(seqs(&recent, 80), None);
        push(&mut recent, 101, 101, MAX_BYTES);
        assert_eq!((recent.bytes, seqs(&recent, 100)), (0, None));
        push(&mut recent, 102, 102, 1);
        assert_eq!((seqs(&recent, 101), seqs(&recent, 100)), (Some(vec![102]), None));
    }
}
