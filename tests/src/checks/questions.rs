//! Checks that no question is asked twice: an answer stands, whichever node dies afterwards.

use std::collections::BTreeSet;

use super::Evidence;

/// A call is suspended at most once each for an approval, a person and a client.
pub fn check(evidence: &Evidence) -> Vec<String> {
    let mut violations = Vec::new();
    for (id, journal) in &evidence.journals {
        let mut questions = BTreeSet::new();
        // A tool that runs again may ask its own questions again.
        let first = journal.of("suspension").filter(|event| event["data"]["requests"].is_null());
        for event in first {
            let (call, kind) = (&event["data"]["call_id"], &event["data"]["kind"]);
            if !questions.insert((call.to_string(), kind.to_string())) {
                violations.push(format!("journal {id}: {call} is asked twice for {kind}"));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::fixtures::{evidence, expect};

    #[test]
    fn a_second_phase_of_another_kind_keeps_the_promise() {
        let mut evidence = evidence();
        assert_eq!(check(&evidence), [""; 0]);
        let mut again = evidence.journal().0[5].clone();
        again["data"]["kind"] = json!("client_exec");
        evidence.journal().0.push(again);
        assert_eq!(check(&evidence), [""; 0]);
    }

    #[test]
    fn a_second_question_is_seen() {
        let mut evidence = evidence();
        let again = evidence.journal().0[5].clone();
        evidence.journal().0.push(again);
        expect(check, &evidence, "\"send\" is asked twice for \"approval\"");
    }
}
