//! The last events of a live conversation, so that a model step need not read them again.

use std::collections::VecDeque;
use std::sync::Arc;

use abide_conversation::event::Event;

use crate::tools::limits::encoded_len;

/// More JSON than this is not kept: an actor stays small, and a store is fast.
const MOST_BYTES: usize = 64 << 10;

/// Consecutive events up to the journal's last: a copy of the truth, which may be dropped at any time.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecentEvents {
    /// Each with its size.
    commits: VecDeque<(Arc<[Event]>, usize)>,
    bytes: usize,
}

impl RecentEvents {
    /// Adds what the journal has after what is kept, and drops the oldest of what is too much.
    pub(crate) fn push(&mut self, events: Arc<[Event]>) {
        let bytes = events.iter().map(encoded_len).fold(0, usize::saturating_add);
        self.bytes = self.bytes.saturating_add(bytes);
        self.commits.push_back((events, bytes));
        while self.bytes > MOST_BYTES
            && let Some((_, bytes)) = self.commits.pop_front()
        {
            self.bytes -= bytes;
        }
    }

    /// All events after a seq; `None` if some of them are not kept.
    pub(crate) fn after(&self, seq: u64) -> Option<Vec<Event>> {
        let first = self.commits.iter().find_map(|(events, _)| events.first())?;
        let is_whole = first.seq <= seq.saturating_add(1);
        let events = self.commits.iter().flat_map(|(events, _)| events.iter());
        is_whole.then(|| events.filter(|event| event.seq > seq).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use abide_conversation::Timestamp;
    use abide_conversation::event::{EventData, SummaryFailed};

    use super::*;

    fn events(from: u64, to: u64, bytes: usize) -> Arc<[Event]> {
        let data = || EventData::SummaryFailed(SummaryFailed { reason: "x".repeat(bytes) });
        let event = |seq| Event { seq, at: Timestamp::UNIX_EPOCH, turn_id: None, data: data() };
        (from..=to).map(event).collect()
    }

    fn seqs(tail: &RecentEvents, after: u64) -> Option<Vec<u64>> {
        Some(tail.after(after)?.iter().map(|event| event.seq).collect())
    }

    #[test]
    fn it_has_what_is_after_a_seq_or_says_that_it_has_not() {
        let mut tail = RecentEvents::default();
        assert_eq!(seqs(&tail, 0), None);
        tail.push(events(3, 4, 1));
        tail.push(events(5, 7, 1));
        assert_eq!(seqs(&tail, 1), None);
        assert_eq!(seqs(&tail, 2), Some(vec![3, 4, 5, 6, 7]));
        assert_eq!(seqs(&tail, 5), Some(vec![6, 7]));
        assert_eq!(seqs(&tail, 7), Some(Vec::new()));
    }

    #[test]
    fn the_oldest_go_when_it_is_too_much_and_one_that_is_too_much_takes_all_with_it() {
        let mut tail = RecentEvents::default();
        for seq in 1..=100 {
            tail.push(events(seq, seq, MOST_BYTES / 10));
        }
        assert!(tail.bytes <= MOST_BYTES && tail.bytes > MOST_BYTES / 2);
        assert_eq!(seqs(&tail, 98), Some(vec![99, 100]));
        assert_eq!(seqs(&tail, 80), None);
        tail.push(events(101, 101, MOST_BYTES));
        assert_eq!((tail.bytes, seqs(&tail, 100)), (0, None));
        tail.push(events(102, 102, 1));
        assert_eq!((seqs(&tail, 101), seqs(&tail, 100)), (Some(vec![102]), None));
    }
}
