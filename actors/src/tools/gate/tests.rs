//! Tests of which rule decides about a call, and that nothing runs without a grant.

#![allow(clippy::unwrap_used)]

mod remembered;

use abide_conversation::approval::Approver;
use abide_conversation::event::Executor;
use abide_conversation::identity::Identity;
use abide_conversation::parent::Parent;
use abide_conversation::remembered_decision::Match;
use abide_conversation::state::CallPhase;
use abide_conversation::{Attempt, CallArgs, CallId, ConversationId, DecisionId, Principal};
use serde_json::json;

use super::*;
use crate::assigns::Assigns;
use crate::tools::Toolbox;
use crate::tools::fixtures::{parse, scope, source};
use crate::tools::mcp::Listings;

/// An agent with every kind of tool, and these permissions.
fn agent(permissions: Value) -> Arc<Definition> {
    let run = json!({"http": {"url": "http://127.0.0.1:9/"}});
    let mut source = source(json!([
        {"builtin": "all"},
        {"name": "send", "run": run, "approval": "requires_approval"},
        {"name": "vault", "run": run, "approval": "requires_approval", "strict": true},
        {"name": "look", "run": run, "read_only": true},
        {"name": "pay", "run": run, "approval": {"when": "args.amount > 100"}},
        {"name": "free", "run": run},
        {"name": "kid", "run": {"agent": "kid"}},
        {"name": "person", "executor": "human"},
        {"name": "page", "executor": "client", "approval": "requires_approval"},
        {"name": "hosted", "executor": "provider"},
        {"name": "careful", "run": {"builtin": "write"}, "approval": "requires_approval"},
    ]));
    source["permissions"] = permissions;
    Arc::new(parse(source).unwrap().definition)
}

fn gate(permissions: Value) -> Gate {
    Gate::new(agent(permissions), &State::default())
}

fn verdict_of(gate: &Gate, tool: &str, args: Value) -> String {
    let toolbox = Toolbox::new(gate.definition.clone(), &Listings::new(), Arc::from([]));
    let verdict = gate.decide(toolbox.tool(tool).unwrap(), &args, &scope());
    format!("{:?}: {}", verdict.decision, verdict.rule)
}

/// The grant of a call that was decided in the phase `bypass_permissions`.
fn bypass_grant() -> Grant {
    Grant { phase: PermissionPhase::BypassPermissions, ..Grant::for_test("ask", json!({})) }
}

fn child_of(ceiling: Ceiling) -> State {
    let parent = Parent {
        budget: Default::default(),
        conversation_id: ConversationId::new("boss"),
        call_id: CallId::new("ask"),
        root_conversation_id: ConversationId::new("boss"),
        depth: 1,
        ceiling,
        storages: Default::default(),
        requesters: Default::default(),
        model: None,
    };
    State { parent: Some(parent), ..State::default() }
}

#[test]
fn the_first_decisive_rule_wins() {
    let lists = json!({"disallowed_tools": ["send", "free"], "allowed_tools": ["free", "look"]});
    for (permissions, tool, expected) in [
        (lists.clone(), "free", "Deny: disallowed_tools"),
        (lists.clone(), "pay", "Deny: allowed_tools"),
        (lists, "look", "Allow: approval: auto"),
        (json!({"phase": "plan"}), "send", "Deny: phase: plan"),
        (json!({"phase": "plan"}), "look", "Allow: approval: auto"),
        (json!({"phase": "plan"}), "person", "Deny: phase: plan"),
        (json!({}), "send", "Ask: approval: requires_approval"),
        (json!({}), "free", "Allow: approval: auto"),
        (json!({"phase": "trusted"}), "send", "Allow: phase: trusted"),
        (json!({"phase": "bypass_permissions"}), "page", "Allow: phase: bypass_permissions"),
        (json!({"phase": "accept_edits"}), "careful", "Allow: phase: accept_edits"),
        (json!({"phase": "accept_edits"}), "send", "Ask: approval: requires_approval"),
        (json!({"phase": "default"}), "careful", "Ask: approval: requires_approval"),
        (
            json!({"phase": "bypass_permissions", "disallowed_tools": ["bash"]}),
            "bash",
            "Deny: disallowed_tools",
        ),
    ] {
        assert_eq!(
            verdict_of(&gate(permissions.clone()), tool, json!({})),
            expected,
            "{permissions}"
        );
    }
    let gate = gate(json!({}));
    assert_eq!(verdict_of(&gate, "pay", json!({"amount": 101})), "Ask: approval: when");
    assert_eq!(verdict_of(&gate, "pay", json!({"amount": 1})), "Allow: approval: when");
    assert_eq!(verdict_of(&gate, "pay", json!({})), "Ask: approval: when", "a gate fails closed");
}

#[test]
fn middleware_gets_no_arguments_past_an_approval_that_nobody_gave() {
    let verdict_of = |tool: &str, args: Value, approved: bool, permissions: Value| {
        let gate = gate(permissions);
        let toolbox = Toolbox::new(gate.definition.clone(), &Listings::new(), Arc::from([]));
        let grant = Grant { approved, ..Grant::for_test(tool, json!({})) };
        let tool = toolbox.tool(tool).unwrap();
        let verdict = gate.recheck_changed(tool, &args, &grant, &scope());
        format!("{:?}: {}", verdict.decision, verdict.rule)
    };
    let refused = "Deny: middleware: needs an approval";
    let exit = json!({"action": "exit"});
    for (tool, args, approved, permissions, expected) in [
        ("pay", json!({"amount": 500}), false, json!({}), refused),
        ("pay", json!({"amount": 5}), false, json!({}), "Allow: middleware"),
        ("pay", json!({"amount": 500}), true, json!({}), "Allow: middleware"),
        ("pay", json!({"amount": 500}), false, json!({"phase": "trusted"}), "Allow: middleware"),
        ("plan_mode", exit, false, json!({"phase": "plan"}), refused),
    ] {
        assert_eq!(
            verdict_of(tool, args.clone(), approved, permissions),
            expected,
            "{tool} {args}"
        );
    }
}

#[test]
fn the_same_arguments_in_another_order_have_the_same_exact_fingerprint() {
    let (one, other) = (json!({"a": 1, "b": 2}), json!({"b": 2, "a": 1}));
    assert_eq!(exact_fingerprint("send", &one), exact_fingerprint("send", &other));
    assert_ne!(exact_fingerprint("send", &one), exact_fingerprint("send", &json!({"a": 1})));
}

#[test]
fn a_plan_lets_through_what_the_table_says_and_nothing_else() {
    let gate = gate(json!({"phase": "plan"}));
    for builtin in Builtin::ALL {
        let reads = ["read", "glob", "grep", "web_fetch", "plan_mode", "spawn_agent"];
        let expected = if reads.contains(&builtin.name()) {
            "Allow: approval: auto"
        } else {
            "Deny: phase: plan"
        };
        assert_eq!(verdict_of(&gate, builtin.name(), json!({})), expected, "{}", builtin.name());
    }
}

#[test]
fn accept_edits_lets_all_through_but_commands() {
    let names: Vec<_> =
        Builtin::ALL.into_iter().filter(|it| !it.is_accepted_with_edits()).collect();
    assert_eq!(names, [Builtin::Bash]);
}

#[test]
fn a_plan_that_the_definition_started_is_exited_only_with_an_approval() {
    let exit = json!({"action": "exit"});
    let began = gate(json!({"phase": "plan"}));
    assert_eq!(verdict_of(&began, "plan_mode", exit.clone()), "Ask: phase: plan");
    assert_eq!(began.base_phase(), PermissionPhase::Default);
    let definition = agent(json!({"phase": "trusted"}));
    let planning = State { planning_override: Some(true), ..State::default() };
    let entered = Gate::new(definition, &planning);
    assert_eq!(entered.phase(), PermissionPhase::Plan);
    assert_eq!(entered.base_phase(), PermissionPhase::Trusted);
    assert_eq!(verdict_of(&entered, "free", json!({})), "Deny: phase: plan");
    assert_eq!(verdict_of(&entered, "plan_mode", exit.clone()), "Allow: approval: auto");
    let left = State { planning_override: Some(false), ..State::default() };
    let left = Gate::new(agent(json!({"phase": "plan"})), &left);
    assert_eq!(left.phase(), PermissionPhase::Default);
    let again = State { planning_override: Some(true), ..State::default() };
    let again = Gate::new(agent(json!({"phase": "plan"})), &again);
    assert_eq!(verdict_of(&again, "plan_mode", exit), "Ask: phase: plan");
}

#[test]
fn planning_begins_with_the_next_call_of_the_same_message() {
    let mut gate = gate(json!({}));
    let toolbox = Toolbox::new(gate.definition.clone(), &Listings::new(), Arc::from([]));
    let tool = toolbox.tool("plan_mode").unwrap();
    for action in ["exit", "enter", "exit"] {
        let args = json!({"action": action});
        let verdict = gate.decide(tool, &args, &scope());
        gate.advance(tool, &args, &verdict);
    }
    assert_eq!(verdict_of(&gate, "free", json!({})), "Deny: phase: plan");
}

#[test]
fn a_child_is_never_allowed_more_than_its_parent() {
    let permissions = json!({"phase": "accept_edits", "disallowed_tools": ["bash"],
        "allowed_tools": ["bash", "free", "send", "careful"],
        "allowed_hosts": ["a", "b"], "network": true});
    let tools = BTreeSet::from(["free".to_owned(), "careful".to_owned(), "page".to_owned()]);
    let ceiling = gate(permissions).ceiling(&bypass_grant(), Some(tools));
    let open = json!({"phase": "bypass_permissions", "allowed_hosts": ["b", "c"], "network": true});
    let child = Gate::new(agent(open), &child_of(ceiling.clone()));
    assert_eq!(child.phase(), PermissionPhase::AcceptEdits);
    assert_eq!(verdict_of(&child, "free", json!({})), "Allow: approval: auto");
    assert_eq!(verdict_of(&child, "careful", json!({})), "Allow: phase: accept_edits");
    for refused in ["send", "page", "look"] {
        assert_eq!(verdict_of(&child, refused, json!({})), "Deny: allowed_tools", "{refused}");
    }
    assert_eq!(verdict_of(&child, "bash", json!({})), "Deny: disallowed_tools");
    assert_eq!(child.allowed_hosts(), BTreeSet::from(["b".to_owned()]));
    assert_eq!(child.network(), Network::All);
    let grandchild =
        Gate::new(agent(json!({"network": true})), &child_of(child.ceiling(&bypass_grant(), None)));
    assert_eq!(grandchild.phase(), PermissionPhase::Default);
    assert_eq!(verdict_of(&grandchild, "send", json!({})), "Deny: allowed_tools");
    let strict = Gate::new(agent(json!({})), &child_of(Ceiling { network: false, ..ceiling }));
    assert_eq!(strict.network(), Network::None);
}

#[test]
fn a_child_of_a_planning_parent_cannot_leave_the_plan() {
    let ceiling = gate(json!({"phase": "plan"})).ceiling(&bypass_grant(), None);
    let child = Gate::new(agent(json!({"phase": "trusted"})), &child_of(ceiling));
    assert_eq!(verdict_of(&child, "plan_mode", json!({"action": "exit"})), "Deny: phase: plan");
    assert_eq!(verdict_of(&child, "free", json!({})), "Deny: phase: plan");
}

#[test]
fn edited_arguments_meet_the_lists_and_the_phase_but_no_second_approval() {
    let judge = |gate: &Gate| {
        let toolbox = Toolbox::new(gate.definition.clone(), &Listings::new(), Arc::from([]));
        gate.recheck_edited(toolbox.tool("send").unwrap(), &json!({"n": 2})).decision
    };
    assert_eq!(judge(&gate(json!({}))), Decision::Allow);
    assert_eq!(judge(&gate(json!({"disallowed_tools": ["send"]}))), Decision::Deny);
    assert_eq!(judge(&gate(json!({"phase": "plan"}))), Decision::Deny);
}

#[test]
fn a_model_is_not_offered_what_a_list_refuses_nor_a_provider_what_may_not_run_now() {
    let offered = |permissions: Value| {
        let gate = gate(permissions);
        let toolbox = Toolbox::new(gate.definition.clone(), &Listings::new(), Arc::from([]));
        let specs = toolbox.specs(&gate);
        let provided = specs.iter().any(|spec| spec.executor == Executor::Provider);
        (provided, specs.iter().any(|spec| spec.name == "send"))
    };
    assert_eq!(offered(json!({})), (true, true));
    assert_eq!(offered(json!({"disallowed_tools": ["hosted", "send"]})), (false, false));
    assert_eq!(offered(json!({"phase": "plan"})), (false, true));
}

fn verdict_on(decision: Decision, tool: &str, args: &Value) -> Verdict {
    let (rule, phase) = ("approval: auto".to_owned(), PermissionPhase::Default);
    Verdict {
        decision,
        rule,
        phase,
        fingerprint: fingerprint(tool, args),
        by: None,
        approvals: Vec::new(),
    }
}

fn a_call(verdict: Option<Verdict>, args: Value, approved: bool) -> Call {
    let phase = CallPhase::Requested;
    serde_json::from_value(json!({
        "id": "a", "tool": "send", "args": args, "executor": "server", "intent": "compute",
        "message": "", "timeout_ms": 0, "grace_ms": null, "on_interrupt": "fail",
        "principal": Principal::new("ann"), "suspensions": 0, "gate": verdict,
        "approved": approved, "phase": phase,
    }))
    .unwrap()
}

#[test]
fn a_grant_is_for_exactly_the_arguments_that_were_judged() {
    let args = json!({"to": "a"});
    let verdict = |decision| Some(verdict_on(decision, "send", &args));
    let is_granted = |call: &Call| Grant::of_call(call).is_some();
    assert!(is_granted(&a_call(verdict(Decision::Allow), args.clone(), false)));
    assert!(!is_granted(&a_call(verdict(Decision::Allow), json!({"to": "b"}), false)), "swapped");
    assert!(
        !is_granted(&a_call(verdict(Decision::Ask), args.clone(), false)),
        "nobody approved it"
    );
    assert!(is_granted(&a_call(verdict(Decision::Ask), args.clone(), true)));
    assert!(!is_granted(&a_call(verdict(Decision::Deny), args.clone(), true)));
    assert!(!is_granted(&a_call(None, args.clone(), true)), "the gate never decided");
    let other = Some(verdict_on(Decision::Allow, "pay", &args));
    assert!(!is_granted(&a_call(other, args.clone(), true)), "the verdict is about another tool");
}

#[test]
fn a_users_dispatch_needs_a_grant_too() {
    let input = json!({"to": "a"});
    let run = |verdict: Option<Verdict>, input: Value| RunningDispatch {
        tool: "send".to_owned(),
        input: input.into(),
        principal: Principal::new("ann"),
        identity: None,
        revision: abide_conversation::Revision::new("r"),
        attempt: Attempt::FIRST,
        on_interrupt: Default::default(),
        requests: Default::default(),
        verdict,
        child: None,
        delegated_until: None,
        retry_at: None,
        failed_attempts: 0,
    };
    let ask = Some(verdict_on(Decision::Ask, "send", &input));
    assert!(Grant::of_dispatch(&run(ask.clone(), input.clone())).is_some());
    assert!(Grant::of_dispatch(&run(ask, json!({"to": "b"}))).is_none());
    let deny = Some(verdict_on(Decision::Deny, "send", &input));
    assert!(Grant::of_dispatch(&run(deny, input.clone())).is_none());
    assert!(Grant::of_dispatch(&run(None, input)).is_none());
}

#[test]
fn every_builtin_is_known_by_its_name_and_brings_its_arguments() {
    let definition = agent(json!({}));
    for builtin in Builtin::ALL {
        assert_eq!(Builtin::from_name(builtin.name()), Some(builtin));
        let tool = definition.tools.iter().find(|tool| tool.name == builtin.name()).unwrap();
        assert!(!tool.description.is_empty() && tool.target().is_some());
        assert_eq!(tool.check_args(&json!({})), Ok(()), "{}", builtin.name());
    }
    let kid = definition.tools.iter().find(|tool| tool.name == "kid").unwrap();
    assert!(kid.is_sub_agent());
}

#[test]
fn a_list_that_names_a_built_in_tool_means_it_under_any_name() {
    for (list, expected) in [
        (json!({"disallowed_tools": ["write"]}), "Deny: disallowed_tools"),
        (json!({"allowed_tools": ["write"]}), "Ask: approval: requires_approval"),
    ] {
        assert_eq!(verdict_of(&gate(list), "careful", json!({})), expected);
    }
}

#[test]
fn a_child_has_the_phase_in_which_its_call_was_decided() {
    let planning = State { planning_override: Some(true), ..State::default() };
    let judged_in_plan = Gate::new(agent(json!({"phase": "trusted"})), &planning);
    let toolbox = Toolbox::new(judged_in_plan.definition.clone(), &Listings::new(), Arc::from([]));
    let kid = toolbox.tool("spawn_agent").unwrap();
    let verdict = judged_in_plan.decide(kid, &json!({}), &scope());
    let call = a_call(Some(verdict), json!({}), false);
    let grant = Grant::of_call(&Call { tool: "spawn_agent".to_owned(), ..call }).unwrap();
    let later = gate(json!({"phase": "trusted"}));
    assert_eq!(later.ceiling(&grant, None).phase, PermissionPhase::Plan);
}

#[test]
fn leave_for_other_arguments_needs_a_verdict_about_them_and_never_widens() {
    let agent = agent(json!({"phase": "trusted"}));
    let toolbox = Toolbox::new(agent.clone(), &Listings::new(), Arc::from([]));
    let (free, args) = (toolbox.tool("free").unwrap(), CallArgs::from(json!({"x": 2})));
    let grant = Grant::for_test("free", json!({"x": 1}));
    let gate = Gate::new(agent, &State::default());
    let verdict = gate.recheck_changed(free, &args, &grant, &scope());
    assert_eq!((verdict.rule.as_str(), verdict.phase), ("middleware", PermissionPhase::Trusted));
    let changed = grant.for_changed_args(&verdict, &args).unwrap();
    assert_eq!((changed.args(), changed.phase), (&*args, PermissionPhase::Default));
    assert_eq!(
        grant.for_changed_args(&verdict, &json!({"x": 3}).into()),
        None,
        "the verdict is about other arguments"
    );
    assert_eq!(
        Grant::for_test("look", json!({})).for_changed_args(&verdict, &args),
        None,
        "and another tool"
    );
    for decision in [Decision::Ask, Decision::Deny] {
        assert_eq!(grant.for_changed_args(&Verdict { decision, ..verdict.clone() }, &args), None);
    }
}

/// Whoever writes the message must not switch the approval off that the conversation demands.
#[test]
fn a_message_does_not_change_what_a_condition_reads_of_the_conversation() {
    let run = json!({"http": {"url": "http://127.0.0.1:9/"}});
    let tool =
        |name: &str, when: &str| json!({"name": name, "run": run, "approval": {"when": when}});
    let definition = parse(source(json!([
        tool("own", "conversation.assigns.trusted != true"),
        tool("sent", "message.assigns.trusted != true"),
    ])));
    let gate = Gate::new(Arc::new(definition.unwrap().definition), &State::default());
    let map = |value: Value| value.as_object().cloned().unwrap_or_default();
    let (no, yes) = (map(json!({"trusted": false})), map(json!({"trusted": true})));
    let decide = |name: &str, assigns: Assigns| {
        let tool = gate.definition.tools.iter().find(|tool| tool.name == name).unwrap();
        let scope = CallScope { assigns: Arc::new(assigns), ..scope() };
        gate.decide(tool, &json!({}), &scope).decision
    };
    assert_eq!(decide("own", Assigns::new(&no, &no, &yes)), Decision::Ask);
    assert_eq!(decide("own", Assigns::new(&no, &map(json!({})), &yes)), Decision::Ask);
    assert_eq!(decide("own", Assigns::new(&no, &yes, &no)), Decision::Allow);
    assert_eq!(decide("sent", Assigns::new(&no, &no, &yes)), Decision::Allow);
}

#[test]
fn a_condition_reads_who_asks_and_whose_the_conversation_is() {
    let run = json!({"http": {"url": "http://127.0.0.1:9/"}});
    let decide = |when: &str, scope: &CallScope| {
        let tool = json!({"name": "t", "run": run, "approval": {"when": when}});
        let definition = Arc::new(parse(source(json!([tool]))).unwrap().definition);
        let gate = Gate::new(definition.clone(), &State::default());
        gate.decide(&definition.tools[0], &json!({}), scope).decision
    };
    let anybody = scope();
    let somebody = CallScope {
        identity: Some(Arc::new(identity("ann"))),
        owner: Some("ann".to_owned()),
        ..scope()
    };
    for (when, of_anybody, of_somebody) in [
        ("principal != 'ann'", Decision::Allow, Decision::Allow),
        ("principal.subject != 'ann'", Decision::Allow, Decision::Allow),
        ("!('approver' in principal.roles)", Decision::Ask, Decision::Allow),
        ("!principal.groups.exists(group, group == 'finance')", Decision::Ask, Decision::Allow),
        ("principal.tenant != 'default'", Decision::Allow, Decision::Ask),
        ("conversation.owner != 'ann'", Decision::Ask, Decision::Allow),
        // The subject alone has no members: such a condition fails.
        ("principal == 'ann' && principal.subject == 'x'", Decision::Ask, Decision::Ask),
    ] {
        assert_eq!(decide(when, &anybody), of_anybody, "{when}");
        assert_eq!(decide(when, &somebody), of_somebody, "{when}");
    }
}

fn identity(sub: &str) -> Identity {
    let json = json!({"tenant": "acme", "iss": "https://login.example.com/", "sub": sub,
        "roles": ["approver"], "groups": ["finance"], "auth": "jwt"});
    serde_json::from_value(json).unwrap()
}
