//! Decisions that hold for later calls.

use super::scenario::*;
use crate::command::{Action, RememberDecision, Resolve};
use crate::permission::{Decision, Verdict};
use crate::remembered_decision::{Match, Scope};
use crate::{DecisionId, Principal, Rejection};

fn remembering(action: Action, scope: Scope, for_ms: u64) -> Action {
    let (id, does) = (DecisionId::new("dec_1"), "server".to_owned());
    let fingerprint = "0123456789abcdef".to_owned();
    let wish = RememberDecision { id, scope, matching: Match::Exact, does, fingerprint, for_ms };
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
    let mut story = Scenario::with_calls(vec![gated("a")]);
    let told = story.apply(remembering(approve("a", None), Scope::Conversation, 1_000));
    assert_eq!(told, Ok(vec!["resolution", "decision_remembered", "tool_started"]));
    let decision = story.state.decisions.values().next().unwrap().clone();
    assert!(decision.approved);
    assert!(decision.matches("tool", "server", "0123456789abcdef"));
    for (tool, does, fingerprint) in [
        ("tool", "server", "another"),
        ("tools", "server", "0123456789abcdef"),
        ("tool", "client", "0123456789abcdef"),
    ] {
        assert!(!decision.matches(tool, does, fingerprint));
    }
    assert_eq!(decision.expires_at, story.after(1_000));
    story.then(revoke());
    assert!(story.state.decisions.is_empty());
    assert_eq!(story.apply(revoke()), Err(Rejection::DecisionNotFound));
}

#[test]
fn a_denial_is_remembered_too_and_one_that_has_expired_is_not_there() {
    let mut story = Scenario::with_calls(vec![gated("a")]);
    story.then(remembering(deny("a", None), Scope::Conversation, 1_000));
    assert!(!story.state.decisions.values().next().unwrap().approved);
    story.advance(1_000);
    assert_eq!(story.apply(revoke()), Err(Rejection::DecisionNotFound));
}

#[test]
fn one_for_the_agent_is_this_conversations_until_the_agent_has_it() {
    let mut story = Scenario::with_calls(vec![gated("a")]);
    story.then(remembering(approve("a", None), Scope::Agent, 1_000));
    assert_eq!(story.state.decisions.len(), 1);
    assert_eq!(story.wanted(), ["attempt 1 of a", "keeping of dec_1"]);
    assert_eq!(story.apply(revoke()), Err(Rejection::DecisionNotFound));
    story.then(Action::DecisionPublished(DecisionId::new("dec_1")));
    assert_eq!(story.wanted(), ["attempt 1 of a"]);
    assert!(story.state.decisions.is_empty());
}

#[test]
fn nothing_is_remembered_of_an_approval_that_the_gate_refuses() {
    let mut story = Scenario::with_calls(vec![gated("a")]);
    let refused = match approve_with("a", serde_json::json!({"n": 2})) {
        Action::Resolve(resolve) => {
            Action::Resolve(Resolve { gate: Some(verdict(Decision::Deny)), ..resolve })
        }
        other => other,
    };
    story.then(remembering(refused, Scope::Conversation, 1_000));
    assert!(story.state.decisions.is_empty());
}

#[test]
fn a_call_that_a_decision_lets_through_runs_as_who_made_it() {
    let mut story = Scenario::with_turn();
    let mut planned = server("a");
    let by = Some(Principal::new("ann"));
    planned.gate = Some(Verdict { by, ..verdict(Decision::Allow) });
    story.reply(vec![planned]).unwrap();
    let call = story.state.call(&crate::CallId::new("a")).unwrap();
    assert_eq!(call.principal, Principal::new("ann"));
}
