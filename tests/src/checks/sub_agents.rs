//! Every call that asks another agent has one child, which ends and whose answer is heard.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Evidence;
use crate::journal::Journal;

/// A child is that of one call, of a parent that knows it; it works for one turn, and what it
/// answers is what the call ended with.
pub fn check(evidence: &Evidence) -> Vec<String> {
    let asked = asked(evidence);
    let mut violations = Vec::new();
    for (id, journal) in &evidence.journals {
        let Some(parent) = parent(journal) else { continue };
        let of = |name: &str| parent[name].as_str().unwrap_or_default().to_owned();
        let (root, call) = (of("conversation_id"), of("call_id"));
        let mut say = |why: &str| violations.push(format!("child {id} of {root}/{call}: {why}"));
        match asked.get(id.as_str()) {
            Some(calls) if calls.len() > 1 => say("several calls ask it"),
            Some(calls) if calls[0] != (root.as_str(), call.as_str()) => say("another asks it"),
            Some(_) => {}
            None if evidence.may_be_gone(&root) => say("it outlived its parent"),
            None => say("its parent does not know it"),
        }
        if journal.of("user_msg").count() > 1 {
            say("it was asked twice");
        }
        if journal.outcomes() == ["completed"] && journal.of("told").count() > 1 {
            say("it answered twice");
        }
    }
    violations
}

/// The calls that each child is to answer.
fn asked(evidence: &Evidence) -> BTreeMap<&str, Vec<(&str, &str)>> {
    let mut asked = BTreeMap::<&str, Vec<_>>::new();
    for (id, journal) in &evidence.journals {
        // A fork has the other's calls, not its children.
        let own = journal.0.iter().rposition(|event| event["type"] == "forked").map_or(0, |at| at);
        for event in &journal.0[own..] {
            let (data, kind) = (&event["data"], event["type"].as_str().unwrap_or_default());
            let child = data["child"].as_str();
            // A dispatch that starts again asks the child that it asked before.
            let first = kind == "tool_call" || kind == "dispatch_started" && data["attempt"] == 1;
            if let (Some(child), true) = (child, first) {
                let call = data["call_id"].as_str().unwrap_or_default();
                asked.entry(child).or_default().push((id.as_str(), call));
            }
        }
    }
    asked
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
    fn family() -> Evidence {
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
        assert_eq!(check(&family()), [""; 0]);
    }

    #[test]
    fn a_child_that_nobody_or_somebody_else_asks_is_seen() {
        let mut evidence = family();
        evidence.journal().0[4]["data"]["child"] = json!("k");
        expect(check, &evidence, "several calls ask it");
        evidence.journal().0[3]["data"] = json!({});
        expect(check, &evidence, "another asks it");
        evidence.journal().0[4]["data"] = json!({});
        expect(check, &evidence, "its parent does not know it");
    }

    #[test]
    fn a_child_that_is_asked_twice_or_outlives_its_parent_is_seen() {
        let mut evidence = family();
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
