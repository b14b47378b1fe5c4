//! Other names of a tool.

use std::collections::BTreeMap;

use serde_json::Value;

use super::is_name;
use crate::agent::document::Items;
use crate::agent::reader::Mistakes;
use crate::definition::Tool;

/// The aliases of one tool.
pub(super) fn aliases(mistakes: &mut Mistakes, items: Option<Items<16>>) -> Vec<String> {
    let mut aliases = Vec::new();
    for alias in items.unwrap_or_default().0 {
        match alias {
            Value::String(alias) if is_name(&alias) => aliases.push(alias),
            _ => mistakes.add("aliases", "must be names, [A-Za-z0-9_-]{1,64}"),
        }
    }
    aliases
}

/// Warns of aliases that name another tool: a tool's name wins over an alias, and the first of two
/// equal aliases wins over the second.
pub(super) fn warn(tools: &[Tool], warnings: &mut Vec<String>) {
    let mut first: BTreeMap<&str, &str> = BTreeMap::new();
    for tool in tools {
        for alias in &tool.aliases {
            let warning = |what: String| format!("tool {}: aliases: {alias} {what}", tool.name);
            if tools.iter().any(|other| other.name == *alias) {
                warnings.push(warning("is the name of a tool, which comes before it".to_owned()));
            }
            match first.get(alias.as_str()) {
                Some(owner) => warnings.push(warning(format!("is already an alias of {owner}"))),
                None => {
                    first.insert(alias, &tool.name);
                }
            }
        }
    }
}
