//! The `permissions` and the `workspace` of a definition.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;

use super::document::{Items, PermissionsDocument, WorkspaceDocument};
use super::reader::Mistakes;
use crate::definition::{Definition, Permissions, WorkspaceRoot};

/// The longest name of a tool or a host in a list.
const MAX_NAME_BYTES: usize = 256;

pub(super) fn permissions(mistakes: &mut Mistakes, document: PermissionsDocument) -> Permissions {
    let mut names = |field: &str, items: Items<256>| names(mistakes, field, items);
    Permissions {
        phase: document.phase.unwrap_or_default(),
        allowed_tools: document.allowed_tools.map(|items| names("allowed_tools", items)),
        disallowed_tools: names("disallowed_tools", document.disallowed_tools.unwrap_or_default()),
        allowed_hosts: names("allowed_hosts", document.allowed_hosts.unwrap_or_default()),
        network: document.network.unwrap_or(false),
    }
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
    unknown.collect()
}
