//! An entry that stands for all tools of an MCP server, such as `{mcp: docs}`.

use serde_json::{Map, Value, json};

use super::{KnownNames, target, tool};
use crate::agent::field_reader::Fields;
use crate::definition::Tool;

/// What may stand beside `mcp`, and then holds for each of the tools.
const RULES: [&str; 11] = [
    "approval",
    "audience",
    "intent",
    "on_interrupt",
    "provider_options",
    "read_only",
    "retention",
    "run_timeout",
    "streaming",
    "strict",
    "timeout",
];

/// Whether the entry is such a one. An empty set is, too.
pub(super) fn is_set(entry: &Value) -> bool {
    entry.as_object().is_some_and(|entry| entry.contains_key("mcp"))
}

/// What each of the tools is, but for what its server says of it; `None` if that is wrong.
pub(super) fn read(
    entry: Value,
    fields: &mut Fields,
    place: &str,
    known: &KnownNames<'_>,
) -> Option<Tool> {
    let Value::Object(object) = entry else { return None };
    let path = format!("{place}.");
    let mut set = Fields::new(None, &path, object);
    let server = match set.any("mcp") {
        None => None,
        Some(Value::Array(none)) if none.is_empty() => None,
        Some(Value::String(name)) if known.servers.contains_key(&name) => Some(name),
        Some(Value::String(name)) => {
            set.wrong("mcp", target::no_server(&name));
            None
        }
        Some(_) => {
            set.wrong("mcp", "must be the name of an MCP server of this agent");
            None
        }
    };
    let mut rules: Map<String, Value> =
        RULES.iter().filter_map(|rule| Some((rule.to_string(), set.any(rule)?))).collect();
    fields.absorb(set);
    let server = server?;
    rules.insert("run".to_owned(), json!({"mcp": {"server": server, "tool": "*"}}));
    let mut rules = Fields::new(None, &path, rules);
    // Its warnings are of what is for client tools only, and none of that is among the rules.
    let template = tool(server, &mut rules, known, &mut Vec::new());
    fields.absorb(rules);
    template
}
