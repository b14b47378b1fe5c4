//! Checks sub-agents: every call to another agent has one child, which ends and answers once.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Evidence;
use crate::journal::Journal;

/// A child belongs to exactly one call of a parent that knows it, gets one message, and answers
/// once.
pub fn check(evidence: &Evidence) -> Vec<String> {
    let calls = calls_by_child(evidence);
    let mut violations = Vec::new();
    for (id, journal) in &evidence.journals {
        let Some(parent) = parent(journal) else { continue };
        let field = |name: &str| parent[name].as_str().unwrap_or_default().to_owned();
        let (root, call) = (field("conversation_id"), field("call_id"));
        let mut report = |why: &str| violations.push(format!("child {id} of {root}/{call}: {why}"));
        match calls.get(id.as_str()) {
            Some(calls) if calls.len() > 1 => report("several calls ask it"),
            Some(calls) if calls[0] != (root.as_str(), call.as_str()) => report("another asks it"),
            Some(_) => {}
            None if evidence.may_be_missing(&root) => report("it outlived its parent"),
            None => report("its parent does not know it"),
        }
        if journal.of("user_msg").count() > 1 {
            report("it was asked twice");
        }
        if journal.outcomes() == ["completed"] && journal.of("told").count() > 1 {
            report("it answered twice");
        }
    }
    violations
}

/// The calls that name each child.
fn calls_by_child(evidence: &Evidence) -> BTreeMap<&str, Vec<(&str, &str)>> {
    let mut calls = BTreeMap::<&str, Vec<_>>::new();
    for (id, journal) in &evidence.journals {
        // A fork copies calls, but not their children.
        let own =
            journal.0.iter().rposition(|event| event["type"] == "forked").map_or(0, |index| index);
        for event in &journal.0[own..] {
            let (data, kind) = (&event["data"], event["type"].as_str().unwrap_or_default());
            let child = data["child"].as_str();
            // A later attempt of a dispatch uses the same child.
            let first = kind == "tool_call" || kind == "dispatch_started" && data["attempt"] == 1;
            if let (Some(child), true) = (child, first) {
                let call = data["call_id"].as_str().unwrap_or_default();
                calls.entry(child).or_default().push((id.as_str(), call));
            }
        }
    }
    calls
}

fn parent(journal: &Journal) -> Option<&Value> {
    let parent = &journal.of("created").next()?["data"]["parent"];
    (!parent.is_null()).then_some(parent)
}

#[cfg(test)]
mod tests {
    use reqwest::Method;
    use serde_json::json;

    use super::*;
    use crate::checks::fixtures::{evidence, expect};

    /// The call `send` of `c` is answered by the child `k`.
    fn with_child() -> Evidence {
        let mut evidence = evidence();
        evidence.journal().0[3]["data"]["child"] = json!("k");
        let mut child = evidence.journal().clone();
        child.0.retain(|event| event["seq"].as_u64() < Some(4));
        child.0[0]["data"] = json!({"parent": {"conversation_id": "c", "call_id": "send"}});
        evidence.journals.insert("k".to_owned(), child);
        evidence
    }

    #[test]
    fn a_child_of_one_call_keeps_the_promise() {
        assert_eq!(check(&with_child()), [""; 0]);
    }

    #[test]
    fn a_child_without_a_call_or_with_another_is_seen() {
        let mut evidence = with_child();
        evidence.journal().0[4]["data"]["child"] = json!("k");
        expect(check, &evidence, "several calls ask it");
        evidence.journal().0[3]["data"] = json!({});
        expect(check, &evidence, "another asks it");
        evidence.journal().0[4]["data"] = json!({});
        expect(check, &evidence, "its parent does not know it");
    }

    #[test]
    fn a_child_with_two_messages_or_without_its_parent_is_seen() {
        let mut evidence = with_child();
        let child = evidence.journals.get_mut("k").unwrap();
        let again = child.0[1].clone();
        child.0.push(again);
        expect(check, &evidence, "it was asked twice");
        evidence.journals.remove("c");
        let mut deletion = evidence.exchanges[0].clone();
        (deletion.method, deletion.path) = (Method::DELETE, "/v1/conversations/c".to_owned());
        evidence.exchanges.push(deletion);
        expect(check, &evidence, "it outlived its parent");
    }
}
