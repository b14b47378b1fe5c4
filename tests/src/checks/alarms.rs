//! A deadline ends what waits, once, not before its time, and nothing answers after it.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::Evidence;
use crate::journal::Journal;

/// One suspension and how it ended.
struct Waited<'a> {
    id: &'a str,
    call: &'a str,
    due: Timestamp,
    end: &'a Value,
}

/// No suspension expires before its deadline or twice, and none is answered after it.
pub fn check(evidence: &Evidence) -> Vec<String> {
    let mut violations = Vec::new();
    for (id, journal) in &evidence.journals {
        for Waited { call, due, end, .. } in waits(id, journal) {
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

/// The suspensions that ended more than this after their deadline, or were left open.
///
/// Not a part of `check`: how late an alarm may be depends on what the test did to the cluster.
pub fn late(evidence: &Evidence, by: Duration) -> Vec<String> {
    let all = evidence.journals.iter().flat_map(|(id, journal)| waits(id, journal));
    let late =
        all.filter(|waited| waited.end.is_null() || time(&waited.end["at"]) > waited.due + by);
    late.map(|Waited { id, call, due, end }| format!("{id}/{call} was due at {due}: {end}"))
        .collect()
}

/// Every suspension with the event that ended it; null when none did.
fn waits<'a>(id: &'a str, journal: &'a Journal) -> Vec<Waited<'a>> {
    let suspended = journal.0.iter().enumerate().filter(|(_, event)| event["type"] == "suspension");
    let waits = suspended.map(|(place, event)| {
        let ends = |later: &&Value| {
            let kind = later["type"].as_str().unwrap_or_default();
            ["resolution", "tool_result"].contains(&kind) && call(later) == call(event)
        };
        let end = journal.0[place + 1..].iter().find(ends).unwrap_or(&Value::Null);
        Waited { id, call: call(event), due: time(&event["data"]["expires_at"]), end }
    });
    waits.collect()
}

fn is_expiry(event: &Value) -> bool {
    event["data"]["error_type"] == "EXPIRED"
}

fn call(event: &Value) -> &str {
    event["data"]["call_id"].as_str().unwrap_or_default()
}

/// A missing time is one long ago.
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
