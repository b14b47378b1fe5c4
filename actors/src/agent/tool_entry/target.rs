//! How a server tool runs: the `run` of its entry.

use std::time::Duration;

use abide_conversation::AgentName;
use abide_conversation::event::Executor;
use abide_conversation::ids::QueueName;
use serde_json::{Value, json};

use super::KnownNames;
use crate::agent::document::{McpToolDocument, RunDocument, Text, ToolDocument};
use crate::agent::endpoint;
use crate::agent::reader::Mistakes;
use crate::definition::{Builtin, MAX_TOOL_NAME_BYTES, McpToolRef, QueueTarget, Target};
use crate::limits::cut;
use crate::tools::mcp::MAX_SERVER_TOOL_NAME_BYTES;

/// A target, and the description, parameters and timeout that it brings along.
#[derive(Default)]
pub(super) struct ResolvedTarget {
    pub(super) target: Option<Target>,
    pub(super) description: Option<String>,
    pub(super) parameters: Option<Value>,
    pub(super) run_timeout: Option<Duration>,
}

/// Long because a child may wait for people, for each as long as its suspensions allow.
const CHILD_TIMEOUT: Duration = Duration::from_secs(3_600);

/// Takes `run` out of the entry; `None` if it is wrong, or missing where it must be.
pub(super) fn read(
    mistakes: &mut Mistakes,
    document: &mut ToolDocument,
    executor: Executor,
    known: &KnownNames<'_>,
) -> Option<ResolvedTarget> {
    let described = match (executor, document.run.take()) {
        (Executor::Server, Some(target)) => run(mistakes, target, known),
        (Executor::Server, None) => {
            if !mistakes.has("run") {
                mistakes.add("run", "is missing; a server tool needs one");
            }
            None
        }
        (Executor::Human | Executor::Client | Executor::Provider, Some(target)) => {
            // Reads `run` all the same, so that its mistakes are reported together with this one.
            run(mistakes, target, known);
            mistakes.add("run", "is for a server tool only");
            None
        }
        (Executor::Human | Executor::Client | Executor::Provider, None) => {
            Some(ResolvedTarget::default())
        }
    };
    let brings_parameters = described.as_ref().is_some_and(|it| it.parameters.is_some());
    if brings_parameters && document.parameters.take().is_some() {
        mistakes.add("parameters", "come from the native, built-in or MCP tool");
    }
    described
}

fn run(
    mistakes: &mut Mistakes,
    document: RunDocument,
    known: &KnownNames<'_>,
) -> Option<ResolvedTarget> {
    match document {
        RunDocument {
            http: Some(http),
            native: None,
            builtin: None,
            agent: None,
            mcp: None,
            queue: None,
        } => {
            let endpoint = endpoint::http(mistakes, "run.http.", http)?;
            Some(ResolvedTarget { target: Some(Target::Http(endpoint)), ..Default::default() })
        }
        RunDocument {
            http: None,
            native: Some(name),
            builtin: None,
            agent: None,
            mcp: None,
            queue: None,
        } => native(mistakes, name, known),
        RunDocument {
            http: None,
            native: None,
            builtin: Some(name),
            agent: None,
            mcp: None,
            queue: None,
        } => builtin(mistakes, name),
        RunDocument {
            http: None,
            native: None,
            builtin: None,
            agent: Some(name),
            mcp: None,
            queue: None,
        } => agent(mistakes, name),
        RunDocument {
            http: None,
            native: None,
            builtin: None,
            agent: None,
            mcp: Some(pick),
            queue: None,
        } => mcp(mistakes, pick, known),
        RunDocument {
            http: None,
            native: None,
            builtin: None,
            agent: None,
            mcp: None,
            queue: Some(name),
        } => queue(mistakes, name),
        _ => {
            if !mistakes.has("run") {
                let kinds = "http, native, builtin, agent, mcp, queue";
                mistakes.add("run", format!("must be exactly one of {kinds}"));
            }
            None
        }
    }
}

fn native(
    mistakes: &mut Mistakes,
    Text(name): Text<256>,
    known: &KnownNames<'_>,
) -> Option<ResolvedTarget> {
    let Some(tool) = known.extensions.tool(&name) else {
        let message = format!("names no native tool of this program: {}", cut(&name, 64));
        mistakes.add("run.native", message);
        return None;
    };
    Some(ResolvedTarget {
        target: Some(Target::Native(name)),
        description: Some(tool.description()),
        parameters: Some(tool.parameters()),
        run_timeout: None,
    })
}

fn builtin(mistakes: &mut Mistakes, Text(name): Text<256>) -> Option<ResolvedTarget> {
    let Some(builtin) = Builtin::from_name(&name) else {
        mistakes.add("run.builtin", format!("names no built-in tool: {}", cut(&name, 64)));
        return None;
    };
    Some(ResolvedTarget {
        target: Some(Target::Builtin(builtin)),
        description: Some(builtin.description().to_owned()),
        parameters: Some(builtin.validation_schema()),
        run_timeout: Some(builtin.run_timeout()),
    })
}

fn agent(mistakes: &mut Mistakes, Text(name): Text<256>) -> Option<ResolvedTarget> {
    let Some(agent) = AgentName::parse(&name) else {
        mistakes.add("run.agent", "must be the name of an agent");
        return None;
    };
    let target = Some(Target::Agent(agent));
    Some(ResolvedTarget { target, run_timeout: Some(CHILD_TIMEOUT), ..ResolvedTarget::default() })
}

/// A queue. A worker may take as long as the tool's `timeout`, whatever its `run_timeout`.
fn queue(mistakes: &mut Mistakes, Text(name): Text<64>) -> Option<ResolvedTarget> {
    let Some(queue) = QueueName::parse(&name) else {
        mistakes.add("run.queue", "must be [a-z0-9][a-z0-9_-]{0,63}");
        return None;
    };
    let target = Some(Target::Queue(QueueTarget { queue, result_schema: None }));
    Some(ResolvedTarget { target, ..ResolvedTarget::default() })
}

/// One tool of an MCP server. Its real parameters and description come when the server lists it.
fn mcp(
    mistakes: &mut Mistakes,
    McpToolDocument { server, tool }: McpToolDocument,
    known: &KnownNames<'_>,
) -> Option<ResolvedTarget> {
    let server = present(mistakes, "run.mcp.server", server);
    let tool = present(mistakes, "run.mcp.tool", tool);
    let tool = tool.filter(|tool| tool.len() <= MAX_SERVER_TOOL_NAME_BYTES);
    let server = server.and_then(|name| {
        let server = known.servers.get(&name).cloned();
        if server.is_none() {
            mistakes.add("run.mcp.server", no_server(&name));
        }
        server
    });
    let target = Some(Target::Mcp(McpToolRef { server: server?, tool: tool?, output: None }));
    Some(ResolvedTarget {
        target,
        parameters: Some(json!({"type": "object"})),
        ..ResolvedTarget::default()
    })
}

fn present(mistakes: &mut Mistakes, field: &str, text: Option<Text<256>>) -> Option<String> {
    let text = text.map(|text| text.0).filter(|text| !text.is_empty());
    if text.is_none() {
        mistakes.add_missing(field);
    }
    text
}

/// Says that a name belongs to no server of the agent.
pub(super) fn no_server(name: &str) -> String {
    format!("names no MCP server of this agent: {}", cut(name, MAX_TOOL_NAME_BYTES))
}
