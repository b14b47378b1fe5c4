//! What the contract names and this version does not do: accepted where it asks for nothing.

use serde_json::{Value, json};

use super::fields::Fields;

const UNSUPPORTED: &str = "is not supported by this version";

/// Reads the sections of later versions, and refuses them unless they say what holds anyway.
pub(super) fn refuse(fields: &mut Fields) {
    only(fields, "hooks", &json!([]));
}

fn only(fields: &mut Fields, field: &str, default: &Value) {
    if fields.any(field).is_some_and(|value| value != *default) {
        fields.wrong(field, UNSUPPORTED);
    }
}
