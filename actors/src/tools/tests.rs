//! Tests of how calls are planned.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use abide_conversation::State;
use abide_conversation::command::{CallPlan, PlannedCall};
use abide_conversation::event::{CallKind, Executor, OnInterrupt};
use abide_conversation::message::{ErrorType, Outcome};
use abide_conversation::permission::Decision;
use serde_json::{Value, json};

use super::fixtures::{definition, scope};
use super::{DeclaredTools, Gate, Toolbox};
use crate::agent::client_tools;
use crate::model::ModelToolCall;
use crate::tools::mcp::Listings;

fn toolbox() -> Toolbox {
    let run = json!({"http": {"url": "http://127.0.0.1:9/"}});
    let definition = definition(json!([
        {"name": "send", "run": run, "approval": {"when": "args.amount > 100"}, "timeout": "10m",
         "confirmation_message": "{{principal}}: send {{args.amount}} to {{args.to}}?",
         "on_interrupt": "fail", "aliases": ["mail", "search"],
         "parameters": {"type": "object", "required": ["to"], "properties": {
             "to": {"type": "string"}, "amount": {"type": "number", "default": 500}}}},
        {"name": "pay", "run": run, "approval": "requires_approval"},
        {"name": "search", "run": run, "description": "Finds."},
        {"name": "secret", "run": run, "audience": "user", "aliases": ["s"]},
        {"name": "both", "run": run, "audience": "all"},
        {"name": "ask", "executor": "human", "description": "Asks a person.",
         "result_schema": {"type": "integer"}},
        {"name": "page", "executor": "client", "approval": "requires_approval",
         "confirmation_message": "Show {{args.what}}"},
        {"name": "toast", "executor": "client", "requires_response": false,
         "default_result": {"shown": true}},
        {"name": "horn", "executor": "client", "requires_response": false,
         "approval": {"when": "args.loud"}},
        {"name": "web", "executor": "provider", "provider_options": {"openai": {"type": "w"}}},
    ]));
    let own = json!([{"name": "mine", "executor": "client"}, {"name": "pay", "executor": "client"},
        {"name": "theirs", "executor": "human"}]);
    Toolbox::new(definition, &Listings::new(), client_tools(own.as_array().unwrap()).unwrap())
}

fn gate(toolbox: &Toolbox) -> Gate {
    Gate::new(toolbox.definition().clone(), &State::default())
}

fn plan_of(name: &str, args: Result<Value, String>, provided: Option<Value>) -> PlannedCall {
    let (id, name) = ("call_1".to_owned(), name.to_owned());
    let toolbox = toolbox();
    let mut gate = gate(&toolbox);
    toolbox.plan(&ModelToolCall { id, name, args, provider_result: provided }, &scope(), &mut gate)
}

fn plan(name: &str, args: Value) -> PlannedCall {
    plan_of(name, Ok(args), None)
}

#[track_caller]
fn refusal(planned: &PlannedCall) -> (&str, ErrorType) {
    match &planned.plan {
        CallPlan::Complete { outcome: Outcome::Err(message, kind), .. } => (message, *kind),
        plan => unreachable!("{plan:?}"),
    }
}

#[track_caller]
fn gate_and_message(planned: &PlannedCall) -> (Option<&str>, &str) {
    match &planned.plan {
        CallPlan::Execute { gate, message, .. } => {
            (gate.as_ref().map(|question| question.message.as_str()), message)
        }
        plan => unreachable!("{plan:?}"),
    }
}

#[test]
fn the_model_is_told_of_every_tool_that_is_for_it_in_order() {
    let toolbox = toolbox();
    let specs = toolbox.specs(&gate(&toolbox));
    let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    let expected =
        ["send", "pay", "search", "both", "ask", "page", "toast", "horn", "web", "mine", "theirs"];
    assert_eq!(names, expected);
    assert_eq!(specs[2].description, "Finds.");
    assert_eq!(specs[2].parameters, json!({"type": "object", "properties": {}}).into());
    assert_eq!((specs[2].executor, specs[8].executor), (Executor::Server, Executor::Provider));
    assert_eq!(specs[8].provider_options["openai"], json!({"type": "w"}));
}

#[test]
fn a_tool_that_is_unknown_or_hidden_or_named_by_alias_is_not_found() {
    for name in ["nothing", "secret", "s", "mail", ""] {
        let planned = plan(name, json!({"a": 1}));
        let expected = format!("unknown tool: {name}");
        assert_eq!(refusal(&planned), (expected.as_str(), ErrorType::ToolNotFound));
        assert_eq!(planned.args, json!({"a": 1}));
    }
    let planned = plan(&"ü".repeat(1_000_000), json!("x".repeat(10_000_000)));
    assert!(planned.tool.len() <= 64 && refusal(&planned).0.len() < 100);
    assert!(planned.args.as_str().unwrap().len() <= 1_000);
}

#[test]
fn arguments_that_are_not_json_or_break_the_schema_are_refused() {
    let broken = plan_of("send", Err("{\"to\":".to_owned()), None);
    assert_eq!(refusal(&broken), ("invalid tool arguments: not JSON", ErrorType::ValidationError));
    assert_eq!(broken.args, json!("{\"to\":"));
    for (args, part) in [
        (json!([1]), "must be an object"),
        (json!({"amount": 1}), "\"to\" is a required property"),
        (json!({"to": 1, "amount": "x"}), "to: "),
        (json!({"to": 1, "amount": "x"}), "amount: "),
        (json!({"to": "x".repeat(1024 * 1024)}), "at most 1 MB"),
    ] {
        let planned = plan("send", args);
        let (message, kind) = refusal(&planned);
        assert!(message.starts_with("invalid tool arguments: ") && message.contains(part));
        assert_eq!(kind, ErrorType::ValidationError);
        assert!(planned.args.to_string().len() < 17 * 1024);
    }
    let number = plan_of("send", Err("{\"to\":12345678901234567890123}".to_owned()), None);
    let expected = "invalid tool arguments: to: must fit into 64 bits";
    assert_eq!(refusal(&number), (expected, ErrorType::ValidationError));
    let megabytes = plan_of("send", Err("ä".repeat(5_000_000)), None);
    assert!(megabytes.args.as_str().unwrap().len() <= 1_000);
}

#[test]
fn no_arguments_at_all_are_an_empty_object() {
    let planned = plan_of("search", Err("  ".to_owned()), None);
    assert_eq!(planned.args, json!({}));
    assert_eq!(gate_and_message(&planned), (None, ""));
}

#[test]
fn a_gate_asks_when_its_condition_says_so_with_defaults_filled_in() {
    let free = plan("send", json!({"to": "bob", "amount": 100}));
    assert_eq!(gate_and_message(&free), (None, ""));
    let gated = plan("send", json!({"to": "bob"}));
    assert_eq!(gate_and_message(&gated).0, Some("ann: send 500 to bob?"));
    assert_eq!(gated.args, json!({"to": "bob"}), "the journal has the model's own arguments");
    assert_eq!(gate_and_message(&plan("pay", json!({}))).0, Some("Allow pay?"));
}

#[test]
fn a_plan_carries_what_later_phases_need() {
    let CallPlan::Execute { kind, timeout_ms, .. } = plan("send", json!({"to": "b"})).plan else {
        unreachable!()
    };
    let on_interrupt = OnInterrupt::Fail;
    assert_eq!(kind, CallKind::Server { on_interrupt, child: None, lane: None, answerers: None });
    assert_eq!(timeout_ms, 600_000);
    let CallPlan::Execute { kind, timeout_ms, .. } = plan("mine", json!({})).plan else {
        unreachable!()
    };
    assert_eq!(kind, CallKind::Client { grace_ms: Some(5_000), default_result: None });
    assert_eq!(timeout_ms, 300_000);
}

#[test]
fn people_and_pages_are_shown_the_message_or_the_description() {
    assert_eq!(gate_and_message(&plan("ask", json!({}))), (None, "Asks a person."));
    let page = plan("page", json!({"what": "a map"}));
    assert_eq!(gate_and_message(&page), (Some("Show a map"), "Show a map"));
    assert_eq!(gate_and_message(&plan("page", json!({}))), (Some("Allow page?"), ""));
}

#[test]
fn provider_and_answered_client_calls_end_at_once() {
    let outcome = |planned: PlannedCall| match planned.plan {
        CallPlan::Complete { outcome, executor, .. } => (outcome, executor),
        plan => unreachable!("{plan:?}"),
    };
    let toast = outcome(plan("toast", json!({})));
    assert_eq!(toast, (Outcome::Ok(json!({"shown": true})), Executor::Client));
    let web = outcome(plan_of("web", Ok(json!({})), Some(json!([1]))));
    assert_eq!(web, (Outcome::Ok(json!([1])), Executor::Provider));
    assert!(!outcome(plan("web", json!({}))).0.is_ok());
    let huge = json!("x".repeat(1024 * 1024));
    assert!(outcome(plan_of("web", Ok(json!({})), Some(huge))).0.is_ok(), "it has run");
}

#[test]
fn a_gated_call_that_needs_no_answer_takes_its_result_along() {
    let CallPlan::Execute { kind, gate, .. } = plan("horn", json!({"loud": true})).plan else {
        unreachable!()
    };
    assert_eq!(gate.map(|question| question.message).as_deref(), Some("Allow horn?"));
    let default_result = Some(Value::Null);
    assert_eq!(kind, CallKind::Client { grace_ms: Some(5_000), default_result });
    let free = plan("horn", json!({"loud": false})).plan;
    assert!(
        matches!(free, CallPlan::Complete { outcome: Outcome::Ok(Value::Null), .. }),
        "{free:?}"
    );
    let CallPlan::Execute { kind, .. } = plan("page", json!({})).plan else { unreachable!() };
    assert_eq!(kind, CallKind::Client { grace_ms: Some(5_000), default_result: None });
}

#[test]
fn dispatch_reaches_every_server_tool_by_name_before_alias() {
    let toolbox = toolbox();
    let name = |name| toolbox.dispatchable(name).map(|(tool, _)| tool.name.as_str());
    assert_eq!(name("secret"), Some("secret"));
    assert_eq!(name("s"), Some("secret"));
    assert_eq!(name("mail"), Some("send"));
    assert_eq!(name("search"), Some("search"));
    for other in ["ask", "page", "web", "mine", "nothing"] {
        assert_eq!(name(other), None, "{other}");
    }
}

#[test]
fn a_conversations_own_tool_never_replaces_the_agents() {
    let toolbox = toolbox();
    assert_eq!(toolbox.tool("pay").unwrap().executor(), Executor::Server);
    assert_eq!(toolbox.tool("mine").unwrap().executor(), Executor::Client);
    assert_eq!(toolbox.specs(&gate(&toolbox)).iter().filter(|spec| spec.name == "pay").count(), 1);
}

#[test]
fn a_conversations_own_tools_are_shared_and_not_copied() {
    let own = client_tools(&[json!({"name": "mine", "executor": "client"})]).unwrap();
    let toolbox = Toolbox::new(definition(json!([])), &Listings::new(), Arc::clone(&own));
    assert!(std::ptr::eq(toolbox.tool("mine").unwrap(), &raw const own[0]));
}

#[tokio::test]
async fn an_answer_satisfies_the_tools_schema_or_is_named_wrong() {
    let toolbox = toolbox();
    assert_eq!(toolbox.check_answer("ask", &json!(3)).await, Ok(()));
    assert!(toolbox.check_answer("ask", &json!("3")).await.is_err());
    assert_eq!(toolbox.check_answer("gone", &json!("3")).await, Ok(()));
}

#[test]
fn the_gate_and_check_args_agree_with_the_plan() {
    let toolbox = toolbox();
    let send = toolbox.tool("send").unwrap();
    let gate = gate(&toolbox);
    let decision_on = |args| gate.decide(send, &args, &scope()).decision;
    assert_eq!(decision_on(json!({"to": "b"})), Decision::Ask);
    assert_eq!(decision_on(json!({"to": "b", "amount": 1})), Decision::Allow);
    assert!(send.check_args(&json!({})).unwrap_err().contains("\"to\""));
    assert_eq!(send.check_args(&json!({"to": "b"})), Ok(()));
}

#[test]
fn what_the_provider_has_run_is_answered_whatever_it_is() {
    let large = json!("x".repeat(2 << 20));
    let object = || Ok(json!({}));
    for (name, args, result) in [
        ("nobody_declared", object(), json!([1])),
        ("nobody_declared", Err("no JSON".to_owned()), json!(null)),
        ("nobody_declared", object(), large),
    ] {
        let planned = plan_of(name, args, Some(result.clone()));
        assert_eq!(planned.tool, name);
        assert!(planned.plan.is_provided(), "{planned:?}");
        let CallPlan::Complete { outcome: Outcome::Ok(answer), .. } = planned.plan else {
            unreachable!()
        };
        assert!(answer == result || answer.as_str().unwrap().contains("larger"), "{answer}");
    }
}

#[test]
fn a_turns_own_tools_replace_the_conversations_and_never_the_agents_and_wait_without_a_page() {
    let declare = |description: &str, names: &[&str]| {
        let tool =
            |name: &&str| json!({"name": name, "description": description, "executor": "client"});
        client_tools(&names.iter().map(tool).collect::<Vec<_>>()).unwrap()
    };
    let agent = definition(json!([{"name": "agents", "description": "the agent's",
        "executor": "client"}]));
    let mut declared =
        DeclaredTools::from(declare("the conversation's", &["agents", "both", "old"]));
    declared.begin_turn(None, declare("the turn's", &["agents", "both", "new"]));
    let toolbox = Toolbox::with_declared(agent, &Listings::new(), declared);
    let described: Vec<(&str, &str)> =
        toolbox.tools().map(|tool| (tool.name.as_str(), tool.description.as_str())).collect();
    assert_eq!(
        described,
        [
            ("agents", "the agent's"),
            ("old", "the conversation's"),
            ("both", "the turn's"),
            ("new", "the turn's")
        ]
    );
    for (name, is_of_turn) in [("agents", false), ("old", false), ("both", true), ("new", true)] {
        assert_eq!(toolbox.is_of_turn(name), is_of_turn, "{name}");
    }
}
