//! Tests of what remembered decisions answer, and for which calls.

use super::*;

fn remembered_decision(
    id: &str,
    tool: &str,
    approved: bool,
    args: Option<Value>,
) -> RememberedDecision {
    let definition = agent(json!({}));
    let tool_digest =
        definition.tools.iter().find(|it| it.name == tool).unwrap().action_fingerprint();
    RememberedDecision {
        id: DecisionId::new(id),
        tool: tool.to_owned(),
        tool_digest,
        approved,
        matching: if args.is_some() { Match::Exact } else { Match::Tool },
        fingerprint: exact_fingerprint(tool, &args.unwrap_or_default()),
        by: Principal::new("ann"),
        voters: Vec::new(),
        expires_at: Timestamp::from_second(1_000).unwrap(),
    }
}

fn gate_with(permissions: Value, decisions: Vec<RememberedDecision>, second: i64) -> Gate {
    let now = Timestamp::from_second(second).unwrap();
    gate(permissions).with_remembered(&State::default(), decisions, now)
}

#[test]
fn a_remembered_decision_answers_for_the_tools_own_approval_while_it_holds() {
    let any = || vec![remembered_decision("d1", "send", true, None)];
    let one = || vec![remembered_decision("d2", "pay", true, Some(json!({"amount": 101})))];
    let (none, asks) = (json!({}), "Ask: approval: requires_approval");
    for (gate, tool, args, expected) in [
        (gate_with(none.clone(), any(), 999), "send", json!({"a": 1}), "Allow: remembered: d1"),
        (gate_with(none.clone(), any(), 1_000), "send", json!({}), asks),
        (gate_with(none.clone(), any(), 0), "page", json!({}), asks),
        (gate_with(none.clone(), one(), 0), "pay", json!({"amount": 101}), "Allow: remembered: d2"),
        (gate_with(none.clone(), one(), 0), "pay", json!({"amount": 102}), "Ask: approval: when"),
        (gate_with(none, one(), 0), "pay", json!({"amount": 1}), "Allow: approval: when"),
    ] {
        assert_eq!(verdict_of(&gate, tool, args), expected);
    }
}

#[test]
fn a_tool_that_does_something_else_is_not_the_one_that_was_decided_about() {
    let decision = remembered_decision("d1", "send", true, None);
    let other = RememberedDecision { tool_digest: "elsewhere".to_owned(), ..decision.clone() };
    assert_eq!(
        verdict_of(&gate_with(json!({}), vec![other], 0), "send", json!({})),
        "Ask: approval: requires_approval"
    );
    assert_eq!(
        verdict_of(&gate_with(json!({}), vec![decision], 0), "send", json!({})),
        "Allow: remembered: d1"
    );
}

#[test]
fn a_decision_does_not_hold_for_a_tool_that_asks_by_other_rules() {
    let tool = |approval: Value| {
        let run = json!({"http": {"url": "http://127.0.0.1:9/"}});
        let source = source(json!([{"name": "send", "run": run, "approval": approval}]));
        let definition = parse(source).unwrap().definition;
        definition.tools.iter().find(|it| it.name == "send").unwrap().action_fingerprint()
    };
    let decided_for = tool(json!({"when": "args.amount > 100"}));
    assert_eq!(decided_for, tool(json!({"when": "args.amount > 100"})));
    for tightened in [json!({"when": "args.amount > 10"}), json!("requires_approval")] {
        assert_ne!(decided_for, tool(tightened.clone()), "{tightened}");
    }
}

#[test]
fn a_remembered_denial_wins_and_an_approval_opens_neither_lists_nor_phase_nor_what_is_strict() {
    let both = vec![
        remembered_decision("d1", "send", true, None),
        remembered_decision("d2", "send", false, None),
    ];
    let denied = gate_with(json!({}), both, 0);
    assert_eq!(verdict_of(&denied, "send", json!({})), "Deny: remembered: d2");
    let yes = |tool: &str| vec![remembered_decision("d1", tool, true, None)];
    for (permissions, tool, args, expected) in [
        (json!({"disallowed_tools": ["send"]}), "send", json!({}), "Deny: disallowed_tools"),
        (json!({"phase": "plan"}), "send", json!({}), "Deny: phase: plan"),
        (json!({"phase": "plan"}), "plan_mode", json!({"action": "exit"}), "Ask: phase: plan"),
        (json!({}), "vault", json!({}), "Ask: approval: requires_approval"),
    ] {
        assert_eq!(verdict_of(&gate_with(permissions, yes(tool), 0), tool, args), expected);
    }
}

#[test]
fn a_remembered_decision_approves_no_call_of_its_voters_and_none_that_needs_more_of_them() {
    let voters = |subs: &[&str]| -> Vec<Approver> {
        let voter = |sub: &&str| {
            json!({"iss": "https://login.example.com/", "sub": sub,
            "at": "2026-11-23T10:00:00Z"})
        };
        let voters: Vec<Value> = subs.iter().map(voter).collect();
        serde_json::from_value(voters.into()).unwrap()
    };
    let decided = |approved: bool, subs: &[&str]| {
        let voters = voters(subs);
        RememberedDecision { voters, ..remembered_decision("d1", "send", approved, None) }
    };
    let ann = CallScope { identity: Some(Arc::new(identity("ann"))), ..scope() };
    for (decision, scope, expected) in [
        (decided(true, &["bob"]), &ann, Decision::Allow),
        (decided(true, &["bob", "ann"]), &ann, Decision::Ask),
        (decided(true, &[]), &ann, Decision::Ask),
        (decided(true, &[]), &scope(), Decision::Allow),
        (decided(false, &["ann"]), &ann, Decision::Deny),
    ] {
        let gate = gate_with(json!({}), vec![decision.clone()], 0);
        let toolbox = Toolbox::new(gate.definition.clone(), &Listings::new(), Arc::from([]));
        let verdict = gate.decide(toolbox.tool("send").unwrap(), &json!({}), scope);
        assert_eq!(verdict.decision, expected, "{decision:?}");
        let is_remembered = verdict.decision == Decision::Allow;
        assert_eq!(verdict.approvals, if is_remembered { decision.voters } else { Vec::new() });
    }
}
