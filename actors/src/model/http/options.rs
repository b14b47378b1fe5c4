//! A definition's own additions to what goes over the wire.

use serde_json::{Map, Value};

/// Merges options into an object: where both have an object, key by key at every depth; elsewhere
/// the option stands in the place of what was there. Goes as deep as the options do, whose nesting
/// their parser has bounded.
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
