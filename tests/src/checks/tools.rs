//! Checks tool runs: a repeated run has the same key and a higher attempt, and none repeats that
//! must not.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::Evidence;
use crate::request_log::Request;

/// The longest time in which a resumed node sends what it was about to send.
const MAX_DELAY: SignedDuration = SignedDuration::from_secs(2);

/// The attempts that the journals contain for one key.
#[derive(Default)]
struct JournalledAttempts {
    attempts: BTreeSet<u64>,
    runs_once: bool,
}

/// Every request to a tool has the key of its call and a journalled attempt, higher than each
/// earlier one unless its node was stopped meanwhile; the arguments never change; a call with `on_interrupt: fail` runs at most once.
pub fn check(evidence: &Evidence) -> Vec<String> {
    let journalled = journalled_attempts(evidence);
    let mut runs: BTreeMap<String, Vec<&Request>> = BTreeMap::new();
    for run in &evidence.runs {
        runs.entry(run.call()).or_default().push(run);
    }
    let mut violations = Vec::new();
    for (call, runs) in runs {
        let key = call.as_str();
        let mut report = |why: String| violations.push(format!("runs of {key:?}: {why}"));
        let journalled = journalled.get(key);
        let conversation = key.split_once('/').map_or(key, |(conversation, _)| conversation);
        if journalled.is_none() && !evidence.may_be_missing(conversation) {
            report("no journal has such a call".to_owned());
        }
        if runs.len() > 1 && journalled.is_some_and(|attempts| attempts.runs_once) {
            report(format!("must not be repeated, and ran {} times", runs.len()));
        }
        for run in &runs {
            if !run.has_key_of_call() {
                report(format!("has the key {:?}", run.header("idempotency-key")));
            }
            if journalled.is_some_and(|known| !known.attempts.contains(&attempt(run))) {
                report(format!("attempt {} is not journalled", attempt(run)));
            }
        }
        let mut seen = BTreeSet::new();
        for run in &runs {
            let (attempt, highest) = (attempt(run), seen.last().copied().unwrap_or_default());
            let is_new = seen.insert(attempt);
            if !is_new || attempt < highest && !may_be_overtaken(evidence, run) {
                report(format!("attempt {attempt} comes after {highest}"));
            }
        }
        for two in runs.windows(2) {
            if two[1].body["args"] != two[0].body["args"] {
                report(format!(
                    "args change from {} to {}",
                    two[0].body["args"], two[1].body["args"]
                ));
            }
        }
    }
    violations
}

/// Whether the request may come after one of a later attempt: a node that was stopped right before
/// it sends a request sends it once it is resumed. Only the tool can tell, by the attempt.
fn may_be_overtaken(evidence: &Evidence, run: &Request) -> bool {
    let age = |resumed: &Timestamp| run.at.duration_since(*resumed);
    evidence
        .resumptions
        .iter()
        .any(|resumed| (SignedDuration::ZERO..MAX_DELAY).contains(&age(resumed)))
}

fn attempt(run: &Request) -> u64 {
    run.body["attempt"].as_u64().unwrap_or_default()
}

fn journalled_attempts(evidence: &Evidence) -> BTreeMap<String, JournalledAttempts> {
    let mut all = BTreeMap::<String, JournalledAttempts>::new();
    for (id, journal) in &evidence.journals {
        for event in &journal.0 {
            let data = &event["data"];
            let attempt = match event["type"].as_str() {
                Some("tool_call") => (data["started"] == true).then_some(1),
                Some("tool_started" | "dispatch_started") => data["attempt"].as_u64(),
                _ => continue,
            };
            let journalled = all.entry(format!("{id}/{}", text(&data["call_id"]))).or_default();
            journalled.attempts.extend(attempt);
            journalled.runs_once |= data["on_interrupt"] == "fail";
        }
    }
    all
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use reqwest::Method;
    use serde_json::json;

    use super::*;
    use crate::checks::fixtures::{evidence, expect, run, second};

    #[test]
    fn a_higher_attempt_under_the_same_key_keeps_the_promise() {
        assert_eq!(check(&evidence()), [""; 0]);
    }

    #[test]
    fn a_second_run_of_what_must_not_be_repeated_is_seen() {
        let mut evidence = evidence();
        evidence.runs.extend([run("once", 1), run("once", 2)]);
        expect(check, &evidence, "must not be repeated, and ran 2 times");
    }

    #[test]
    fn an_attempt_that_is_not_higher_or_not_journalled_is_seen() {
        let mut evidence = evidence();
        evidence.runs.swap(0, 1);
        expect(check, &evidence, "attempt 1 comes after 2");
        evidence.runs = vec![run("send", 1), run("send", 1), run("send", 3)];
        expect(check, &evidence, "attempt 1 comes after 1");
        expect(check, &evidence, "attempt 3 is not journalled");
    }

    #[test]
    fn an_attempt_may_be_overtaken_while_its_node_is_stopped_but_comes_once() {
        let mut evidence = evidence();
        evidence.runs.swap(0, 1);
        evidence.resumptions = vec![second(8)];
        assert_eq!(check(&evidence), [""; 0]);
        evidence.runs.push(run("send", 1));
        expect(check, &evidence, "attempt 1 comes after 2");
        evidence.runs.pop();
        for unrelated in [5, 10] {
            evidence.resumptions = vec![second(unrelated)];
            expect(check, &evidence, "attempt 1 comes after 2");
        }
    }

    #[test]
    fn a_run_for_a_deleted_conversation_needs_no_journal() {
        let mut evidence = evidence();
        evidence.journals.clear();
        expect(check, &evidence, "no journal has such a call");
        let mut deletion = evidence.exchanges[0].clone();
        (deletion.method, deletion.path) = (Method::DELETE, "/v1/conversations/c".to_owned());
        evidence.exchanges.push(deletion);
        assert_eq!(check(&evidence), [""; 0]);
    }

    #[test]
    fn another_key_and_other_arguments_are_seen() {
        let mut evidence = evidence();
        evidence.runs[1].body["args"] = json!({"to": "eve"});
        expect(check, &evidence, "args change");
        evidence.runs[1].headers[0].1 = "c/send-2".to_owned();
        expect(check, &evidence, "runs of \"c/send\": has the key \"c/send-2\"");
    }
}
