//! A tool runs again under the same key as a higher attempt, and never when it must not.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Evidence;
use crate::request_log::Request;

/// What the journals say about one key.
#[derive(Default)]
struct Planned {
    attempts: BTreeSet<u64>,
    once: bool,
}

/// Every request to a tool has the key of its call and an attempt that is journalled, higher than
/// every one that arrived before; the arguments stay; `on_interrupt: fail` came at most once.
pub fn check(evidence: &Evidence) -> Vec<String> {
    let planned = planned(evidence);
    let mut runs: BTreeMap<&str, Vec<&Request>> = BTreeMap::new();
    for run in &evidence.runs {
        runs.entry(run.header("idempotency-key")).or_default().push(run);
    }
    let mut violations = Vec::new();
    for (key, runs) in runs {
        let mut say = |why: String| violations.push(format!("runs of {key:?}: {why}"));
        let planned = planned.get(key);
        let conversation = key.split_once('/').map_or(key, |(conversation, _)| conversation);
        if planned.is_none() && !evidence.may_be_gone(conversation) {
            say("no journal has such a call".to_owned());
        }
        if runs.len() > 1 && planned.is_some_and(|planned| planned.once) {
            say(format!("must not be repeated, and ran {} times", runs.len()));
        }
        for run in &runs {
            let of = |name: &str| run.body[name].as_str().unwrap_or_default().to_owned();
            let meant = format!("{}/{}", of("conversation_id"), of("call_id"));
            if meant != key {
                say(format!("is about {meant}"));
            }
            if planned.is_some_and(|planned| !planned.attempts.contains(&attempt(run))) {
                say(format!("attempt {} is not journalled", attempt(run)));
            }
        }
        for two in runs.windows(2) {
            if attempt(two[1]) <= attempt(two[0]) {
                say(format!("attempt {} comes after {}", attempt(two[1]), attempt(two[0])));
            }
            if two[1].body["args"] != two[0].body["args"] {
                say(format!("args change from {} to {}", two[0].body["args"], two[1].body["args"]));
            }
        }
    }
    violations
}

fn attempt(run: &Request) -> u64 {
    run.body["attempt"].as_u64().unwrap_or_default()
}

fn planned(evidence: &Evidence) -> BTreeMap<String, Planned> {
    let mut all = BTreeMap::<String, Planned>::new();
    for (id, journal) in &evidence.journals {
        for event in &journal.0 {
            let data = &event["data"];
            let attempt = match event["type"].as_str() {
                Some("tool_call") => (data["started"] == true).then_some(1),
                Some("tool_started" | "dispatch_started") => data["attempt"].as_u64(),
                _ => continue,
            };
            let planned = all.entry(format!("{id}/{}", text(&data["call_id"]))).or_default();
            planned.attempts.extend(attempt);
            planned.once |= data["on_interrupt"] == "fail";
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
    use crate::checks::fixtures::{evidence, expect, run};

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
        expect(check, &evidence, "runs of \"c/send-2\": is about c/send");
        expect(check, &evidence, "no journal has such a call");
    }
}
