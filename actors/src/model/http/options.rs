//! Merges a definition's own additions into a request.

use serde_json::{Map, Value};

/// Merges options into an object: two objects are merged key by key at every depth, any other
/// option replaces the existing value. The recursion is as deep as the options, whose nesting their
/// parser has bounded.
pub(crate) fn merge(into: &mut Map<String, Value>, options: &Map<String, Value>) {
    for (key, option) in options {
        match (into.get_mut(key), option) {
            (Some(Value::Object(object)), Value::Object(option)) => merge(object, option),
            (Some(_) | None, _) => {
                into.insert(key.clone(), option.clone());
            }
        }
    }
}
