//! Compiled JSON Schemas that never fetch anything and whose errors name each field.

use std::sync::Arc;

use jsonschema::{PatternOptions, Validator};
use serde_json::{Map, Value};

use crate::limits::{MAX_ERROR_BYTES, cut};

/// Errors named in one answer; a model corrects a few at a time.
const MAX_NAMED_ERRORS: usize = 8;
/// The longest text of one error.
const MAX_NAMED_ERROR_BYTES: usize = 300;
/// Backtracking steps of a pattern; one that needs more counts as not matching.
const MAX_BACKTRACKS: usize = 100_000;
/// Defaults are filled in down to this depth; JSON from outside is no deeper.
const MAX_DEFAULTS_DEPTH: usize = 128;

/// A compiled JSON Schema; clones share it.
#[derive(Clone, Debug)]
pub struct Schema {
    source: Arc<Value>,
    validator: Arc<Validator>,
}

impl Schema {
    /// Compiles a schema, which must be an object; a `$ref` to another document is refused.
    pub fn compile(source: &Value) -> Result<Self, String> {
        if !source.is_object() {
            return Err("must be a JSON Schema object".to_owned());
        }
        let patterns = PatternOptions::fancy_regex().backtrack_limit(MAX_BACKTRACKS);
        let options = jsonschema::options().with_pattern_options(patterns).offline();
        let validator = options.build(source).map_err(|error| {
            let at = field_prefix(&error.instance_path().to_string());
            let message = cut(&error.masked().to_string(), MAX_NAMED_ERROR_BYTES);
            format!("is not a valid JSON Schema: {at}{message}")
        })?;
        Ok(Self { source: Arc::new(source.clone()), validator: Arc::new(validator) })
    }

    /// The schema as it was written.
    pub fn source(&self) -> &Value {
        &self.source
    }

    /// Whether the value satisfies the schema; the error names each field that does not.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        let mut errors = self.validator.iter_errors(value);
        let named: Vec<String> = errors
            .by_ref()
            .take(MAX_NAMED_ERRORS)
            .map(|error| {
                let at = field_prefix(&error.instance_path().to_string());
                cut(&format!("{at}{}", error.masked()), MAX_NAMED_ERROR_BYTES)
            })
            .collect();
        match (named.is_empty(), errors.next()) {
            (true, _) => Ok(()),
            (false, None) => Err(cut(&named.join("; "), MAX_ERROR_BYTES)),
            (false, Some(_)) => {
                Err(cut(&format!("{}; and more", named.join("; ")), MAX_ERROR_BYTES))
            }
        }
    }

    /// Fills in the defaults of absent properties, in nested objects too.
    pub fn fill_defaults(&self, mut value: Value) -> Value {
        fill_defaults_in(&self.source, &mut value, MAX_DEFAULTS_DEPTH);
        value
    }
}

/// Turns `/to/0` into `to.0: `. The root has no prefix, since its messages name the property.
fn field_prefix(pointer: &str) -> String {
    match pointer.trim_start_matches('/') {
        "" => String::new(),
        path => format!("{}: ", path.replace('/', ".")),
    }
}

fn fill_defaults_in(schema: &Value, value: &mut Value, depth: usize) {
    let (Some(properties), Value::Object(object)) = (properties(schema), value) else { return };
    if depth == 0 {
        return;
    }
    for (name, property) in properties {
        if let (false, Some(default)) = (object.contains_key(name), property.get("default")) {
            object.insert(name.clone(), default.clone());
        }
        if let Some(inner) = object.get_mut(name) {
            fill_defaults_in(property, inner, depth - 1);
        }
    }
}

fn properties(schema: &Value) -> Option<&Map<String, Value>> {
    schema.get("properties")?.as_object()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_wrong_field_is_named() {
        let schema = Schema::compile(&json!({"type": "object", "required": ["to"],
            "properties": {"amount": {"type": "number"},
                           "cc": {"type": "array", "items": {"type": "string"}}}}));
        let error = schema.unwrap().check(&json!({"amount": "much", "cc": [1]})).unwrap_err();
        for part in ["\"to\" is a required property", "amount: ", "cc.0: "] {
            assert!(error.contains(part), "{part} is missing in {error}");
        }
    }

    #[test]
    fn a_thousand_errors_make_a_short_answer() {
        let schema = Schema::compile(&json!({"items": {"type": "string"}})).unwrap();
        let error = schema.check(&Value::from(vec![1; 1000])).unwrap_err();
        assert!(error.len() <= MAX_ERROR_BYTES && error.ends_with("and more"), "{error}");
    }

    #[test]
    fn defaults_fill_absent_properties_at_every_depth() {
        let schema = json!({"properties": {
            "a": {"default": 1}, "b": {"properties": {"c": {"default": [2]}}},
            "d": {"default": {}, "properties": {"e": {"default": 3}}}, "f": {}}});
        let filled = Schema::compile(&schema).unwrap().fill_defaults(json!({"a": null, "b": {}}));
        assert_eq!(filled, json!({"a": null, "b": {"c": [2]}, "d": {"e": 3}}));
    }

    #[test]
    fn an_invalid_schema_is_refused() {
        for bad in [json!(true), json!([]), json!({"type": "banana"}), json!({"pattern": "("})] {
            assert!(Schema::compile(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_reference_to_another_document_is_refused() {
        for reference in ["http://127.0.0.1:1/s.json", "file:///etc/passwd", "other.json"] {
            let schema = json!({"properties": {"a": {"$ref": reference}}});
            assert!(Schema::compile(&schema).is_err(), "{reference}");
        }
    }

    #[test]
    fn a_reference_within_the_document_is_followed_also_in_a_circle() {
        let tree = json!({"$defs": {"t": {"properties": {"next": {"$ref": "#/$defs/t"}},
            "required": ["v"]}}, "$ref": "#/$defs/t"});
        let tree = Schema::compile(&tree).unwrap();
        assert!(tree.check(&json!({"v": 1, "next": {"v": 2}})).is_ok());
        assert!(tree.check(&json!({"v": 1, "next": {}})).is_err());
    }

    #[test]
    fn a_circular_schema_and_a_hostile_pattern_end() {
        if let Ok(schema) = Schema::compile(&json!({"$ref": "#"})) {
            let _ = schema.check(&json!({}));
        }
        let schema = Schema::compile(&json!({"pattern": "^(?=a)(a+)+$"})).unwrap();
        assert!(schema.check(&json!(format!("{}b", "a".repeat(40)))).is_err());
    }

    #[test]
    fn a_schema_as_deep_as_json_gets_does_not_overflow() {
        let wrap = |key: &str, n: usize| {
            (0..n).fold(json!({"type": "string"}), |inner, _| match key {
                "properties" => json!({"properties": {"a": inner}}),
                key => json!({key: [inner]}),
            })
        };
        for (key, depth) in [("properties", 60), ("allOf", 60), ("anyOf", 60)] {
            let schema = Schema::compile(&wrap(key, depth)).unwrap();
            let value = (0..120).fold(json!(1), |inner, _| json!({"a": inner}));
            let _ = schema.check(&schema.fill_defaults(value));
        }
    }
}
