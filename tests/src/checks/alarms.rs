//! Checks deadlines: a suspension expires once, not before its deadline, and is not resolved after
//! it.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::Evidence;
use crate::journal::Journal;

/// One suspension and the event that ended it.
struct Suspension<'a> {
    id: &'a str,
    call: &'a str,
    due: Timestamp,
    end: &'a Value,
}

/// No suspension expires twice or before its deadline, and none is resolved after it.
pub fn check(evidence: &Evidence) -> Vec<String> {
    let mut violations = Vec::new();
    for (id, journal) in &evidence.journals {
        for Suspension { call, due, end, .. } in suspensions(id, journal) {
            let at = time(&end["at"]);
            if is_expiry(end) && at < due {
                violations.push(format!("{id}/{call} expired at {at}, before {due}"));
            }
            if end["type"] == "resolution" && at > due {
                violations.push(format!("{id}/{call} was resolved at {at}, after {due}"));
            }
        }
        let expiries = journal.of("tool_result").filter(|event| is_expiry(event));
        let mut calls: Vec<&str> = expiries.map(call).collect();
        calls.sort_unstable();
        let twice = calls.windows(2).filter(|two| two[0] == two[1]);
        violations.extend(twice.map(|two| format!("{id}/{} expired twice", two[0])));
    }
    violations
}

/// The suspensions that ended more than `tolerance` after their deadline, or are still open.
///
/// Not a part of `check`: how late an alarm may be depends on the faults that the test caused.
pub fn late(evidence: &Evidence, tolerance: Duration) -> Vec<String> {
    let all = evidence.journals.iter().flat_map(|(id, journal)| suspensions(id, journal));
    let late = all.filter(|it| it.end.is_null() || time(&it.end["at"]) > it.due + tolerance);
    late.map(|Suspension { id, call, due, end }| format!("{id}/{call} was due at {due}: {end}"))
        .collect()
}

/// Every suspension with the event that ended it, or null if it is still open.
fn suspensions<'a>(id: &'a str, journal: &'a Journal) -> Vec<Suspension<'a>> {
    let opened = journal.0.iter().enumerate().filter(|(_, event)| event["type"] == "suspension");
    let all = opened.map(|(index, event)| {
        let ends = |later: &&Value| {
            let kind = later["type"].as_str().unwrap_or_default();
            ["resolution", "tool_result"].contains(&kind) && call(later) == call(event)
        };
        let end = journal.0[index + 1..].iter().find(ends).unwrap_or(&Value::Null);
        Suspension { id, call: call(event), due: time(&event["data"]["expires_at"]), end }
    });
    all.collect()
}

fn is_expiry(event: &Value) -> bool {
    event["data"]["error_type"] == "EXPIRED"
}

fn call(event: &Value) -> &str {
    event["data"]["call_id"].as_str().unwrap_or_default()
}

/// Parses a timestamp; a missing one is the epoch.
fn time(value: &Value) -> Timestamp {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::fixtures::{evidence, expect, second};

    #[test]
    fn an_expiry_at_its_time_keeps_the_promise() {
        assert_eq!(check(&evidence()), [""; 0]);
        assert_eq!(late(&evidence(), Duration::ZERO), [""; 0]);
    }

    #[test]
    fn an_expiry_before_its_time_is_seen() {
        let mut evidence = evidence();
        evidence.journal().0[11]["at"] = json!(second(11).to_string());
        expect(check, &evidence, "c/once expired at 1970-01-01T00:00:11Z, before");
    }

    #[test]
    fn a_second_expiry_is_seen() {
        let mut evidence = evidence();
        let again = evidence.journal().0[11].clone();
        evidence.journal().0.push(again);
        expect(check, &evidence, "c/once expired twice");
    }

    #[test]
    fn an_answer_after_the_deadline_is_seen() {
        let mut evidence = evidence();
        evidence.journal().0[7]["at"] = json!(second(13).to_string());
        expect(check, &evidence, "c/send was resolved at");
    }

    #[test]
    fn a_late_expiry_and_one_that_never_came_are_seen() {
        let mut evidence = evidence();
        let late_by_one = |evidence: &Evidence| late(evidence, Duration::from_secs(1));
        evidence.journal().0[11]["at"] = json!(second(14).to_string());
        assert_eq!(late_by_one(&evidence).len(), 1);
        assert_eq!(late(&evidence, Duration::from_secs(2)), [""; 0]);
        evidence.journal().0.remove(11);
        expect(late_by_one, &evidence, "c/once was due at");
    }
}
