//! How a server tool runs: the `run` of its entry.

use std::time::Duration;

use abide_conversation::AgentName;
use abide_conversation::event::Executor;
use serde_json::{Value, json};

use super::KnownNames;
use crate::agent::endpoint;
use crate::agent::field_reader::Fields;
use crate::mcp::{MAX_SERVER_TOOL_NAME_BYTES, McpToolRef};
use crate::tools::Builtin;
use crate::tools::limits::cut;
use crate::tools::tool::{Endpoint, MAX_TOOL_NAME_BYTES, Target};

/// A target, and the description and parameters that it brings along.
#[derive(Default)]
pub(super) struct ToolDescription {
    pub(super) target: Option<Target>,
    pub(super) description: Option<String>,
    pub(super) parameters: Option<Value>,
    pub(super) run_timeout: Option<Duration>,
}

/// The kinds of `run` that this version knows.
const KINDS: [&str; 5] = ["http", "native", "builtin", "agent", "mcp"];
/// A child may wait for people, each as long as its suspensions do.
const CHILD_TIMEOUT: Duration = Duration::from_secs(3_600);

/// Reads `run`; `None` if it is wrong, or missing where it must be.
pub(super) fn read(
    fields: &mut Fields,
    executor: Executor,
    known: &KnownNames<'_>,
) -> Option<ToolDescription> {
    match (executor, fields.says("run")) {
        (Executor::Server, true) => run(fields, known),
        (Executor::Server, false) => {
            fields.any("run");
            fields.wrong("run", "is missing; a server tool needs one");
            None
        }
        (Executor::Human | Executor::Client | Executor::Provider, true) => {
            fields.any("run");
            fields.wrong("run", "is for a server tool only");
            None
        }
        (Executor::Human | Executor::Client | Executor::Provider, false) => {
            fields.any("run");
            Some(ToolDescription::default())
        }
    }
}

fn run(fields: &mut Fields, known: &KnownNames<'_>) -> Option<ToolDescription> {
    let mut run = fields.nested("run")?;
    let said: Vec<&str> = KINDS.into_iter().filter(|kind| run.says(kind)).collect();
    let described = match said[..] {
        ["http"] => http(&mut run).map(|endpoint| ToolDescription {
            target: Some(Target::Http(endpoint)),
            ..ToolDescription::default()
        }),
        ["native"] => native(&mut run, known),
        ["builtin"] => builtin(&mut run),
        ["agent"] => agent(&mut run),
        ["mcp"] => mcp(&mut run, known),
        _ => {
            KINDS.into_iter().for_each(|kind| drop(run.any(kind)));
            fields.wrong("run", format!("must be exactly one of {}", KINDS.join(", ")));
            None
        }
    };
    fields.absorb(run);
    let own = described.as_ref().is_some_and(|described| described.parameters.is_some());
    if own && fields.says("parameters") {
        fields.any("parameters");
        fields.wrong("parameters", "come from the native, built-in or MCP tool");
    }
    described
}

fn native(run: &mut Fields, known: &KnownNames<'_>) -> Option<ToolDescription> {
    let name = run.text("native", 256)?;
    let Some(tool) = known.natives.tool(&name) else {
        run.wrong("native", format!("names no native tool of this program: {}", cut(&name, 64)));
        return None;
    };
    Some(ToolDescription {
        target: Some(Target::Native(name)),
        description: Some(tool.description()),
        parameters: Some(tool.parameters()),
        run_timeout: None,
    })
}

fn builtin(run: &mut Fields) -> Option<ToolDescription> {
    let name = run.text("builtin", 256)?;
    let Some(builtin) = Builtin::from_name(&name) else {
        run.wrong("builtin", format!("names no built-in tool: {}", cut(&name, 64)));
        return None;
    };
    Some(ToolDescription {
        target: Some(Target::Builtin(builtin)),
        description: Some(builtin.description().to_owned()),
        parameters: Some(builtin.validation_schema()),
        run_timeout: Some(builtin.run_timeout()),
    })
}

fn agent(run: &mut Fields) -> Option<ToolDescription> {
    let name = run.text("agent", 256)?;
    let Some(agent) = AgentName::parse(&name) else {
        run.wrong("agent", "must be the name of an agent");
        return None;
    };
    let target = Some(Target::Agent(agent));
    Some(ToolDescription { target, run_timeout: Some(CHILD_TIMEOUT), ..ToolDescription::default() })
}

/// One tool of a server, which brings the rest along when it is listed.
fn mcp(run: &mut Fields, known: &KnownNames<'_>) -> Option<ToolDescription> {
    let mut mcp = run.nested("mcp")?;
    for field in ["server", "tool"] {
        if mcp.peek(field).is_none_or(|value| value.is_null() || *value == json!("")) {
            mcp.wrong(field, "is missing");
        }
    }
    let server = mcp.text("server", 256);
    let tool = mcp.text("tool", MAX_SERVER_TOOL_NAME_BYTES);
    let server = server.and_then(|name| {
        let server = known.servers.get(&name).cloned();
        if server.is_none() {
            mcp.wrong("server", no_server(&name));
        }
        server
    });
    run.absorb(mcp);
    let target = Some(Target::Mcp(McpToolRef { server: server?, tool: tool?, output: None }));
    Some(ToolDescription {
        target,
        parameters: Some(json!({"type": "object"})),
        ..ToolDescription::default()
    })
}

/// The name of no server of the agent.
pub(super) fn no_server(name: &str) -> String {
    format!("names no MCP server of this agent: {}", cut(name, MAX_TOOL_NAME_BYTES))
}

/// Reads the `http` of a server tool's `run`, or of a hook.
pub(in crate::agent) fn http(run: &mut Fields) -> Option<Endpoint> {
    let mut http = run.nested("http")?;
    let url = endpoint::url(&mut http);
    let headers = endpoint::headers(&mut http, is_reserved);
    let signing_secret_env = endpoint::variable(&mut http, "signing_secret_env");
    run.absorb(http);
    Some(Endpoint { url: url?, headers, signing_secret_env })
}

fn is_reserved(name: &str) -> bool {
    matches!(name, "idempotency-key" | "te") || name.starts_with("webhook-")
}
