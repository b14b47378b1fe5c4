//! Other names of a tool.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{MOST_ALIASES, is_name};
use crate::agent::field_reader::Fields;
use crate::definition::Tool;

/// Reads the aliases of one tool.
pub(super) fn read(fields: &mut Fields) -> Vec<String> {
    let mut aliases = Vec::new();
    for alias in fields.list("aliases", MOST_ALIASES) {
        match alias {
            Value::String(alias) if is_name(&alias) => aliases.push(alias),
            _ => fields.wrong("aliases", "must be names, [A-Za-z0-9_-]{1,64}"),
        }
    }
    aliases
}

/// Warns of aliases that reach another tool: names come before them, and of two the first wins.
pub(super) fn warn(tools: &[Tool], warnings: &mut Vec<String>) {
    let mut first: BTreeMap<&str, &str> = BTreeMap::new();
    for tool in tools {
        for alias in &tool.aliases {
            let say = |what: String| format!("tool {}: aliases: {alias} {what}", tool.name);
            if tools.iter().any(|other| other.name == *alias) {
                warnings.push(say("is the name of a tool, which comes before it".to_owned()));
            }
            match first.get(alias.as_str()) {
                Some(owner) => warnings.push(say(format!("is already an alias of {owner}"))),
                None => {
                    first.insert(alias, &tool.name);
                }
            }
        }
    }
}
