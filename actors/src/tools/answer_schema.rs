//! The schema of an answer to a suspended call, with which user interfaces draw a form.

use std::sync::Arc;

use abide_conversation::AnswerSchema;
use abide_conversation::elicitation::MAX_ANSWER_SCHEMA_BYTES;
use serde_json::{Map, Value, json};

use crate::definition::Tool;

/// Where the schema of the arguments is in the schema of an approval.
const ARGS_PATH: &str = "/properties/args";
/// Keywords whose values are data, in which nothing is a reference.
const DATA: [&str; 5] = ["const", "default", "enum", "example", "examples"];
/// Keywords with several subschemas, each under a name.
const MAPS: [&str; 6] =
    ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"];
/// Keywords that refer to a schema.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// The arguments of a tool, as its definition or its builtin describes them.
pub(super) fn parameters(tool: &Tool) -> Arc<Value> {
    match tool.builtin() {
        Some(builtin) => Arc::new(builtin.parameters()),
        None => tool.parameters.shared_source(),
    }
}

/// The schema of the body of an approval. Arguments whose schema is too large may be any object.
pub(super) fn of_approval(tool: &Tool) -> AnswerSchema {
    match tool.builtin() {
        Some(builtin) => approval_of(&builtin.parameters()),
        None => tool.parameters.approval(approval_of),
    }
}

fn approval_of(parameters: &Value) -> AnswerSchema {
    let schema = |args: Value| {
        AnswerSchema::from(&json!({
            "type": "object",
            "properties": {
                "approved": {"type": "boolean"},
                "reason": {"type": "string"},
                "args": args,
            },
            "required": ["approved"],
        }))
    };
    let whole = schema(below_args(parameters));
    if whole.text().len() <= MAX_ANSWER_SCHEMA_BYTES {
        whole
    } else {
        schema(json!({"type": "object"}))
    }
}

/// The schema of the result of a person or a page; `None` if any result fits, or if the schema is too
/// large.
pub(super) fn of_result(tool: &Tool) -> Option<AnswerSchema> {
    // A worker is told of its mistake by the answer to its request.
    let schema = tool.result_schema().filter(|_| tool.queue().is_none())?;
    let schema = AnswerSchema::from(schema.source());
    (schema.text().len() <= MAX_ANSWER_SCHEMA_BYTES).then_some(schema)
}

/// A schema as it must be written below [`ARGS_PATH`]: its references to itself lead there.
fn below_args(schema: &Value) -> Value {
    let Value::Object(members) = schema else { return schema.clone() };
    let mut moved = with_moved_references(members);
    if !members.contains_key("$id") {
        // Only the root of a schema with an id of its own may name its dialect.
        moved.remove("$schema");
    }
    Value::Object(moved)
}

fn with_moved_references(members: &Map<String, Value>) -> Map<String, Value> {
    // References below an id are relative to it.
    if members.contains_key("$id") {
        return members.clone();
    }
    let moved = |(keyword, value): (&String, &Value)| {
        let value = match value {
            Value::String(target) if REFERENCES.contains(&keyword.as_str()) => moved_target(target),
            value if DATA.contains(&keyword.as_str()) => value.clone(),
            Value::Object(named) if MAPS.contains(&keyword.as_str()) => {
                let named = named.iter().map(|(name, schema)| (name.clone(), in_place(schema)));
                Value::Object(named.collect())
            }
            value => in_place(value),
        };
        (keyword.clone(), value)
    };
    members.iter().map(moved).collect()
}

fn in_place(value: &Value) -> Value {
    match value {
        Value::Object(members) => Value::Object(with_moved_references(members)),
        Value::Array(items) => Value::Array(items.iter().map(in_place).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// The target of a reference; anchors and other documents stay as they are.
fn moved_target(target: &str) -> Value {
    match target.strip_prefix('#') {
        Some(pointer) if pointer.is_empty() || pointer.starts_with('/') => {
            Value::String(format!("#{ARGS_PATH}{pointer}"))
        }
        Some(_) | None => Value::String(target.to_owned()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::agent::client_tools;
    use crate::expressions::schema::Schema;

    fn tool(parameters: Value) -> Tool {
        let entry = json!({"name": "send", "executor": "client", "parameters": parameters});
        client_tools(&[entry]).unwrap()[0].clone()
    }

    fn value(schema: &AnswerSchema) -> Value {
        serde_json::from_str(schema.text()).unwrap()
    }

    #[test]
    fn an_approval_admits_the_arguments_that_the_tool_admits() {
        let tree = json!({"$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object", "required": ["to"], "properties": {
                "to": {"$ref": "#/$defs/address"}, "cc": {"$ref": "#"},
                "$ref": {"type": "integer"}, "note": {"const": {"$ref": "#/x"}}},
            "$defs": {"address": {"type": "string", "pattern": "@"}}});
        let tool = tool(tree);
        let approval = Schema::compile(&value(&of_approval(&tool))).unwrap();
        for args in [
            json!({"to": "a@b"}),
            json!({"to": "ab"}),
            json!({"to": "a@b", "cc": {"to": "c@d"}}),
            json!({"to": "a@b", "cc": {"to": "cd"}}),
            json!({"to": "a@b", "$ref": "no integer"}),
            json!({"to": "a@b", "note": {"$ref": "#/x"}}),
            json!({"to": "a@b", "note": {"$ref": "#/properties/args/x"}}),
            json!(1),
        ] {
            let is_valid = tool.parameters.check(&args).is_ok();
            let body = json!({"approved": true, "reason": "because", "args": args});
            assert_eq!(approval.check(&body).is_ok(), is_valid, "{body}");
        }
        assert!(approval.check(&json!({"approved": false})).is_ok());
        assert!(approval.check(&json!({"reason": "no"})).is_err());
    }

    #[test]
    fn references_below_an_id_stay_as_they_are() {
        let with_id = json!({"$id": "https://a.example/s", "type": "object",
            "properties": {"to": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"type": "string"}}});
        let schema = value(&of_approval(&tool(with_id.clone())));
        assert_eq!(schema["properties"]["args"], with_id);
        let approval = Schema::compile(&schema).unwrap();
        assert!(approval.check(&json!({"approved": true, "args": {"to": "b"}})).is_ok());
        assert!(approval.check(&json!({"approved": true, "args": {"to": 1}})).is_err());
    }

    #[test]
    fn schemas_that_are_too_large_are_left_out() {
        let text = "x".repeat(MAX_ANSWER_SCHEMA_BYTES);
        let large = tool(json!({"type": "object", "description": text}));
        assert_eq!(value(&of_approval(&large))["properties"]["args"], json!({"type": "object"}));
        let entry = json!({"name": "ask", "executor": "human", "result_schema":
            {"type": "object", "description": text}});
        assert_eq!(of_result(&client_tools(&[entry]).unwrap()[0]), None);
    }
}
