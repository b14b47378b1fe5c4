//! Checks reads during the run: a journal only grows, and no read is older than what was known.

use std::collections::BTreeMap;

use jiff::Timestamp;
use reqwest::Method;

use super::Evidence;
use crate::history::JournalRead;

/// What a journal is known to have reached by a time.
type Reached = (Timestamp, u64, String);

/// The events that a read returned are those that every other read returned at their places; and a
/// read, through whichever node, has all that an earlier answer acknowledged or an earlier read
/// returned. Only what was read before any deletion counts.
pub fn check(evidence: &Evidence) -> Vec<String> {
    let mut by_conversation: BTreeMap<&str, Vec<&JournalRead>> = BTreeMap::new();
    for read in &evidence.reads {
        if deleted_at(evidence, &read.conversation).is_none_or(|at| read.ended_at < at) {
            by_conversation.entry(&read.conversation).or_default().push(read);
        }
    }
    let violations = by_conversation.into_iter().flat_map(|(id, reads)| {
        let changed = changed_prefixes(&reads);
        let old = old_reads(&reads, reached(evidence, id, &reads));
        changed.into_iter().chain(old).map(move |why| format!("reads of {id}: {why}"))
    });
    violations.collect()
}

/// When the first deletion was sent.
fn deleted_at(evidence: &Evidence, id: &str) -> Option<Timestamp> {
    let deletions = evidence.about(id).filter(|exchange| exchange.method == Method::DELETE);
    deletions.map(|exchange| exchange.sent_at).min()
}

/// Reads that contradict the longest one.
fn changed_prefixes(reads: &[&JournalRead]) -> Vec<String> {
    let whole = reads.iter().filter_map(|read| read.events.as_ref());
    let Some(longest) = whole.max_by_key(|events| events.len()) else { return Vec::new() };
    let differ = |read: &&&JournalRead| {
        let events = read.events.iter().flatten();
        events.zip(longest).position(|(one, other)| one != other).map(|index| index + 1)
    };
    let changed = reads.iter().filter_map(|read| Some((read, differ(&read)?)));
    changed
        .map(|(read, seq)| {
            format!("seq {seq} is another event in the read of {} from {}", read.sent_at, read.node)
        })
        .collect()
}

/// How far the journal was known to be, by acknowledgements and by complete reads, in the order of
/// time.
fn reached(evidence: &Evidence, id: &str, reads: &[&JournalRead]) -> Vec<Reached> {
    let acknowledged = evidence.about(id).filter_map(|exchange| {
        let is_write = ["messages", "resolution"].contains(&exchange.verb());
        let seq = exchange.acknowledged().filter(|_| is_write)?["seq"].as_u64()?;
        Some((exchange.ended_at, seq, format!("{} {}", exchange.method, exchange.path)))
    });
    let read = reads.iter().map(|read| (read.ended_at, read.last_seq, format!("a {read}")));
    let mut all: Vec<Reached> = acknowledged.chain(read).collect();
    all.sort();
    // From here on each entry is the furthest one up to its time.
    for index in 1..all.len() {
        if all[index - 1].1 > all[index].1 {
            (all[index].1, all[index].2) = (all[index - 1].1, all[index - 1].2.clone());
        }
    }
    all
}

fn old_reads(reads: &[&JournalRead], reached: Vec<Reached>) -> Vec<String> {
    let old = reads.iter().filter_map(|read| {
        let earlier = reached.partition_point(|(at, ..)| *at < read.sent_at);
        let (_, seq, by) = reached.get(earlier.checked_sub(1)?)?;
        (read.last_seq < *seq).then(|| format!("{read} is older than seq {seq}, known by {by}"))
    });
    old.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::fixtures::{evidence, expect, second};

    /// A read of `c` that took the second `at`; the fixture's requests are all acknowledged in second
    /// 1, the last of them with seq 14.
    fn read(at: i64, events: &[u64]) -> JournalRead {
        JournalRead {
            conversation: "c".to_owned(),
            node: "node-1".to_owned(),
            sent_at: second(at),
            ended_at: second(at + 1),
            last_seq: events.len() as u64,
            events: Some(events.to_vec()),
        }
    }

    fn events(count: u64) -> Vec<u64> {
        (0..count).collect()
    }

    #[test]
    fn a_journal_that_only_grows_keeps_the_promise() {
        let mut evidence = evidence();
        evidence.reads = vec![read(0, &events(2)), read(2, &events(14)), read(4, &events(16))];
        assert_eq!(check(&evidence), [""; 0]);
    }

    #[test]
    fn another_event_at_an_earlier_place_is_seen() {
        let mut evidence = evidence();
        let mut changed = events(15);
        changed[3] = 99;
        evidence.reads = vec![read(2, &changed), read(2, &events(16))];
        expect(check, &evidence, "seq 4 is another event");
    }

    #[test]
    fn a_read_that_lacks_what_was_acknowledged_before_it_is_seen() {
        let mut evidence = evidence();
        evidence.reads = vec![read(2, &events(13))];
        expect(check, &evidence, "older than seq 14, known by POST");
        evidence.reads[0].sent_at = second(1);
        assert_eq!(check(&evidence), [""; 0], "the read had begun before the acknowledgement");
    }

    #[test]
    fn a_read_that_lacks_what_an_earlier_one_returned_is_seen() {
        let mut evidence = evidence();
        evidence.reads = vec![read(2, &events(16)), read(4, &events(15))];
        expect(check, &evidence, "older than seq 16, known by a read");
        evidence.reads[1].events = None;
        expect(check, &evidence, "older than seq 16, known by a read");
    }

    #[test]
    fn what_is_read_after_a_deletion_is_no_part_of_the_journal() {
        let mut evidence = evidence();
        evidence.reads = vec![read(2, &events(13)), read(4, &[7])];
        let mut deletion = evidence.exchanges[0].clone();
        (deletion.method, deletion.path) = (Method::DELETE, "/v1/conversations/c".to_owned());
        (deletion.sent_at, deletion.ended_at) = (second(2), second(2));
        evidence.exchanges.push(deletion);
        assert_eq!(check(&evidence), [""; 0]);
    }
}
