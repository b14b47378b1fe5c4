//! Rules and names that all stores share.

use abide_actors::journal::Commit;
use abide_conversation::Seq;

/// The format of cached states. Raise it whenever their fields or their meaning change: nodes of
/// two builds read each other's caches, and one that does not know a field would drop it.
pub const STATE_FORMAT: u32 = 6;

/// Whether a commit continues a journal whose last `seq` is `last`; `None` if there is no journal.
pub(super) fn follows(commit: &Commit, last: Option<Seq>) -> bool {
    let last = last.unwrap_or_default();
    let is_consecutive =
        (1..).zip(commit.events.iter()).all(|(n, event)| event.seq == last.saturating_add(n));
    let is_counted = commit.summary.last_seq == last.saturating_add(commit.events.len() as u64);
    is_consecutive && is_counted && commit.summary.last_seq > Seq::ZERO
}

#[cfg(test)]
mod tests {
    use abide_actors::journal::ConversationSummary;
    use abide_conversation::event::EventData;
    use abide_conversation::state::ConversationStatus;
    use abide_conversation::{AgentName, Event, Timestamp};

    use super::*;

    fn commit(seqs: &[u64], last_seq: u64) -> Commit {
        let at = Timestamp::UNIX_EPOCH;
        let data = EventData::Abandoned {};
        let event =
            |seq: &u64| Event { seq: Seq::new(*seq), at, turn_id: None, data: data.clone() };
        let summary = ConversationSummary {
            agent: AgentName::new("demo"),
            status: ConversationStatus::Idle,
            last_seq: Seq::new(last_seq),
            created_at: at,
            metadata: Default::default(),
            participants: Default::default(),
            alarm: None,
            active: false,
            listing: Default::default(),
        };
        Commit::new(seqs.iter().map(event).collect(), summary)
    }

    #[test]
    fn a_commit_follows_the_journal_without_a_gap_and_counts_its_events() {
        for (last, seqs, last_seq, expected) in [
            (None, [1, 2].as_slice(), 2, true),
            (Some(2), &[3], 3, true),
            (Some(2), &[], 2, true),
            (None, &[], 0, false),
            (None, &[2], 1, false),
            (Some(1), &[1], 1, false),
            (Some(2), &[4], 3, false),
            (Some(2), &[3, 5], 4, false),
            (Some(2), &[3], 4, false),
        ] {
            let follows = follows(&commit(seqs, last_seq), last.map(Seq::new));
            assert_eq!(follows, expected, "{last:?}, {seqs:?}, {last_seq}");
        }
    }
}
