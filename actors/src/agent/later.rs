//! What the contract names and this version does not do: accepted where it asks for nothing.

use serde_json::{Value, json};

use super::fields::Fields;

pub(super) const UNSUPPORTED: &str = "is not supported by this version";

/// Reads the sections of later versions, and refuses them unless they say what holds anyway.
pub(super) fn refuse(fields: &mut Fields) {
    only(fields, "mcp_servers", &json!({}));
}

/// Whether a list of tools' entry stands for a set of them, such as `{mcp: docs}`.
///
/// An empty set is none; any other is refused.
pub(super) fn is_set(entry: &Value, fields: &mut Fields, place: &str) -> bool {
    let set = |key: &str| entry.as_object().filter(|it| it.len() == 1).and_then(|it| it.get(key));
    match set("mcp") {
        None => return false,
        Some(tools) if *tools == json!([]) || tools.is_null() => {}
        Some(_) => {
            let message = format!("an MCP server's tools {UNSUPPORTED}");
            fields.wrong(&format!("{place}.mcp"), message);
        }
    }
    true
}

fn only(fields: &mut Fields, field: &str, default: &Value) {
    if fields.any(field).is_some_and(|value| value != *default) {
        fields.wrong(field, UNSUPPORTED);
    }
}
