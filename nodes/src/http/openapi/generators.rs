//! What generators of clients need of the document. Each rule was found by a generator that left
//! something out, or made a type that typical calls do not fit: `.ci/openapi`.

use serde_json::{Value, json};

use super::{pascal, schemas};

const TAGS: [(&str, &str); 14] = [
    ("access", "Who the caller is, keys, tokens, and what a tenant has used."),
    ("agents", "Definitions of agents."),
    ("blobs", "Files of messages."),
    ("calls", "Calls that wait for an answer, and calls without a turn."),
    ("conversations", "Conversations, and their journals."),
    ("decisions", "Approvals that are remembered."),
    ("erasures", "Erasures of a person."),
    ("events", "Conversations, live."),
    ("messages", "Messages to conversations, and what was said in them."),
    ("meta", "This document."),
    ("protocols", "The protocols of other clients."),
    ("queues", "Calls for workers, and results of tools that call back."),
    ("schedules", "Messages that are sent again and again."),
    ("webhooks", "Notices of what happens in conversations."),
];

/// Changes the document so that generators make usable clients of it, and it means the same.
pub(super) fn suit(document: &mut Value) {
    document["servers"] =
        json!([{"url": "/", "description": "The node that serves the document."}]);
    let tag = |(name, description)| json!({"name": name, "description": description});
    document["tags"] = TAGS.map(tag).into();
    spell_out_unions(document);
    let Value::Object(schemas) = schemas(document) else { return };
    for (name, schema) in schemas {
        say_default_in_words(schema);
        name_enums(schema, name);
    }
    open_objects(document);
}

/// Replaces `allOf` of a union and an object by a union of objects with all members: generators drop
/// a schema that adds to a union.
fn spell_out_unions(document: &mut Value) {
    let all = schemas(document);
    let unions = all.clone();
    let Value::Object(all) = all else { return };
    for (owner, schema) in all {
        let Some([first, added]) = schema["allOf"].as_array().map(Vec::as_slice) else { continue };
        let at = first["$ref"].as_str().and_then(|at| at.rsplit('/').next());
        let members = at.and_then(|name| unions[name]["oneOf"].as_array());
        let Some(members) = members else { continue };
        let members: Vec<Value> =
            members.iter().map(|member| joined(owner, member, added)).collect();
        if let Value::Object(schema) = schema {
            schema.remove("allOf");
            schema.insert("oneOf".to_owned(), members.into());
        }
    }
}

/// An object with the members of both. Its title is its own, since it names a type.
fn joined(owner: &str, one: &Value, other: &Value) -> Value {
    let mut joined = one.clone();
    let title = one["title"].as_str().unwrap_or_default();
    joined["title"] = format!("{owner}{title}").into();
    for (name, schema) in other["properties"].as_object().into_iter().flatten() {
        joined["properties"][name] = schema.clone();
    }
    let required = [one, other].into_iter().filter_map(|schema| schema["required"].as_array());
    let required: Vec<Value> = required.flatten().cloned().collect();
    if !required.is_empty() {
        joined["required"] = required.into();
    }
    joined
}

/// Says defaults in descriptions: a property with a `default` would become a required one.
fn say_default_in_words(schema: &mut Value) {
    each_schema(schema, &mut |schema| {
        let Some(default) = schema.remove("default").filter(|default| !default.is_null()) else {
            return;
        };
        let before = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        let words = format!("{before} Default: `{default}`.");
        schema.insert("description".to_owned(), words.trim_start().into());
    });
}

/// Gives each enum that is a property a title, as the name of its type.
fn name_enums(schema: &mut Value, owner: &str) {
    each_schema(schema, &mut |schema| {
        let Some(Value::Object(properties)) = schema.get_mut("properties") else { return };
        for (name, property) in properties {
            if property["enum"].is_array() && property["title"].is_null() {
                property["title"] = format!("{owner}{}", pascal(name)).into();
            }
        }
    });
}

/// Says that an object of which nothing is described may have any members: generators would admit none.
fn open_objects(value: &mut Value) {
    const DESCRIBED_BY: [&str; 6] =
        ["properties", "additionalProperties", "allOf", "anyOf", "oneOf", "required"];
    each_schema(value, &mut |schema| {
        let is_object = schema.get("type").is_some_and(|kind| match kind {
            Value::Array(kinds) => kinds.contains(&json!("object")),
            kind => kind == "object",
        });
        if is_object && !DESCRIBED_BY.iter().any(|part| schema.contains_key(*part)) {
            schema.insert("additionalProperties".to_owned(), true.into());
        }
    });
}

/// Calls this with each object in the value.
fn each_schema(value: &mut Value, change: &mut impl FnMut(&mut serde_json::Map<String, Value>)) {
    match value {
        Value::Object(object) => {
            change(object);
            object.values_mut().for_each(|value| each_schema(value, change));
        }
        Value::Array(list) => list.iter_mut().for_each(|value| each_schema(value, change)),
        _ => {}
    }
}
