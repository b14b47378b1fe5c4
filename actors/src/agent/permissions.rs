//! The `permissions` and the `workspace` of a definition.

use std::collections::BTreeSet;
use std::path::PathBuf;

use abide_conversation::permission::Network;
use serde_json::Value;

use super::document::{Items, NetworkPortsDocument, PermissionsDocument, WorkspaceDocument};
use super::reader::Mistakes;
use crate::definition::{Approval, Builtin, Definition, Permissions, Target, Tool, WorkspaceRoot};

/// The longest name of a tool or a host in a list.
const MAX_NAME_BYTES: usize = 256;

pub(super) fn permissions(mistakes: &mut Mistakes, document: PermissionsDocument) -> Permissions {
    let network = document.network.map(|value| network(mistakes, "permissions.network", value));
    let mut names = |field: &str, items: Items<256>| names(mistakes, field, items);
    Permissions {
        phase: document.phase.unwrap_or_default(),
        allowed_tools: document.allowed_tools.map(|items| names("allowed_tools", items)),
        disallowed_tools: names("disallowed_tools", document.disallowed_tools.unwrap_or_default()),
        allowed_hosts: names("allowed_hosts", document.allowed_hosts.unwrap_or_default()),
        network: network.unwrap_or(Network::None),
    }
}

/// Reads a `network`, which is not absent.
pub(super) fn network(mistakes: &mut Mistakes, field: &str, value: Value) -> Network {
    match value {
        Value::Bool(false) => return Network::None,
        Value::Bool(true) => return Network::All,
        Value::Object(_) => {}
        Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            mistakes.add(field, "must be true, false, or {ports: [PORT, …]}");
            return Network::None;
        }
    }
    let document: Option<NetworkPortsDocument> = mistakes.read(field, value);
    let Some(NetworkPortsDocument { ports }) = document else { return Network::None };
    if ports.0.is_empty() {
        mistakes.add(&format!("{field}.ports"), "must name a port; false permits none");
    }
    let mut allowed = BTreeSet::new();
    for (at, port) in ports.0.iter().enumerate() {
        match port.as_u64().and_then(|port| u16::try_from(port).ok()) {
            Some(port @ 1..) => drop(allowed.insert(port)),
            Some(0) | None => {
                let field = format!("{field}.ports[{at}]");
                mistakes.add(&field, "must be a port from 1 to 65535");
            }
        }
    }
    Network::ports(allowed)
}

fn names(mistakes: &mut Mistakes, field: &str, items: Items<256>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (at, name) in items.0.into_iter().enumerate() {
        match name {
            Value::String(name) if (1..=MAX_NAME_BYTES).contains(&name.len()) => {
                names.insert(name);
            }
            _ => mistakes.add(&format!("permissions.{field}[{at}]"), "must be a name"),
        }
    }
    names
}

pub(super) fn workspace(
    mistakes: &mut Mistakes,
    document: Option<WorkspaceDocument>,
) -> Option<WorkspaceRoot> {
    let WorkspaceDocument { root, shared } = document?;
    let root = root.map(|root| PathBuf::from(root.0));
    let shared = shared.unwrap_or(false);
    match &root {
        None if shared && !mistakes.has("workspace.root") => {
            mistakes.add("workspace.root", "is missing; only a named directory is shared");
        }
        Some(root) if !root.is_absolute() || root.to_string_lossy().contains('\0') => {
            mistakes.add("workspace.root", "must be an absolute path");
        }
        Some(_) | None => {}
    }
    Some(WorkspaceRoot { root: root?, shared })
}

/// Warns of names in the lists that no tool of this agent has. They are no mistakes, because a
/// child's tools may have these names.
pub(super) fn warnings(definition: &Definition) -> Vec<String> {
    let Permissions { allowed_tools, disallowed_tools, .. } = &definition.permissions;
    // The tools that an MCP server lists are not known here, only the prefix of their names.
    let in_set = |name: &String| {
        let mut sets = definition.sets.iter();
        sets.any(|set| name.strip_prefix(&set.prototype.name).is_some_and(|it| it.starts_with('_')))
    };
    let declared = |name: &String| definition.tools.iter().any(|tool| tool.name == *name);
    let known = |name: &String| declared(name) || in_set(name);
    let lists =
        [("allowed_tools", allowed_tools.as_ref()), ("disallowed_tools", Some(disallowed_tools))];
    let unknown = lists.into_iter().flat_map(|(list, names)| {
        let names = names.into_iter().flatten().filter(|name| !known(name));
        names.map(move |name| format!("permissions.{list}: this agent has no tool {name}"))
    });
    unknown.chain(self_approval(definition)).collect()
}

/// Warns where a tool is gated and a command has the network: whatever lets the command reach the
/// API, such as a gateway, also lets it answer the gate's question.
fn self_approval(definition: &Definition) -> Option<String> {
    let network = &definition.permissions.network;
    let is_shell = |tool: &Tool| {
        let target = tool.server().map(|server| &server.target);
        matches!(target, Some(Target::Builtin(Builtin::Bash)))
    };
    let is_gated = |tool: &&Tool| match tool.approval {
        Approval::Required | Approval::When(_) => !is_shell(tool),
        Approval::Auto => false,
    };
    let shell = definition.tools.iter().find(|tool| is_shell(tool))?;
    let gated = definition.tools.iter().find(is_gated)?;
    (*network != Network::None).then(|| {
        format!(
            "permissions.network: {} may use TCP, and {} needs an approval: a command that reaches \
             this API through a gateway or another host can give it",
            shell.name, gated.name
        )
    })
}
