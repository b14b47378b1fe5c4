//! Definitions: what is legal, what is refused by name, and what is only worth a warning.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::time::Duration;

use abide_conversation::approval::{ApprovalPolicy, DenyRule, Party};
use abide_conversation::identity::Role;
use abide_conversation::permission::Network;
use serde_json::{Value, json};

use super::{DefinitionError, Format, client_tools, from_text, join_errors};
use crate::definition::Approval;
use crate::model::prompt::retention::{Retention, RetentionMode};
use crate::tools::fixtures::{parse, source};

/// The contract's example, without the sections of later versions.
const WHOLE: &str = r#"
name: support
description: Answers customers.
model: {provider: openai, name: gpt-5, base_url: "http://127.0.0.1:9000/v1",
        api_key_env: OPENAI_API_KEY, temperature: 0.2, max_tokens: 100}
system_prompt: You are helpful.
suspension_timeout: 4m
max_steps: 7
retry: {max_attempts: 2, base: 100ms, max: 1s}
client_grace: null
response_format: null
assigns: {shop: x}
workspace: null
permissions: {phase: default, allowed_tools: null, disallowed_tools: [], allowed_hosts: []}
mcp_servers:
  docs: {url: "http://127.0.0.1:9200/mcp", headers: {x-a: b}, headers_env: {x-b: B}, timeout: 5s}
  local: {command: docs-server, args: [--quiet], env: [DOCS_KEY]}
hooks: []
tools:
  - {builtin: []}
  - {mcp: docs, approval: requires_approval, run_timeout: 5s}
  - name: send_email
    description: Sends one e-mail.
    parameters: {type: object, properties: {to: {type: string}}, required: [to]}
    executor: server
    approval: requires_approval
    run: {http: {url: "http://127.0.0.1:9100/send", headers: {x-team: a}, signing_secret_env: S}}
    run_timeout: 60s
    on_interrupt: redispatch
    timeout: 10m
    streaming: false
    strict: true
    intent: compute
    audience: model
    aliases: []
    confirmation_message: "Send to {{args.to}}?"
    requires_response: true
    default_result: null
    result_schema: null
    provider_options: {openai: {strict: true}}
    retention: {mode: age, value: 4}
"#;

fn server() -> Value {
    json!({"http": {"url": "http://127.0.0.1:9/"}})
}

/// The mistakes of a definition with these tools, one line each.
fn mistakes(tools: Value) -> Vec<String> {
    match parse(source(tools)) {
        Ok(_) => Vec::new(),
        Err(mistakes) => mistakes.iter().map(ToString::to_string).collect(),
    }
}

#[track_caller]
fn refused(document: Value, beginning: &str) {
    let mistakes = parse(document).unwrap_err();
    let lines: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
    assert!(lines.iter().any(|line| line.starts_with(beginning)), "{beginning}: {lines:?}");
}

fn with(field: &str, value: Value) -> Value {
    let mut document = source(json!([]));
    document[field] = value;
    document
}

fn tool_with(field: &str, value: Value) -> Value {
    let mut tool = json!({"name": "t", "run": server()});
    tool[field] = value;
    source(json!([tool]))
}

#[test]
fn the_contracts_example_is_read_whole() {
    let parsed = parse(from_text(WHOLE, Format::Yaml).unwrap()).unwrap();
    let agent = parsed.definition;
    assert_eq!(parsed.warnings, Vec::<String>::new());
    assert_eq!((agent.name.as_str(), agent.max_steps), ("support", 7));
    assert_eq!(agent.suspension_timeout, Duration::from_secs(240));
    assert_eq!(agent.retry.base_delay, Duration::from_millis(100));
    assert_eq!(agent.client_grace, None);
    assert_eq!(agent.assigns["shop"], "x");
    let tool = &agent.tools[0];
    assert_eq!(tool.timeout, Some(Duration::from_secs(600)));
    assert_eq!(tool.retention, Retention { keep: RetentionMode::Age(4), never_evict: false });
    assert!(tool.strict);
    assert_eq!(tool.provider_options["openai"], json!({"strict": true}));
}

#[test]
fn what_is_left_out_has_the_contracts_defaults() {
    let document = source(json!([{"name": "t", "run": server()}]));
    let agent = parse(document.clone()).unwrap().definition;
    assert_eq!(agent.suspension_timeout, Duration::from_secs(300));
    assert_eq!(agent.client_grace, Some(Duration::from_secs(5)));
    assert_eq!(agent.max_steps, 25);
    assert_eq!((agent.retry.max_attempts, agent.retry.max_delay), (3, Duration::from_secs(8)));
    assert_eq!(agent.tools[0].server().unwrap().run_timeout, Duration::from_secs(60));
    assert_eq!(agent.source, document);
}

#[test]
fn a_revision_is_the_hash_of_the_canonical_document() {
    let read = |text: &str| {
        parse(from_text(text, Format::Json).unwrap()).unwrap().definition.revision.to_string()
    };
    let one =
        read(r#"{"name": "a", "model": {"provider": "scripted", "script": []}, "max_steps": 5}"#);
    assert_eq!(
        one,
        read(r#"{"max_steps":5.0,"model":{"provider":"scripted","script":[]},"name":"a"}"#)
    );
    assert_ne!(
        one,
        read(r#"{"name": "a", "model": {"provider": "scripted", "script": []}, "max_steps": 6}"#)
    );
    // printf '{"max_steps":5,"model":{"provider":"scripted","script":[]},"name":"a"}' | sha256sum
    assert_eq!(one, "4967eed33cab5085");
}

#[test]
fn every_cell_of_executor_and_approval_is_legal_or_refused_by_name() {
    let approvals =
        [json!("auto"), json!("requires_approval"), json!({"when": "args.amount > 100"})];
    for executor in ["server", "human", "client", "provider"] {
        for (at, approval) in approvals.iter().enumerate() {
            let mut tool = json!({"name": "t", "executor": executor, "approval": approval});
            if executor == "server" {
                tool["run"] = server();
            }
            let gate_on_ungateable = at > 0 && matches!(executor, "human" | "provider");
            let wanted: Vec<String> = gate_on_ungateable
                .then(|| format!("tool t: approval: cannot gate a {executor} tool"))
                .into_iter()
                .collect();
            assert_eq!(mistakes(json!([tool])), wanted, "{executor} {approval}");
        }
    }
}

#[test]
fn an_approval_says_when_it_is_needed_and_whose() {
    let parsed = |approval: Value| {
        let tool = json!({"name": "t", "executor": "client", "approval": approval});
        let tools = client_tools(&[tool]).unwrap();
        (matches!(tools[0].approval, Approval::When(_)), tools[0].approvers.clone())
    };
    assert_eq!(parsed(json!({"when": "args.loud"})), (true, None));
    assert_eq!(parsed(json!({"by": {}})), (false, Some(ApprovalPolicy::default())));
    let by = json!({"roles": ["approver", "tenant-admin"], "groups": ["finance"], "quorum": 2,
        "not": ["requester", "owner"], "services": true, "mfa_within": "10m", "deny": "quorum"});
    let policy = ApprovalPolicy {
        roles: BTreeSet::from([Role::Approver, Role::TenantAdmin]),
        groups: BTreeSet::from(["finance".to_owned()]),
        quorum: 2,
        not: BTreeSet::from([Party::Requester, Party::Owner]),
        services: true,
        mfa_within_ms: Some(600_000),
        deny: DenyRule::Quorum,
        escalated: Default::default(),
    };
    assert_eq!(parsed(json!({"when": "args.loud", "by": by})), (true, Some(policy)));
}

#[test]
fn a_call_that_needs_no_answer_may_be_gated() {
    for approval in [json!("requires_approval"), json!({"when": "args.loud"})] {
        let tool = json!({"name": "t", "executor": "client", "requires_response": false,
            "approval": approval});
        assert_eq!(mistakes(json!([tool])), Vec::<String>::new());
    }
}

/// Each entry of `tools` in YAML, where `RUN` is a good `run`, and how its mistake begins.
#[track_caller]
fn refused_entries(entries: &[(&str, &str)]) {
    for (entry, beginning) in entries {
        let entry = entry.replace("RUN", "run: {http: {url: \"http://127.0.0.1:9/\"}}");
        refused(source(json!([from_text(&entry, Format::Yaml).unwrap()])), beginning);
    }
}

#[test]
fn what_the_contract_calls_illegal_is_refused_by_tool_and_field() {
    refused_entries(&[
        ("{name: t}", "tool t: run: is missing"),
        ("{name: t, executor: human, RUN}", "tool t: run: is for a server tool only"),
        ("{name: t, executor: client, RUN}", "tool t: run: is for a server tool only"),
        ("{name: t, executor: provider, RUN}", "tool t: run: is for a server tool only"),
        ("{name: t, executor: robot, RUN}", "tool t: executor: must be one of"),
        ("{name: t, approval: maybe, RUN}", "tool t: approval: must be"),
        ("{name: t, approval: {when: args >}, RUN}", "tool t: approval.when: does not compile"),
        ("{name: t, approval: {when: a, x: 1}, RUN}", "tool t: approval.x: "),
        ("{name: t, approval: {}, RUN}", "tool t: approval: must have when, by, or both"),
        ("{name: t, approval: {by: {roles: []}}, RUN}", "tool t: approval.by.roles: must have"),
        (
            "{name: t, approval: {by: {roles: [boss]}}, RUN}",
            "tool t: approval.by.roles[0]: must be",
        ),
        ("{name: t, approval: {by: {groups: [1]}}, RUN}", "tool t: approval.by.groups[0]: must be"),
        ("{name: t, approval: {by: {quorum: 0}}, RUN}", "tool t: approval.by.quorum: must be"),
        ("{name: t, approval: {by: {quorum: 17}}, RUN}", "tool t: approval.by.quorum: must be"),
        ("{name: t, approval: {by: {not: [me]}}, RUN}", "tool t: approval.by.not[0]: must be"),
        ("{name: t, approval: {by: {mfa_within: x}}, RUN}", "tool t: approval.by.mfa_within: "),
        ("{name: t, approval: {by: {deny: all}}, RUN}", "tool t: approval.by.deny: must be"),
        ("{name: t, executor: human, approval: {by: {}}}", "tool t: approval: cannot gate a human"),
        ("{name: t, intent: guess, RUN}", "tool t: intent: must be one of"),
        ("{name: t, audience: nobody, RUN}", "tool t: audience: must be one of"),
        ("{name: t, parameters: [], RUN}", "tool t: parameters: must be"),
        ("{name: t, parameters: {type: string}, RUN}", "tool t: parameters: must"),
        ("{name: t, parameters: {type: banana}, RUN}", "tool t: parameters: "),
        ("{name: t, parameters: {$ref: \"http://a/x\"}, RUN}", "tool t: parameters: "),
        ("{name: t, requires_response: false, RUN}", "tool t: requires_response: "),
        ("{name: t, default_result: 1, RUN}", "tool t: default_result: "),
        ("{name: t, result_schema: {}, RUN}", "tool t: result_schema: "),
        (
            "{name: t, provider_options: {openai: [1]}, RUN}",
            "tool t: provider_options.openai: must",
        ),
        ("{name: bad name, RUN}", "tool bad name: name: must be"),
        ("{name: [t], RUN}", "tools[0].name: must be"),
        ("{RUN}", "tools[0].name: must be"),
        ("7", "tools[0]: must be an object"),
        ("{builtin: [fly]}", "tools[0].builtin[0]: names no built-in tool"),
        ("{builtin: some}", "tools[0].builtin: must be all"),
        ("{builtin: [read, read]}", "tools[0].builtin: read is the name of two tools"),
    ]);
}

#[test]
fn a_run_that_cannot_be_is_refused_by_its_path() {
    refused_entries(&[
        ("{name: t, run: {builtin: fly}}", "tool t: run.builtin: names no built-in tool"),
        ("{name: t, run: {builtin: read}, parameters: {}}", "tool t: parameters: come from"),
        ("{name: t, run: {agent: A B}}", "tool t: run.agent: must be the name"),
        ("{name: t, read_only: 1, RUN}", "tool t: read_only: must be true or false"),
        ("{name: t, run: {}}", "tool t: run: must be exactly one"),
        ("{name: t, run: {shell: x}}", "tool t: run.shell: is not a known key"),
        ("{name: t, run: {http: {url: \"http://a/\"}, native: x}}", "tool t: run: must be exactly"),
        ("{name: t, run: {native: nothing}}", "tool t: run.native: names no native tool"),
        ("{name: t, run: {native: obedient}, parameters: {}}", "tool t: parameters: come from"),
        ("{name: t, run: {http: {url: \"ftp://a/\"}}}", "tool t: run.http.url: must be"),
        ("{name: t, run: {http: {url: a}}}", "tool t: run.http.url: must be"),
        ("{name: t, run: {http: {}}}", "tool t: run.http.url: is missing"),
        ("{name: t, run: {http: {url: \"http://u:p@a/\"}}}", "tool t: run.http.url: must not"),
        (
            "{name: t, run: {http: {url: \"http://a/\", headers: {Idempotency-Key: x}}}}",
            "tool t: run.http.headers.Idempotency-Key: is set by the program",
        ),
        (
            "{name: t, run: {http: {url: \"http://a/\", headers_env: {x-a: ABIDE_STORE}}}}",
            "tool t: run.http.headers_env.x-a: must be the name of a variable",
        ),
        (
            "{name: t, run: {http: {url: \"http://a/\", headers: {x-a: b}, headers_env: {X-A: B}}}}",
            "tool t: run.http.headers_env.x-a: is in headers, too",
        ),
        (
            "{name: t, run: {http: {url: \"http://a/\", headers: {x: \"a\\nb\"}}}}",
            "tool t: run.http.headers.x: must be",
        ),
        (
            "{name: t, run: {http: {url: \"http://a/\", method: GET}}}",
            "tool t: run.http.method: is not a known key",
        ),
    ]);
}

#[test]
fn fields_of_a_wrong_shape_are_refused_by_name() {
    for (field, value) in [
        ("run_timeout", json!("0s")),
        ("timeout", json!(5)),
        ("timeout", json!("9000h")),
        ("on_interrupt", json!("retry")),
        ("streaming", json!("yes")),
        ("strict", json!("yes")),
        ("aliases", json!(["a b"])),
        ("confirmation_message", json!("{{")),
        ("provider_options", json!([])),
        ("retention", json!({"mode": "age"})),
        ("description", json!(1)),
        ("colour", json!(1)),
    ] {
        refused(tool_with(field, value), &format!("tool t: {field}"));
    }
    for (field, value) in [
        ("name", json!("Big")),
        ("model", json!({"provider": "nobody"})),
        ("model", json!({"provider": "scripted", "key": "x"})),
        ("max_steps", json!(0)),
        ("max_steps", json!(1001)),
        ("max_steps", json!(2.5)),
        ("retry", json!({"max_attempts": 0})),
        ("retry", json!({"often": 1})),
        ("client_grace", json!("soon")),
        ("response_format", json!({"type": "banana"})),
        ("assigns", json!([])),
        ("tools", json!({})),
        ("workspace.root", json!({"root": "docs"})),
        ("workspace.root", json!({"shared": true})),
        ("workspace.where", json!({"where": "/"})),
        ("permissions.phase", json!({"phase": "reckless"})),
        ("permissions.disallowed_tools[0]", json!({"disallowed_tools": [1]})),
        ("permissions.allowed_tools", json!({"allowed_tools": "x"})),
        ("permissions.network", json!({"network": 1})),
        ("hooks", json!([{}])),
        ("colour", json!(1)),
    ] {
        // A nested field is named by its path, and set by its section.
        let section = field.split('.').next().unwrap();
        refused(with(section, value), field);
    }
    refused(json!([]), "definition: must be an object");
    refused(json!({}), "name: is missing");
    refused(json!({}), "model: is missing");
}

#[test]
fn all_mistakes_are_reported_together() {
    let found = parse(json!({"name": "X", "model": 1, "colour": 2, "tools": [
        {"name": "a", "executor": "human", "approval": "requires_approval", "timeout": "x"},
        {"name": "a", "run": server(), "intent": 1}]}));
    let found = join_errors(&found.unwrap_err());
    for part in [
        "name: must",
        "model: ",
        "colour: ",
        "tool a: approval",
        "tool a: timeout",
        "tool a: name: is the name of two",
        "tool a: intent",
    ] {
        assert!(found.contains(part), "{part} is missing in {found}");
    }
    assert!(!found.contains("tool a: intent: is not a known"), "{found}");
    assert_eq!(found.matches("is not a known key").count(), 1, "{found}");
}

#[test]
fn aliases_that_meet_are_legal_and_worth_a_warning() {
    let tool =
        |name: &str, aliases: Value| json!({"name": name, "run": server(), "aliases": aliases});
    let tools = json!([tool("a", json!(["x", "b"])), tool("b", json!(["x"]))]);
    let warnings = parse(source(tools)).unwrap().warnings;
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings.iter().any(|it| it.contains("tool b: aliases: x is already an alias of a")));
    assert!(warnings.iter().any(|it| it.contains("tool a: aliases: b is the name of a tool")));
}

#[test]
fn a_native_tool_brings_description_and_parameters() {
    let tool = |description: Value| {
        let tool = json!({"name": "t", "run": {"native": "obedient"}, "description": description});
        parse(source(json!([tool]))).unwrap().definition.tools[0].clone()
    };
    assert_eq!(tool(Value::Null).description, "Does what it is told.");
    assert_eq!(tool(json!("Mine.")).description, "Mine.");
    assert_eq!(tool(Value::Null).parameters.source()["properties"]["do"]["type"], "string");
}

#[test]
fn definitions_are_bounded() {
    refused(with("system_prompt", json!("x".repeat(1024 * 1024))), "definition: ");
    let tool = |n: usize| json!({"name": format!("t{n}"), "run": server()});
    let tools = |n: usize| source((0..n).map(tool).collect());
    refused(tools(257), "tools: must have at most 256");
    assert!(parse(tools(256)).is_ok());
}

#[test]
fn a_clients_tools_are_its_own_or_a_persons() {
    let read = |tools: Value| client_tools(tools.as_array().unwrap());
    let tools =
        read(json!([{"name": "a", "executor": "client"}, {"name": "b", "executor": "human"}]));
    assert_eq!(tools.unwrap().len(), 2);
    for (tool, wanted) in [
        (json!({"name": "a", "run": server()}), "tool a: executor: "),
        (json!({"name": "a", "executor": "provider"}), "tool a: executor: "),
        (json!({"name": "a"}), "tool a: run: "),
        (json!({"name": "a", "executor": "client", "x": 1}), "tool a: x: "),
        (json!({"name": "a", "run": {"native": "obedient"}}), "tool a: run.native: "),
    ] {
        let mistakes = join_errors(&read(json!([tool])).unwrap_err());
        assert!(mistakes.contains(wanted), "{mistakes}");
    }
    let many = read(json!(vec![json!({"name": "a", "executor": "client"}); 257]));
    assert_eq!(join_errors(&many.unwrap_err()), "tools: must have at most 256 items");
}

#[test]
fn a_provider_tool_that_its_provider_does_not_see_is_worth_a_warning() {
    let hosted = |options: Value| {
        let tool = json!({"name": "search", "executor": "provider", "provider_options": options});
        let mut source = source(json!([tool]));
        source["model"] = json!({"provider": "anthropic", "name": "m"});
        parse(source).unwrap().warnings
    };
    let wanted = "tool search: provider_options.anthropic is missing: the model does not see it";
    assert_eq!(hosted(json!({"openai": {"type": "web_search"}})), [wanted]);
    assert_eq!(hosted(json!({})), [wanted]);
    assert_eq!(hosted(json!({"anthropic": {"type": "web_search"}})), [""; 0]);
}

#[test]
fn the_network_is_all_none_or_a_list_of_ports() {
    let network = |network: Value| {
        let parsed = parse(with("permissions", json!({"network": network})));
        let lines = |mistakes: Vec<DefinitionError>| join_errors(&mistakes);
        parsed.map(|parsed| parsed.definition.permissions.network).map_err(lines)
    };
    let ports = |ports: &[u16]| Network::ports(ports.iter().copied().collect());
    assert_eq!(network(json!(true)), Ok(Network::All));
    assert_eq!(network(json!(false)), Ok(Network::None));
    assert_eq!(network(json!(null)), Ok(Network::None));
    assert_eq!(network(json!({"ports": [443, 22, 443]})), Ok(ports(&[22, 443])));
    for (wrong, field) in [
        (json!("443"), "permissions.network: must be true, false"),
        (json!([443]), "permissions.network: must be true, false"),
        (json!({"ports": []}), "permissions.network.ports: "),
        (json!({"ports": [0]}), "permissions.network.ports[0]: "),
        (json!({"ports": [443, 65_536]}), "permissions.network.ports[1]: "),
        (json!({"ports": ["443"]}), "permissions.network.ports[0]: "),
        (json!({"ports": (1..=65).collect::<Vec<_>>()}), "permissions.network.ports: "),
        (json!({"hosts": ["a"]}), "permissions.network.hosts: "),
        (json!({}), "permissions.network.ports: "),
    ] {
        let mistakes = network(wrong.clone()).unwrap_err();
        assert!(mistakes.contains(field), "{wrong}: {mistakes}");
    }
}

#[test]
fn lists_that_name_no_tool_are_worth_a_warning() {
    let mut source = source(json!([{"builtin": ["read"]}]));
    source["permissions"] =
        json!({"allowed_tools": ["read", "raed"], "disallowed_tools": ["bash"]});
    let warnings = parse(source).unwrap().warnings;
    let wanted = [
        "permissions.allowed_tools: this agent has no tool raed",
        "permissions.disallowed_tools: this agent has no tool bash",
    ];
    assert_eq!(warnings, wanted);
}

#[test]
fn all_built_in_tools_or_some_are_added_in_one_entry() {
    let names = |tools| {
        let definition = parse(source(tools)).unwrap().definition;
        definition.tools.into_iter().map(|tool| tool.name).collect::<Vec<_>>()
    };
    let all = "read glob grep write edit bash web_fetch todo_write plan_mode spawn_agent";
    assert_eq!(names(json!([{"builtin": "all"}])).join(" "), all);
    assert_eq!(names(json!([{"builtin": ["glob", "read"]}])), ["glob", "read"]);
}
