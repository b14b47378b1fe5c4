//! Checks that journals have no gaps, and that nothing is open at their end.

use super::Evidence;

/// Every journal is sound and at rest: `seq` counts from 1, every started turn has ended once, and
/// every call has one result.
pub fn check(evidence: &Evidence) -> Vec<String> {
    let violations = evidence.journals.iter().flat_map(|(id, journal)| {
        let open = journal.open().into_iter().map(|open| format!("{open} is open at the end"));
        journal.violations().into_iter().chain(open).map(move |why| format!("journal {id}: {why}"))
    });
    violations.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::fixtures::{evidence, expect};

    #[test]
    fn a_whole_journal_keeps_the_promise() {
        assert_eq!(check(&evidence()), [""; 0]);
    }

    #[test]
    fn a_gap_is_seen() {
        let mut evidence = evidence();
        evidence.journal().0.remove(3);
        expect(check, &evidence, "event 4 has seq 5");
    }

    #[test]
    fn a_second_end_of_a_turn_and_a_second_result_are_seen() {
        let mut evidence = evidence();
        for kind in ["tool_result", "turn_ended"] {
            let mut again = evidence.journal().of(kind).next().unwrap().clone();
            again["seq"] = json!(evidence.journal().0.len() + 1);
            evidence.journal().0.push(again);
        }
        expect(check, &evidence, "a result of a call not open");
        expect(check, &evidence, "a turn ends that is not open");
    }

    #[test]
    fn what_never_ended_is_seen() {
        let mut evidence = evidence();
        evidence.journal().0.retain(|event| event["seq"].as_u64() < Some(7));
        expect(check, &evidence, "call send is open at the end");
        expect(check, &evidence, "turn t1 is open at the end");
        evidence.journal().0.truncate(2);
        expect(check, &evidence, "message of t1 is open at the end");
    }
}
