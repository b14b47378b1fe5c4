//! Decisions that hold for later calls.

use super::scenario::*;
use crate::command::{Action, RememberDecision, Resolve};
use crate::permission::{Decision, Verdict};
use crate::remembered_decision::{Extent, Match, Scope};
use crate::{DecisionId, Principal, Rejection};

pub(super) fn remembering(action: Action, scope: Scope, for_ms: u64) -> Action {
    let (id, tool_digest) = (DecisionId::new("dec_1"), "server".to_owned());
    let extent = Extent { scope, matching: Match::Exact, for_ms };
    let wish = RememberDecision { id, extent, tool_digest };
    match action {
        Action::Resolve(resolve) => Action::Resolve(Resolve { remember: Some(wish), ..resolve }),
        other => other,
    }
}

fn revoke() -> Action {
    Action::RevokeDecision(DecisionId::new("dec_1"))
}

#[test]
fn a_decision_is_remembered_with_the_resolution_and_revoked() {
    let mut scenario = Scenario::with_calls(vec![gated("a")]);
    let events = scenario.apply(remembering(approve("a", None), Scope::Conversation, 1_000));
    assert_eq!(events, Ok(vec!["resolution", "decision_remembered", "tool_started"]));
    let decision = scenario.state.decisions.values().next().unwrap().clone();
    assert!(decision.approved);
    assert!(decision.matches("tool", "server", "0123456789abcdef"));
    for (tool, tool_digest, fingerprint) in [
        ("tool", "server", "another"),
        ("tools", "server", "0123456789abcdef"),
        ("tool", "client", "0123456789abcdef"),
    ] {
        assert!(!decision.matches(tool, tool_digest, fingerprint));
    }
    assert_eq!(decision.expires_at, scenario.after(1_000));
    scenario.then(revoke());
    assert!(scenario.state.decisions.is_empty());
    assert_eq!(scenario.apply(revoke()), Err(Rejection::DecisionNotFound));
}

#[test]
fn a_denial_is_remembered_too_and_one_that_has_expired_is_not_there() {
    let mut scenario = Scenario::with_calls(vec![gated("a")]);
    scenario.then(remembering(deny("a", None), Scope::Conversation, 1_000));
    assert!(!scenario.state.decisions.values().next().unwrap().approved);
    scenario.advance(1_000);
    assert_eq!(scenario.apply(revoke()), Err(Rejection::DecisionNotFound));
}

#[test]
fn one_for_the_agent_is_this_conversations_until_the_agent_has_it() {
    let mut scenario = Scenario::with_calls(vec![gated("a")]);
    scenario.then(remembering(approve("a", None), Scope::Agent, 1_000));
    assert_eq!(scenario.state.decisions.len(), 1);
    assert_eq!(scenario.wanted(), ["attempt 1 of a", "keeping of dec_1"]);
    assert_eq!(scenario.apply(revoke()), Err(Rejection::DecisionNotFound));
    scenario.then(Action::DecisionPublished(DecisionId::new("dec_1")));
    assert_eq!(scenario.wanted(), ["attempt 1 of a"]);
    assert!(scenario.state.decisions.is_empty());
}

#[test]
fn nothing_is_remembered_of_an_approval_that_the_gate_refuses() {
    let mut scenario = Scenario::with_calls(vec![gated("a")]);
    let refused = match approve_with("a", serde_json::json!({"n": 2})) {
        Action::Resolve(resolve) => {
            Action::Resolve(Resolve { verdict: Some(verdict(Decision::Deny)), ..resolve })
        }
        other => other,
    };
    scenario.then(remembering(refused, Scope::Conversation, 1_000));
    assert!(scenario.state.decisions.is_empty());
}

#[test]
fn a_call_that_a_decision_lets_through_runs_as_who_made_it() {
    let mut scenario = Scenario::with_turn();
    let mut planned = server("a");
    let by = Some(Principal::new("ann"));
    planned.verdict = Some(Verdict { by, ..verdict(Decision::Allow) });
    scenario.reply(vec![planned]).unwrap();
    let call = scenario.state.call(&crate::CallId::new("a")).unwrap();
    assert_eq!(call.principal, Principal::new("ann"));
}

#[test]
fn an_expired_decision_is_dropped_with_the_next_one_unless_the_agent_lacks_it() {
    for (scope, later_ms, expected) in [
        (Scope::Conversation, 999, ["dec_1", "dec_2"].as_slice()),
        (Scope::Conversation, 1_000, &["dec_2"]),
        (Scope::Agent, 1_000, &["dec_1", "dec_2"]),
    ] {
        let mut scenario = Scenario::with_calls(vec![gated("a"), gated("b")]);
        scenario.then(remembering(approve("a", None), scope, 1_000)).advance(later_ms);
        let mut second = remembering(approve("b", None), Scope::Conversation, 1_000);
        if let Action::Resolve(Resolve { remember: Some(wish), .. }) = &mut second {
            wish.id = DecisionId::new("dec_2");
        }
        scenario.then(second);
        let remembered = scenario.state.decisions.keys().map(DecisionId::as_str);
        assert_eq!(remembered.collect::<Vec<_>>(), expected, "after {later_ms}");
    }
}
