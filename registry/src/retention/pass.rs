//! How far the sweeps by a rule have come.

use std::time::Duration;

use abide_conversation::{ConversationId, Scoped, Timestamp};
use jiff::SignedDuration;
use tokio::time::Instant;

/// How often all conversations are looked at that were active long ago and are still there. What
/// waited then and is idle now was active since, with few exceptions, such as an alarm that was
/// withdrawn.
const WHOLE_INTERVAL: Duration = Duration::from_secs(3_600);
/// How many conversations whose deletion failed are tried once more.
const MAX_RETRIES: usize = 1_000;

/// The two passes of a rule, and what they could not delete.
///
/// What is newly due is found by a pass over what has become due since the last sweep, which costs the
/// same however many older conversations wait for something. Another one goes through all of them.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) recent: Pass,
    pub(super) whole: Pass,
    whole_due: Instant,
    retries: Vec<Scoped<ConversationId>>,
}

/// A pass over the conversations in the order of their activity.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Pass {
    /// What was active before then was looked at by an earlier pass.
    seen_until: Option<Timestamp>,
    /// The pass that is under way.
    under_way: Option<UnderWay>,
}

/// A pass that goes on behind its cursor, which belongs to its bounds.
#[derive(Clone, Debug, PartialEq)]
struct UnderWay {
    last: Timestamp,
    cursor: String,
}

/// What a step of a pass reads: what was active after one moment and before another, from a cursor on.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    pub(super) after: Option<Timestamp>,
    pub(super) last: Timestamp,
    pub(super) cursor: Option<String>,
}

impl Progress {
    /// The first sweep by a rule: what is due by `last` is looked at by the pass over all.
    pub(super) fn new(last: Timestamp, now: Instant) -> Self {
        let recent = Pass { seen_until: Some(last), under_way: None };
        Self { recent, whole: Pass::default(), whole_due: now, retries: Vec::new() }
    }

    /// Whether the pass over all goes on, or has to begin.
    pub(super) fn is_whole_due(&self, now: Instant) -> bool {
        self.whole.is_under_way() || self.whole_due <= now
    }

    /// Ends the pass over all.
    pub(super) fn end_whole(&mut self, now: Instant) {
        self.whole = Pass::default();
        self.whole_due = now + WHOLE_INTERVAL;
    }

    /// Notes that a conversation could not be deleted.
    pub(super) fn retry(&mut self, id: Scoped<ConversationId>) {
        if self.retries.len() < MAX_RETRIES {
            self.retries.push(id);
        }
    }

    /// What the sweeps before could not delete. It is tried once more, and then by the next pass over
    /// all.
    pub(super) fn take_retries(&mut self) -> Vec<Scoped<ConversationId>> {
        std::mem::take(&mut self.retries)
    }
}

impl Pass {
    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// The next step, if what was active until `last` is due now.
    pub(super) fn step(&self, last: Timestamp) -> Step {
        let millisecond = SignedDuration::from_millis(1);
        let after = self.seen_until.and_then(|seen| seen.checked_sub(millisecond).ok());
        match &self.under_way {
            Some(UnderWay { last, cursor }) => {
                Step { after, last: *last, cursor: Some(cursor.clone()) }
            }
            None => Step { after, last, cursor: None },
        }
    }

    /// Notes that a step was done and that the list goes on behind a cursor, or not.
    pub(super) fn advance(&mut self, done: &Step, cursor: Option<String>) {
        self.under_way = cursor.map(|cursor| UnderWay { last: done.last, cursor });
        if self.under_way.is_none() {
            self.seen_until = Some(done.last);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn a_pass_that_is_not_at_its_end_goes_on_with_the_bounds_of_its_cursor() {
        let mut pass = Pass::default();
        let first = pass.step(at(10));
        assert_eq!(first, Step { after: None, last: at(10), cursor: None });
        // The pages may be empty.
        pass.advance(&first, Some("c".to_owned()));
        let next = pass.step(at(30));
        assert_eq!(next, Step { after: None, last: at(10), cursor: Some("c".to_owned()) });
        pass.advance(&next, None);
        assert!(!pass.is_under_way());
    }

    #[test]
    fn what_was_looked_at_is_not_looked_at_by_the_next_pass() {
        let mut pass = Pass::default();
        pass.advance(&pass.step(at(10)), None);
        let next = pass.step(at(30));
        // A millisecond is looked at twice: the bounds of a list are not in it.
        let millisecond = SignedDuration::from_millis(1);
        assert_eq!(next.after, at(10).checked_sub(millisecond).ok());
        assert_eq!((next.last, next.cursor), (at(30), None));
    }

    #[tokio::test(start_paused = true)]
    async fn all_are_looked_at_at_first_and_again_after_an_hour() {
        let mut progress = Progress::new(at(10), Instant::now());
        assert!(progress.is_whole_due(Instant::now()));
        progress.end_whole(Instant::now());
        assert!(!progress.is_whole_due(Instant::now()));
        tokio::time::advance(WHOLE_INTERVAL).await;
        assert!(progress.is_whole_due(Instant::now()));
        assert_eq!(progress.whole.step(at(20)).after, None);
    }

    #[test]
    fn what_could_not_be_deleted_is_tried_once_more() {
        let id = || Scoped::parse("c").unwrap();
        let mut progress = Progress::new(at(10), Instant::now());
        progress.retry(id());
        assert_eq!(progress.take_retries(), [id()]);
        assert_eq!(progress.take_retries(), []);
        (0..MAX_RETRIES + 1).for_each(|_| progress.retry(id()));
        assert_eq!(progress.take_retries().len(), MAX_RETRIES);
    }
}
