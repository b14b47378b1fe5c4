//! Checks that stream readers receive every journalled frame, and each one once.

use std::collections::{BTreeMap, BTreeSet};

use super::Evidence;
use crate::frames::{Frame, ids};
use crate::journal::Journal;

/// Over all its connections, each reader received every journalled frame once and in order, and the
/// end of each turn once, with the journal's outcome.
pub fn check(evidence: &Evidence) -> Vec<String> {
    let violations = evidence.streams.iter().flat_map(|(id, frames)| {
        let violations = match evidence.journals.get(id) {
            Some(journal) => {
                let differences = compare(journal, frames, &evidence.types_without_frame);
                order(frames).into_iter().chain(differences).collect()
            }
            None => order(frames),
        };
        violations.into_iter().map(move |why| format!("stream of {id}: {why}"))
    });
    violations.collect()
}

fn order(frames: &[Frame]) -> Vec<String> {
    let ids = ids(frames);
    let descents = ids.windows(2).filter(|two| two[1] <= two[0]);
    descents.map(|two| format!("id {} comes after {}", two[1], two[0])).collect()
}

fn compare(journal: &Journal, frames: &[Frame], types_without_frame: &[String]) -> Vec<String> {
    let received: BTreeSet<u64> = ids(frames).into_iter().collect();
    let expected: BTreeSet<u64> = journal.mirrored().into_iter().collect();
    let may_be_missed: BTreeSet<u64> = types_without_frame
        .iter()
        .flat_map(|kind| journal.of(kind))
        .filter_map(|event| event["seq"].as_u64())
        .collect();
    let missed = expected
        .difference(&received)
        .filter(|id| !may_be_missed.contains(id))
        .map(|id| format!("id {id} was never received"));
    let invented =
        received.difference(&expected).map(|id| format!("id {id} is not in the journal"));
    missed.chain(invented).chain(ends(journal, frames)).collect()
}

fn ends(journal: &Journal, frames: &[Frame]) -> Vec<String> {
    let mut received: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for frame in frames.iter().filter(|frame| frame.is_terminal()) {
        let turn = frame.data["turn_id"].as_str().unwrap_or_default();
        received.entry(turn).or_default().push(&frame.name);
    }
    let mut violations = Vec::new();
    for event in journal.of("turn_ended") {
        let turn = event["turn_id"].as_str().unwrap_or_default();
        let expected = format!("turn_{}", event["data"]["outcome"].as_str().unwrap_or_default());
        let ends = received.remove(turn).unwrap_or_default();
        if ends != [expected.as_str()] {
            violations
                .push(format!("turn {turn} ended as {expected}, and the stream has {ends:?}"));
        }
    }
    violations.extend(
        received
            .into_keys()
            .map(|turn| format!("turn {turn} ended in the stream, and not in the journal")),
    );
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::fixtures::{evidence, expect};

    #[test]
    fn a_whole_stream_keeps_the_promise() {
        assert_eq!(check(&evidence()), [""; 0]);
    }

    #[test]
    fn a_gap_is_seen_at_the_end_too() {
        let mut evidence = evidence();
        evidence.streams[0].1.remove(3);
        expect(check, &evidence, "id 7 was never received");
        evidence.streams[0].1.pop();
        expect(check, &evidence, "id 16 was never received");
        evidence.types_without_frame = vec!["suspension".to_owned()];
        expect(check, &evidence, "id 16 was never received");
        expect(check, &evidence, "turn t2 ended as turn_cancelled, and the stream has []");
    }

    #[test]
    fn a_frame_that_comes_twice_or_late_is_seen() {
        let mut evidence = evidence();
        let again = evidence.streams[0].1[3].clone();
        evidence.streams[0].1.insert(4, again);
        expect(check, &evidence, "id 7 comes after 7");
        evidence.streams[0].1.swap(1, 2);
        expect(check, &evidence, "id 3 comes after 6");
    }

    #[test]
    fn a_second_end_and_a_wrong_end_of_a_turn_are_seen() {
        let mut evidence = evidence();
        let mut again = evidence.streams[0].1.last().unwrap().clone();
        again.id = None;
        evidence.streams[0].1.push(again);
        expect(check, &evidence, "[\"turn_cancelled\", \"turn_cancelled\"]");
        for frame in &mut evidence.streams[0].1 {
            frame.name = frame.name.replace("cancelled", "failed");
        }
        expect(check, &evidence, "[\"turn_failed\", \"turn_failed\"]");
    }

    #[test]
    fn what_the_journal_does_not_have_is_seen() {
        let mut evidence = evidence();
        evidence.journal().0.truncate(13);
        expect(check, &evidence, "id 15 is not in the journal");
        expect(check, &evidence, "turn t2 ended in the stream, and not in the journal");
    }
}
