//! An entry that stands for all tools of an MCP server, such as `{mcp: docs}`.

use serde_json::{Map, Value};

use super::{KnownNames, target, tool};
use crate::agent::document::{McpToolDocument, RunDocument, Text, ToolDocument};
use crate::agent::reader::Mistakes;
use crate::definition::Tool;

/// The keys that may stand beside `mcp`, and then hold for each of the tools.
const RULES: [&str; 12] = [
    "approval",
    "audience",
    "intent",
    "on_interrupt",
    "provider_options",
    "read_only",
    "retention",
    "retry",
    "run_timeout",
    "streaming",
    "strict",
    "timeout",
];

/// The settings that apply to every tool of this server; name, description and schema come from
/// the server's listing. `None` if the entry is invalid, or names no server: such a set is empty.
pub(super) fn read(
    mistakes: &mut Mistakes,
    field: &str,
    mut object: Map<String, Value>,
    known: &KnownNames<'_>,
) -> Option<Tool> {
    let server = server(mistakes, &format!("{field}.mcp"), object.remove("mcp"), known);
    let mut own = Mistakes::new(None, &format!("{field}."));
    object.retain(|key, _| {
        let is_rule = RULES.contains(&key.as_str());
        if !is_rule {
            own.add(key, "is not a known key");
        }
        is_rule
    });
    let document = own.read("", Value::Object(object));
    let prototype = document.zip(server).and_then(|(document, server): (ToolDocument, String)| {
        let pick = McpToolDocument {
            server: Some(Text(server.clone())),
            tool: Some(Text("*".to_owned())),
        };
        let run = RunDocument { mcp: Some(pick), ..RunDocument::default() };
        let document = ToolDocument { run: Some(run), ..document };
        // Warnings are about keys of client tools, and none of them is among the rules.
        tool(&mut own, server, document, known, &mut Vec::new())
    });
    mistakes.absorb(own);
    prototype
}

fn server(
    mistakes: &mut Mistakes,
    field: &str,
    value: Option<Value>,
    known: &KnownNames<'_>,
) -> Option<String> {
    match value? {
        Value::Null => None,
        Value::Array(none) if none.is_empty() => None,
        Value::String(name) if known.servers.contains_key(&name) => Some(name),
        Value::String(name) => {
            mistakes.add(field, target::no_server(&name));
            None
        }
        _ => {
            mistakes.add(field, "must be the name of an MCP server of this agent");
            None
        }
    }
}
