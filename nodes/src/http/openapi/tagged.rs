//! Describes tagged unions with a named component for each member, so that client generators can name
//! their types.

use std::borrow::Cow;

use abide_conversation::event::EventData;
use serde_json::{Value, json};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use utoipa::{PartialSchema, ToSchema};

use super::{pascal, schemas};
use crate::http::frames::Payload;
use crate::http::inbox_events::InboxFrame;

/// Stands for an event where a schema refers to one.
pub(in crate::http) struct JournalEvent;

/// Stands for a frame where a schema refers to one.
pub(in crate::http) struct StreamFrame;

/// Registers the schemas that the members of an enum refer to; the union itself is described later.
macro_rules! stands_for {
    ($name:ident, $union:ty) => {
        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                <$union>::schema()
            }
        }

        impl ToSchema for $name {
            fn name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
                <$union as ToSchema>::schemas(schemas);
            }
        }
    };
}

stands_for!(JournalEvent, EventData);
stands_for!(StreamFrame, Payload);

/// Describes a journal's events: one component per type.
pub(super) fn journal(document: &mut Value) {
    let union = "One event of a journal. More types may be added: ignore unknown ones.";
    let seq = json!({
        "type": "integer", "format": "int64", "minimum": 1,
        "description": "Counts from 1 without gaps."
    });
    let fields = [
        ("seq", seq, true),
        ("at", json!({"type": "string", "format": "date-time"}), true),
        ("turn_id", json!({"$ref": "#/components/schemas/TurnId"}), false),
    ];
    let name = |kind: &str| format!("{}Event", pascal(kind));
    let members = members(json!(EventData::schema()), "type", &fields, name);
    describe(document, "JournalEvent", union, "type", members);
}

/// Describes a stream's frames: one component per event name.
pub(super) fn frames(document: &mut Value) {
    let union = "One frame of an event stream: `event` is its event line, `data` its data line as \
                 JSON, `id` its id line, which only the last frame of a journalled event has, and \
                 deltas with `cursor=chars`. More \
                 frames may be added: ignore unknown ones.";
    let id = json!({"type": "string",
        "pattern": r"^[0-9]+(\.[0-9]+\.[0-9]+\.[A-Za-z0-9_-]+)?$",
        "description": "The seq of the event; with `cursor=chars`, inside a message, \
            `SEQ.CHARS.THINKING.MESSAGE`."});
    let name = |kind: &str| format!("{}Frame", pascal(kind));
    let members = members(json!(Payload::schema()), "event", &[("id", id, false)], name);
    describe(document, "StreamFrame", union, "event", members);
}

/// Describes the frames of a live inbox: one component per event name.
pub(super) fn inbox_frames(document: &mut Value) {
    let union = "One frame of the inbox's stream: `event` is its event line, `data` its data line as \
                 JSON. More frames may be added: ignore unknown ones.";
    let name = |kind: &str| format!("Inbox{}Frame", pascal(kind));
    let members = members(json!(InboxFrame::schema()), "event", &[], name);
    describe(document, "InboxFrame", union, "event", members);
}

struct Member {
    tag: String,
    name: String,
    schema: Value,
}

/// The members of an adjacently tagged enum, each with these fields (name, schema, whether required)
/// added.
fn members(
    union: Value,
    tag: &str,
    fields: &[(&str, Value, bool)],
    name: impl Fn(&str) -> String,
) -> Vec<Member> {
    let variants = union["oneOf"].as_array().cloned().unwrap_or_default();
    let member = |mut schema: Value| {
        let kind = schema["properties"][tag]["enum"][0].as_str().unwrap_or_default().to_owned();
        for (field, field_schema, is_required) in fields {
            schema["properties"][*field] = field_schema.clone();
            if let (true, Value::Array(all)) = (is_required, &mut schema["required"]) {
                all.push(json!(field));
            }
        }
        Member { name: name(&kind), tag: kind, schema }
    };
    variants.into_iter().map(member).collect()
}

fn describe(document: &mut Value, union: &str, description: &str, tag: &str, members: Vec<Member>) {
    let mut refs = Vec::new();
    let mut mapping = json!({});
    for Member { tag, name, schema } in members {
        let at = format!("#/components/schemas/{name}");
        refs.push(json!({"$ref": at}));
        mapping[tag] = json!(at);
        schemas(document)[name] = schema;
    }
    schemas(document)[union] = json!({
        "description": description,
        "oneOf": refs,
        "discriminator": {"propertyName": tag, "mapping": mapping},
    });
}
