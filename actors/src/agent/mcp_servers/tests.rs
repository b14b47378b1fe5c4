//! Which MCP servers, and which entries that name them, are refused, by tool and field.

#![allow(clippy::unwrap_used)]

use abide_conversation::permission::Network;
use serde_json::{Value, json};

use crate::agent::join_errors;
use crate::definition::{McpTransport, Target};
use crate::tools::fixtures::{parse, source};

fn with(servers: Value, tools: Value) -> Value {
    let mut source = source(tools);
    source["mcp_servers"] = servers;
    source
}

fn refused(servers: Value, tools: Value, expected: &str) {
    let said = join_errors(&parse(with(servers, tools)).unwrap_err());
    assert!(said.contains(expected), "{said}\nlacks: {expected}");
}

#[test]
fn a_server_that_cannot_be_is_refused_by_its_path() {
    let both = json!({"url": "http://a/", "command": "x"});
    let many: Value = (0..17).map(|n| (format!("s{n}"), json!({"command": "x"}))).collect();
    for (servers, expected) in [
        (json!([]), "mcp_servers: must be an object"),
        (many, "mcp_servers: must be at most 16"),
        (json!({"a b": {"command": "x"}}), "mcp_servers.a b: must have a name"),
        (json!({"d": 1}), "mcp_servers.d: must be an object"),
        (
            json!({"d": {"command": "x"}, "d_e": {"command": "y"}}),
            "mcp_servers.d_e: begins with the name of another",
        ),
        (json!({"d": {}}), "mcp_servers.d: must have exactly one of url, command"),
        (json!({"d": both}), "mcp_servers.d: must have exactly one of url, command"),
        (json!({"d": {"url": "ftp://a/"}}), "mcp_servers.d.url: must be an http or https URL"),
        (json!({"d": {"url": "http://u:p@a/"}}), "mcp_servers.d.url: must not carry a user"),
        (json!({"d": {"url": "http://a/", "args": []}}), "mcp_servers.d.args: is not a known key"),
        (json!({"d": {"url": "http://a/", "network": true}}), "d.network: is not a known key"),
        (json!({"d": {"command": "x", "network": 1}}), "mcp_servers.d.network: must be true"),
        (
            json!({"d": {"command": "x", "network": {"ports": [0]}}}),
            "mcp_servers.d.network.ports[0]: must be a port",
        ),
        (json!({"d": {"url": "http://a/", "timeout": "x"}}), "mcp_servers.d.timeout: must be a"),
        (
            json!({"d": {"url": "http://a/", "headers": {"mcp-session-id": "x"}}}),
            "mcp_servers.d.headers.mcp-session-id: is set by the program",
        ),
        (
            json!({"d": {"url": "http://a/", "headers_env": {"x-a": "a b"}}}),
            "mcp_servers.d.headers_env.x-a: must be the name of a variable",
        ),
        (
            json!({"d": {"url": "http://a/", "headers_env": {"x-a": "ABIDE_CLUSTER_SECRET"}}}),
            "mcp_servers.d.headers_env.x-a: must be the name of a variable",
        ),
        (
            json!({"d": {"command": "x", "env": ["ABIDE_STORE"]}}),
            "mcp_servers.d.env: must be the name",
        ),
        (json!({"d": {"command": ""}}), "mcp_servers.d.command: must be a program"),
        (json!({"d": {"command": "x", "args": [1]}}), "mcp_servers.d.args: must be texts"),
        (json!({"d": {"command": "x", "env": ["A=1"]}}), "mcp_servers.d.env: must be the name"),
        (json!({"d": {"command": "x", "url2": 1}}), "mcp_servers.d.url2: is not a known key"),
    ] {
        refused(servers, json!([]), expected);
    }
}

#[test]
fn a_program_has_the_network_unless_its_definition_says_otherwise() {
    let network = |server: Value| {
        let definition =
            parse(with(json!({"d": server}), json!([{"mcp": "d"}]))).unwrap().definition;
        let target = &definition.sets[0].prototype.server().unwrap().target;
        let Target::Mcp(pick) = target else { unreachable!() };
        match &pick.server.transport {
            McpTransport::Stdio { network, .. } => network.clone(),
            McpTransport::Http { .. } => unreachable!(),
        }
    };
    assert_eq!(network(json!({"command": "x"})), Network::All);
    assert_eq!(network(json!({"command": "x", "network": false})), Network::None);
    let ports = json!({"command": "x", "network": {"ports": [443]}});
    assert_eq!(network(ports), Network::ports([443].into()));
}

#[test]
fn an_entry_that_names_no_server_or_says_too_much_is_refused() {
    let servers = json!({"docs": {"command": "x"}});
    let run = |mcp: Value| json!([{"name": "t", "run": {"mcp": mcp}}]);
    for (tools, expected) in [
        (json!([{"mcp": "other"}]), "tools[0].mcp: names no MCP server of this agent: other"),
        (json!([{"mcp": "docs"}, {"mcp": "docs"}]), "tools[1].mcp: is the set of a server that"),
        (run(json!({"server": "docs", "tool": ""})), "tool t: run.mcp.tool: is missing"),
        (json!([{"mcp": 1}]), "tools[0].mcp: must be the name of an MCP server"),
        (json!([{"mcp": "docs", "name": "t"}]), "tools[0].name: is not a known key"),
        (json!([{"mcp": "docs", "parameters": {}}]), "tools[0].parameters: is not a known key"),
        (json!([{"mcp": "docs", "executor": "human"}]), "tools[0].executor: is not a known key"),
        (json!([{"mcp": "docs", "approval": "maybe"}]), "tools[0].approval: must be auto"),
        (
            run(json!({"server": "other", "tool": "x"})),
            "tool t: run.mcp.server: names no MCP server",
        ),
        (run(json!({"server": "docs"})), "tool t: run.mcp.tool: is missing"),
        (run(json!({"server": "docs", "tool": "x", "y": 1})), "tool t: run.mcp.y: is not a known"),
        (run(json!("docs")), "tool t: run.mcp: must be an object"),
        (
            json!([{"name": "t", "parameters": {},
                    "run": {"mcp": {"server": "docs", "tool": "x"}}}]),
            "tool t: parameters: come from",
        ),
    ] {
        refused(servers.clone(), tools, expected);
    }
}

#[test]
fn a_set_carries_its_rules_and_names_of_its_tools_raise_no_warning() {
    let servers = json!({"docs": {"url": "http://127.0.0.1:1/mcp"}});
    let mut source = with(
        servers,
        json!([
            {"mcp": []},
            {"mcp": "docs", "approval": "requires_approval", "read_only": true, "streaming": true},
        ]),
    );
    source["permissions"] = json!({"disallowed_tools": ["docs_drop", "docket"]});
    let parsed = parse(source).unwrap();
    let [set] = &parsed.definition.sets[..] else { unreachable!() };
    let server = set.prototype.server().unwrap();
    assert!(set.prototype.read_only && server.streaming);
    assert!(matches!(&server.target, Target::Mcp(pick) if pick.server.name == "docs"));
    assert_eq!(parsed.warnings.len(), 1, "{:?}", parsed.warnings);
    assert!(parsed.warnings[0].contains("docket"));
}
