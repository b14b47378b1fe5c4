//! Rewrites a JSON Schema into the subset that the provider accepts for structured output.

use serde_json::{Map, Value, json};

/// The supported keywords; a schema with any other one is refused.
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

/// The supported formats of strings.
const SUPPORTED_FORMATS: [&str; 10] =
    ["date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"];

/// The schema with every object closed. Constraints that the provider does not enforce are moved
/// into the descriptions, so an answer that satisfies the result may violate the original schema,
/// against which the answer is validated.
pub(super) fn strict(schema: &Value) -> Value {
    let Some(schema) = schema.as_object() else { return schema.clone() };
    let mut strict_schema = Map::new();
    let mut unenforced = Map::new();
    for (keyword, value) in schema {
        let list = |value: &Value| value.as_array().map(|it| it.iter().map(strict).collect());
        let enforced = match (keyword.as_str(), value) {
            ("$defs" | "definitions" | "properties", Value::Object(named)) => {
                Some(named.iter().map(|(name, it)| (name.clone(), strict(it))).collect())
            }
            ("allOf" | "anyOf", _) => list(value),
            ("items", _) => Some(strict(value)),
            ("format", _) => {
                SUPPORTED_FORMATS.iter().any(|known| value == known).then(|| value.clone())
            }
            ("minItems", _) => (value.as_u64() <= Some(1)).then(|| value.clone()),
            (keyword, _) => SUPPORTED_KEYWORDS.contains(&keyword).then(|| value.clone()),
        };
        match (keyword.as_str(), enforced) {
            ("$schema" | "$id" | "$comment" | "examples", _) => {}
            ("oneOf", _) if !schema.contains_key("anyOf") => {
                strict_schema.extend(list(value).map(|it: Value| ("anyOf".to_owned(), it)));
            }
            (_, Some(enforced)) => drop(strict_schema.insert(keyword.clone(), enforced)),
            (_, None) => drop(unenforced.insert(keyword.clone(), value.clone())),
        }
    }
    let types = strict_schema.get("type");
    if types == Some(&json!("object")) || strict_schema.contains_key("properties") {
        strict_schema.insert("additionalProperties".to_owned(), false.into());
    }
    if !unenforced.is_empty() {
        let description = strict_schema.get("description").and_then(Value::as_str);
        let description = description.unwrap_or_default();
        let description = format!("{description}\n{}", Value::Object(unenforced)).trim().to_owned();
        strict_schema.insert("description".to_owned(), description.into());
    }
    Value::Object(strict_schema)
}
