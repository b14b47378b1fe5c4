//! What the contract names and this version does not do: accepted where it asks for nothing.

use serde_json::{Value, json};

use super::fields::Fields;

pub(super) const UNSUPPORTED: &str = "is not supported by this version";

/// Reads the sections of later versions, and refuses them unless they say what holds anyway.
pub(super) fn refuse(fields: &mut Fields) {
    only(fields, "workspace", &json!({}));
    only(fields, "mcp_servers", &json!({}));
    only(fields, "hooks", &json!([]));
    if let Some(mut permissions) = fields.nested("permissions") {
        only(&mut permissions, "phase", &json!("default"));
        only(&mut permissions, "allowed_tools", &Value::Null);
        only(&mut permissions, "disallowed_tools", &json!([]));
        only(&mut permissions, "allowed_hosts", &json!([]));
        fields.absorb(permissions);
    }
}

/// Whether a list of tools' entry stands for a set of them, such as `{builtin: [read]}`.
///
/// An empty set is none; any other is refused.
pub(super) fn is_set(entry: &Value, fields: &mut Fields, place: &str) -> bool {
    let set = |key: &str| entry.as_object().filter(|it| it.len() == 1).and_then(|it| it.get(key));
    for (key, what) in [("builtin", "a set of built-in tools"), ("mcp", "an MCP server's tools")] {
        match set(key) {
            None => continue,
            Some(tools) if *tools == json!([]) || tools.is_null() => {}
            Some(_) => fields.wrong(&format!("{place}.{key}"), format!("{what} {UNSUPPORTED}")),
        }
        return true;
    }
    false
}

fn only(fields: &mut Fields, field: &str, default: &Value) {
    if fields.any(field).is_some_and(|value| value != *default) {
        fields.wrong(field, UNSUPPORTED);
    }
}
