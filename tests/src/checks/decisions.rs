//! Checks that decisions whose remembering was acknowledged are remembered.

use serde_json::Value;

use super::Evidence;
use crate::history::Exchange;

/// For every acknowledged resolution that is to be remembered, its conversation or its agent lists a
/// decision about the call's tool with the same answer.
pub fn check(evidence: &Evidence) -> Vec<String> {
    let violations = evidence.exchanges.iter().filter_map(|exchange| {
        let Remembered { listing, tool, approved } = remembered(evidence, exchange)?;
        let decisions = evidence.decisions.get(&listing)?;
        let is_same =
            |decision: &&Value| decision["tool"] == tool && decision["approved"] == approved;
        let is_there = decisions.iter().any(|decision| is_same(&decision));
        (!is_there).then(|| format!("{listing} has no decision of {}", exchange.path))
    });
    violations.collect()
}

/// A decision that must be listed.
struct Remembered {
    /// The path of the listing.
    listing: String,
    tool: Value,
    approved: Value,
}

/// The listings that must contain a decision.
pub(super) fn listings(evidence: &Evidence) -> Vec<String> {
    let all = evidence.exchanges.iter().filter_map(|it| Some(remembered(evidence, it)?.listing));
    let mut all: Vec<String> = all.collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// `None` unless the exchange is an acknowledged resolution of a call that is known, with a decision
/// to remember.
fn remembered(evidence: &Evidence, exchange: &Exchange) -> Option<Remembered> {
    exchange.acknowledged().filter(|_| exchange.verb() == "resolution")?;
    let (id, body) = (exchange.conversation()?, exchange.body.as_ref()?);
    let scope = body["remember"]["scope"].as_str()?;
    let journal = evidence.journals.get(id)?;
    let call = exchange.path.split('/').nth(5)?;
    let tool = journal.about("tool_call", call).next()?["data"]["tool"].clone();
    let listing = if scope == "agent" {
        let agent = journal.of("created").next()?["data"]["agent"].as_str()?;
        format!("/v1/agents/{agent}/decisions")
    } else {
        format!("/v1/conversations/{id}/decisions")
    };
    Some(Remembered { listing, tool, approved: body["approved"].clone() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::fixtures::{evidence, expect};

    /// The approval of `send` is remembered in this scope.
    fn with_decision(scope: &str) -> Evidence {
        let mut evidence = evidence();
        evidence.exchanges[1].body.as_mut().unwrap()["remember"] = json!({"scope": scope});
        let journal = evidence.journal();
        journal.0[0]["data"]["agent"] = json!("a");
        journal.0[3]["data"]["tool"] = json!("send");
        let listing = listings(&evidence).pop().unwrap();
        evidence.decisions.insert(listing, vec![json!({"tool": "send", "approved": true})]);
        evidence
    }

    #[test]
    fn a_decision_that_is_listed_keeps_the_promise() {
        for (scope, listing) in
            [("conversation", "/v1/conversations/c/decisions"), ("agent", "/v1/agents/a/decisions")]
        {
            let evidence = with_decision(scope);
            assert_eq!(listings(&evidence), [listing]);
            assert_eq!(check(&evidence), [""; 0]);
        }
    }

    #[test]
    fn a_forgotten_decision_and_another_answer_are_seen() {
        let mut evidence = with_decision("agent");
        evidence.decisions.values_mut().next().unwrap()[0]["approved"] = json!(false);
        expect(check, &evidence, "has no decision of");
        evidence.decisions.values_mut().next().unwrap().clear();
        expect(check, &evidence, "has no decision of");
    }
}
