//! Checks what commands print against the schemas of the OpenAPI document.

use serde_json::{Value, json};

/// Fails unless the value is one of this schema.
pub(crate) fn check(schema: &str, value: &Value) {
    let document: Value =
        serde_json::from_str(include_str!("../../../nodes/openapi.json")).unwrap();
    assert!(document["components"]["schemas"][schema].is_object(), "{schema} is unknown");
    let root = json!({
        "$ref": format!("#/components/schemas/{schema}"),
        "components": document["components"],
    });
    let validator = jsonschema::validator_for(&root).unwrap();
    let errors: Vec<String> = validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{schema}: {errors:#?}\n{value:#}");
}
