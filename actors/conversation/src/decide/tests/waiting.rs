//! What happens to a suspension while nobody answers: reminders, extensions, escalations, its expiry.

use std::sync::Arc;

use serde_json::{Value, json};

use super::remembered::remembering;
use super::scenario::*;
use super::voters::*;
use crate::approval::{ApprovalPolicy, ApproverGroup, VoteRefusal};
use crate::command::{Action, CallPlan, Extend, Extension, PlannedCall};
use crate::event::{Escalation, OnExpiry, WaitingRules};
use crate::identity::Role;
use crate::remembered_decision::Scope;
use crate::{CallId, Principal, Rejection};

pub(super) fn with_rules(mut planned: PlannedCall, rules: WaitingRules) -> PlannedCall {
    if let CallPlan::Execute { waiting_rules, .. } = &mut planned.plan {
        *waiting_rules = Some(Arc::new(rules));
    }
    planned
}

fn admins() -> ApproverGroup {
    ApproverGroup { roles: [Role::TenantAdmin].into(), groups: Default::default() }
}

/// Rules for random calls.
pub(super) fn some_rules(seed: u16) -> WaitingRules {
    let escalation = Escalation { after_ms: u64::from(seed % 90) * 1_000, by: admins() };
    WaitingRules {
        remind_ms: vec![u64::from(seed % 70) * 1_000 + 1, 10_000],
        on_expiry: match seed % 3 {
            0 => None,
            1 => Some(OnExpiry::Deny),
            _ => Some(OnExpiry::Result(json!("silence"))),
        },
        escalate: vec![escalation; usize::from(seed % 3)],
    }
}

fn reminding(ms: &[u64]) -> WaitingRules {
    WaitingRules { remind_ms: ms.to_vec(), ..WaitingRules::default() }
}

fn ending(on_expiry: OnExpiry) -> WaitingRules {
    WaitingRules { on_expiry: Some(on_expiry), ..WaitingRules::default() }
}

pub(super) fn extend(call: &str, ms: u64) -> Action {
    extend_by(call, Extension::For(ms))
}

fn extend_by(call: &str, extension: Extension) -> Action {
    let (call, by) = (CallId::new(call), Principal::new("ada"));
    Action::Extend(Extend { call, suspension: None, extension, by, identity: None })
}

fn invalid(applied: &Applied) -> Option<String> {
    match applied {
        Err(Rejection::Invalid { field, .. }) => Some(field.to_string()),
        _ => None,
    }
}

/// The times, in milliseconds from now, at which the alarm rings, and what happens then.
fn rings(scenario: &mut Scenario) -> Vec<(i64, Vec<&'static str>)> {
    let (begin, mut rings) = (scenario.at, Vec::new());
    while let Some(at) = scenario.state.alarm() {
        scenario.at = at;
        let ms = i64::try_from(at.duration_since(begin).as_millis()).unwrap();
        rings.push((ms, scenario.apply(Action::Wake).unwrap()));
    }
    rings
}

#[test]
fn a_suspension_is_told_to_expire_each_time_that_its_tool_names() {
    let planned = with_rules(human("a"), reminding(&[10_000, 30_000, 90_000]));
    let mut scenario = Scenario::with_calls(vec![planned]);
    let expiring = vec!["suspension_expiring"];
    assert_eq!(
        rings(&mut scenario),
        [(30_000, expiring.clone()), (50_000, expiring), (60_000, vec!["tool_result"])]
    );
    let told = scenario.journal.iter().find(|event| kind(event) == "suspension_expiring").unwrap();
    assert_eq!(
        serde_json::to_value(told).unwrap()["data"],
        json!({"call_id": "a", "suspension": 1, "expires_at": "2027-01-15T08:01:00.000Z"})
    );
}

#[test]
fn reminders_that_were_missed_together_are_one_and_an_alarm_that_rings_twice_tells_once() {
    let planned = with_rules(human("a"), reminding(&[10_000, 30_000]));
    let mut scenario = Scenario::with_calls(vec![planned]);
    scenario.advance(55_000);
    assert_eq!(scenario.apply(Action::Wake), Ok(vec!["suspension_expiring"]));
    assert_eq!(scenario.apply(Action::Wake), Ok(vec![]));
    assert_eq!(scenario.state.alarm(), Some(scenario.after(5_000)));
}

#[test]
fn an_extension_moves_the_expiry_and_the_reminders_before_it() {
    let planned = with_rules(human("a"), reminding(&[10_000]));
    let mut scenario = Scenario::with_calls(vec![planned]);
    scenario.advance(50_000).then(Action::Wake);
    assert_eq!(scenario.apply(extend("a", 60_000)), Ok(vec!["suspension_extended"]));
    assert_eq!(scenario.state.pending_calls()[0].expires_at, scenario.after(70_000));
    let expected = [(60_000, vec!["suspension_expiring"]), (70_000, vec!["tool_result"])];
    assert_eq!(rings(&mut scenario), expected);
}

#[test]
fn an_extension_and_the_expiry_race_and_one_of_them_wins() {
    let mut scenario = Scenario::with_calls(vec![human("a")]);
    scenario.advance(TIMEOUT_MS - 1).then(extend("a", 1_000)).advance(1);
    assert_eq!(scenario.apply(Action::Wake), Ok(vec![]));
    scenario.advance(1_000);
    assert!(not_open(scenario.apply(extend("a", 1_000))), "it is late before the alarm rings, too");
    scenario.then(Action::Wake);
    assert_eq!(scenario.error("a"), json!(["timed out: no response", "EXPIRED"]));
    assert!(not_open(scenario.apply(extend("a", 1_000))));
    assert!(not_open(scenario.apply(extend("b", 1_000))));
}

#[test]
fn a_suspension_waits_for_a_year_at_most_and_is_never_shortened() {
    const YEAR_MS: u64 = 365 * 24 * 60 * 60 * 1_000;
    let mut scenario = Scenario::with_calls(vec![human("a")]);
    let left = YEAR_MS - TIMEOUT_MS.unsigned_abs();
    assert_eq!(invalid(&scenario.apply(extend("a", left + 1))), Some("for".to_owned()));
    let earlier = Extension::Until(scenario.after(TIMEOUT_MS));
    assert_eq!(invalid(&scenario.apply(extend_by("a", earlier))), Some("until".to_owned()));
    scenario.then(extend("a", left));
    assert_eq!(invalid(&scenario.apply(extend("a", 1))), Some("for".to_owned()));
    let mut scenario = Scenario::with_calls(vec![human("a")]);
    let later = scenario.after(TIMEOUT_MS + 1);
    scenario.then(extend_by("a", Extension::Until(later)));
    assert_eq!(scenario.state.alarm(), Some(later));
}

#[test]
fn only_whom_the_policy_asks_may_let_an_approval_wait_longer() {
    let policy = ApprovalPolicy { roles: [Role::TenantAdmin].into(), ..ApprovalPolicy::default() };
    let mut scenario = Scenario::with_calls(vec![with_policy(gated("a"), policy)]);
    let Action::Extend(by_ada) = extend("a", 1_000) else { unreachable!() };
    let by_ada = Action::Extend(Extend { identity: Some(Arc::new(identity("ada"))), ..by_ada });
    assert_eq!(scenario.apply(by_ada), Err(Rejection::VoteRefused(VoteRefusal::Role)));
}

#[test]
fn an_expiry_ends_a_call_as_its_tool_says() {
    let result = || ending(OnExpiry::Result(json!({"seat": "any"})));
    let mut scenario = Scenario::with_calls(vec![
        with_rules(gated("a"), ending(OnExpiry::Deny)),
        with_rules(human("b"), result()),
        with_rules(client("c"), result()),
        with_rules(gated_client("d"), result()),
        with_rules(human("e"), ending(OnExpiry::Deny)),
    ]);
    scenario.advance(TIMEOUT_MS).then(Action::Wake);
    assert_eq!(scenario.error("a"), json!(["denied: nobody answered in time", "DENIED"]));
    for call in ["b", "c"] {
        let result: Value = serde_json::to_value(scenario.result(call).unwrap()).unwrap();
        assert_eq!(result["result"], json!({"seat": "any"}));
    }
    for call in ["d", "e"] {
        assert_eq!(scenario.error(call), json!(["timed out: no response", "EXPIRED"]));
    }
}

fn escalating(after_ms: u64) -> WaitingRules {
    WaitingRules {
        escalate: vec![Escalation { after_ms, by: admins() }],
        ..WaitingRules::default()
    }
}

/// An administrator, who is no approver.
fn as_admin(action: Action) -> Action {
    match voted_by("root", action) {
        Action::Resolve(mut resolve) => {
            let mut admin = identity("root");
            admin.subject.roles = [Role::TenantAdmin].into();
            resolve.identity = Some(Arc::new(admin));
            Action::Resolve(resolve)
        }
        other => other,
    }
}

#[test]
fn an_escalation_lets_others_approve_as_well_and_happens_once() {
    let planned = with_policy(gated("a"), ApprovalPolicy::default());
    let mut scenario = Scenario::with_calls(vec![with_rules(planned, escalating(20_000))]);
    let by_admin = || as_admin(approve("a", None));
    assert_eq!(scenario.apply(by_admin()), Err(Rejection::VoteRefused(VoteRefusal::Role)));
    scenario.advance(20_000);
    assert_eq!(scenario.apply(Action::Wake), Ok(vec!["suspension_escalated"]));
    assert_eq!(scenario.apply(Action::Wake), Ok(vec![]));
    let pending = serde_json::to_value(&scenario.state.pending_calls()[0]).unwrap();
    assert_eq!(pending["policy"]["escalated"], json!([{"roles": ["tenant-admin"]}]));
    assert_eq!(scenario.state.alarm(), Some(scenario.after(40_000)));
    assert_eq!(scenario.apply(by_admin()), Ok(vec!["resolution", "tool_started"]));
}

#[test]
fn those_who_might_approve_before_still_may_after_an_escalation() {
    let planned = with_policy(gated("a"), ApprovalPolicy::default());
    let mut scenario = Scenario::with_calls(vec![with_rules(planned, escalating(1))]);
    scenario.advance(1).then(Action::Wake);
    let answered = scenario.apply(voted_by("ada", approve("a", None)));
    assert_eq!(answered, Ok(vec!["resolution", "tool_started"]));
}

#[test]
fn a_question_to_a_person_does_not_escalate() {
    let mut scenario = Scenario::with_calls(vec![with_rules(human("a"), escalating(1))]);
    scenario.advance(1);
    assert_eq!(scenario.apply(Action::Wake), Ok(vec![]));
}

/// A gated call whose tool asked for the approval itself.
fn gated_by_tool(id: &str) -> PlannedCall {
    let mut planned = gated(id);
    planned.verdict.as_mut().unwrap().rule = "approval: requires_approval".to_owned();
    planned
}

#[test]
fn a_decision_that_is_remembered_answers_the_calls_that_wait_already() {
    let mut other = gated_by_tool("c");
    other.args = json!({"n": 2}).into();
    let mut scenario = Scenario::with_calls(vec![gated_by_tool("a"), gated_by_tool("b"), other]);
    let events = scenario.apply(remembering(approve("a", None), Scope::Conversation, 1_000));
    let expected =
        ["resolution", "decision_remembered", "tool_started", "resolution", "tool_started"];
    assert_eq!(events, Ok(expected.to_vec()));
    assert_eq!((scenario.phase("b"), scenario.phase("c")), ("running".into(), "suspended".into()));
    let resolution = serde_json::to_value(&scenario.journal[scenario.journal.len() - 2]).unwrap();
    assert_eq!(
        resolution["data"],
        json!({"call_id": "b", "kind": "approval", "suspension": 1, "by": "boss",
            "approved": true, "reason": "remembered: dec_1"})
    );
}

#[test]
fn a_remembered_denial_denies_the_calls_that_wait_already() {
    let mut scenario = Scenario::with_calls(vec![gated_by_tool("a"), gated_by_tool("b")]);
    scenario.then(remembering(deny("a", None), Scope::Conversation, 1_000));
    assert_eq!(scenario.error("b"), json!(["denied by approver: remembered: dec_1", "DENIED"]));
}

#[test]
fn a_remembered_decision_answers_no_call_that_a_rule_holds_back_or_that_needs_more_voters() {
    let two = with_policy(gated_by_tool("c"), two_of_three());
    let calls = vec![with_policy(gated_by_tool("a"), ApprovalPolicy::default()), gated("b"), two];
    let mut scenario = Scenario::with_calls(calls);
    let approved = voted_by("ada", approve("a", None));
    scenario.then(remembering(approved, Scope::Conversation, 1_000));
    assert_eq!((scenario.phase("a"), scenario.phase("b")), ("running".into(), "suspended".into()));
    // Nobody was authenticated who sent the message: there are no requesters, whom nobody may be.
    assert_eq!(scenario.phase("c"), "running");
}
