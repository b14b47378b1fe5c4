//! Which definitions of agents are accepted over HTTP: who may write one need not be who may run
//! commands on the nodes.

use abide_actors::agent::DefinitionError;
use abide_actors::definition::{Builtin, Definition, Target, Tool};
use serde_json::Value;

const MESSAGE: &str =
    "is not accepted over HTTP: --agents-over-http, or agents_over_http of the tenant, is data";

/// The parts of a definition that run commands on a node or name a directory of it.
pub(super) fn privileged_parts(definition: &Definition) -> Vec<DefinitionError> {
    let error = |tool: Option<&str>, field: String| DefinitionError {
        tool: tool.map(str::to_owned),
        field,
        message: MESSAGE.to_owned(),
    };
    let root = definition.workspace.as_ref().map(|_| error(None, "workspace.root".to_owned()));
    let is_bash = |tool: &&Tool| {
        let target = tool.server().map(|server| &server.target);
        matches!(target, Some(Target::Builtin(Builtin::Bash)))
    };
    let shells = definition.tools.iter().filter(is_bash);
    let shells = shells.map(|tool| error(Some(&tool.name), "run.builtin".to_owned()));
    let servers = definition.source.get("mcp_servers").and_then(Value::as_object);
    let commands = servers.into_iter().flatten().filter(|(_, it)| it.get("command").is_some());
    let commands = commands.map(|(name, _)| error(None, format!("mcp_servers.{name}.command")));
    root.into_iter().chain(shells).chain(commands).collect()
}
