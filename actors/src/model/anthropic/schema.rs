//! A JSON Schema as the provider takes it for a structured answer.

use serde_json::{Map, Value, json};

/// Words that it takes; a schema with any other is refused.
const SUPPORTED_KEYWORDS: [&str; 17] = [
    "$defs",
    "$ref",
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "default",
    "definitions",
    "description",
    "enum",
    "format",
    "items",
    "minItems",
    "properties",
    "required",
    "title",
    "type",
];

/// The formats of strings that it takes.
const SUPPORTED_FORMATS: [&str; 10] =
    ["date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"];

/// The schema with every object closed, and with what the provider does not enforce told in the
/// descriptions instead. What satisfies it need not satisfy the schema; the answer is judged by
/// that one.
pub(super) fn strict(schema: &Value) -> Value {
    let Some(schema) = schema.as_object() else { return schema.clone() };
    let mut kept = Map::new();
    let mut told = Map::new();
    for (word, value) in schema {
        let list = |value: &Value| value.as_array().map(|it| it.iter().map(strict).collect());
        let enforced = match (word.as_str(), value) {
            ("$defs" | "definitions" | "properties", Value::Object(named)) => {
                Some(named.iter().map(|(name, it)| (name.clone(), strict(it))).collect())
            }
            ("allOf" | "anyOf", _) => list(value),
            ("items", _) => Some(strict(value)),
            ("format", _) => {
                SUPPORTED_FORMATS.iter().any(|known| value == known).then(|| value.clone())
            }
            ("minItems", _) => (value.as_u64() <= Some(1)).then(|| value.clone()),
            (word, _) => SUPPORTED_KEYWORDS.contains(&word).then(|| value.clone()),
        };
        match (word.as_str(), enforced) {
            ("$schema" | "$id" | "$comment" | "examples", _) => {}
            ("oneOf", _) if !schema.contains_key("anyOf") => {
                kept.extend(list(value).map(|it: Value| ("anyOf".to_owned(), it)));
            }
            (_, Some(enforced)) => drop(kept.insert(word.clone(), enforced)),
            (_, None) => drop(told.insert(word.clone(), value.clone())),
        }
    }
    let types = kept.get("type");
    if types == Some(&json!("object")) || kept.contains_key("properties") {
        kept.insert("additionalProperties".to_owned(), false.into());
    }
    if !told.is_empty() {
        let said = kept.get("description").and_then(Value::as_str).unwrap_or_default();
        let said = format!("{said}\n{}", Value::Object(told)).trim().to_owned();
        kept.insert("description".to_owned(), said.into());
    }
    Value::Object(kept)
}
