//! The `permissions` and the `workspace` of a definition.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;

use super::MOST_TOOLS;
use super::field_reader::Fields;
use crate::definition::{Definition, Permissions, WorkspaceRoot};

/// Hosts that an agent names.
const MOST_HOSTS: usize = 256;
const LONGEST_HOST: usize = 256;
const LONGEST_ROOT: usize = 4_096;

pub(super) fn permissions(fields: &mut Fields) -> Permissions {
    let Some(mut nested) = fields.nested("permissions") else { return Permissions::default() };
    let phases = "plan, default, accept_edits, trusted, bypass_permissions";
    let permissions = Permissions {
        phase: nested.word("phase", phases).unwrap_or_default(),
        allowed_tools: match nested.says("allowed_tools") {
            true => Some(names(&mut nested, "allowed_tools", MOST_TOOLS)),
            false => nested.any("allowed_tools").map(|_| BTreeSet::new()),
        },
        disallowed_tools: names(&mut nested, "disallowed_tools", MOST_TOOLS),
        allowed_hosts: names(&mut nested, "allowed_hosts", MOST_HOSTS),
        network: nested.flag("network", false),
    };
    fields.absorb(nested);
    permissions
}

fn names(fields: &mut Fields, field: &str, most: usize) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (at, name) in fields.list(field, most).into_iter().enumerate() {
        match name {
            Value::String(name) if (1..=LONGEST_HOST).contains(&name.len()) => {
                names.insert(name);
            }
            _ => fields.wrong(&format!("{field}[{at}]"), "must be a name"),
        }
    }
    names
}

pub(super) fn workspace(fields: &mut Fields) -> Option<WorkspaceRoot> {
    let mut nested = fields.nested("workspace")?;
    let root = nested.text("root", LONGEST_ROOT).map(PathBuf::from);
    let shared = nested.flag("shared", false);
    match &root {
        None if shared => nested.wrong("root", "is missing; only a named directory is shared"),
        Some(root) if !root.is_absolute() || root.to_string_lossy().contains('\0') => {
            nested.wrong("root", "must be an absolute path");
        }
        Some(_) | None => {}
    }
    fields.absorb(nested);
    Some(WorkspaceRoot { root: root?, shared })
}

/// Names in the lists that mean nothing here; children's tools may have them.
pub(super) fn warnings(definition: &Definition) -> Vec<String> {
    let Permissions { allowed_tools, disallowed_tools, .. } = &definition.permissions;
    // What a server lists is not known here, only how its tools' names begin.
    let in_set = |name: &String| {
        let mut sets = definition.sets.iter();
        sets.any(|set| name.strip_prefix(&set.template.name).is_some_and(|it| it.starts_with('_')))
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
