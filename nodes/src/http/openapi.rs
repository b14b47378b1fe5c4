//! The OpenAPI document: the descriptions of the handlers, and what all operations share.

mod a2a;
mod any_of;
mod generators;
mod mcp;
mod openai;
mod params;
mod problems;
mod tagged;

use std::sync::LazyLock;

use crate::access::Allowed;
use crate::access::permission::Known;
use axum::http::header;
use axum::response::IntoResponse;
use serde_json::{Value, json};
use utoipa::openapi::{InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder};

pub(super) use abide_actors::agent::document::{AgentDocument, ToolDocument};
pub(super) use any_of::any_of;
pub(super) use params::{
    AgentDecisionPath, AgentPath, BlobPath, CallPath, CallbackPath, ChatPath, ConversationPath,
    DecisionPath, ErasurePath, IdempotencyKeyHeader, KeyPath, LastEventId, LeasePath,
    PrincipalHeader, QueuePath, QueuedTurnPath, RuntimeThreadPath, SchedulePath, ScheduledPath,
    StatePath,
};
pub(super) use tagged::{JournalEvent, StreamFrame};

const DESCRIPTION: &str = "\
Durable conversations between people, models and tools.

All times are RFC 3339 in UTC, with three digits of a second. Sizes are in bytes; durations in definitions are texts such as \
`300s`, `5m` or `250ms`. A body is JSON of at most 1 MiB; an unknown field, or an unknown query \
parameter of a listing, is an error that names it. Only blobs are sent as raw bytes, up to 20 MiB. \
Every error is `application/problem+json` (RFC 9457). A 2xx to a mutating request means that the \
change is in the journal at the configured durability. Every mutating request accepts \
`Idempotency-Key`: for a day, a repeat with the same body gets the first response, and one with \
another body is refused with 422. An unknown method on a known path is answered with 405, an unknown \
path with 404. A request that changes something, has an `Origin` header and is not sent as JSON or \
YAML is refused with 400, even without a body: a page of another origin could have sent it.";

/// The document, as text.
pub fn text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| format!("{:#}", document()));
    &TEXT
}

/// A document without operations; the router adds them.
pub(super) fn blank() -> OpenApi {
    let license = LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0")).build();
    let info = InfoBuilder::new()
        .title("Abide")
        .description(Some(DESCRIPTION))
        .version(env!("CARGO_PKG_VERSION"))
        .license(Some(license));
    OpenApiBuilder::new().info(info).build()
}

/// Reads this document, the OpenAPI 3.1 description of the public API.
#[utoipa::path(get, path = "/openapi.json", operation_id = "get_openapi", tag = "meta",
    responses((status = 200, description = "OpenAPI 3.1.", body = Object)))]
pub(super) async fn openapi(_: Allowed<Known>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], text())
}

fn document() -> Value {
    let mut document = json!(super::routes().into_parts().1);
    tagged::journal(&mut document);
    tagged::frames(&mut document);
    tagged::inbox_frames(&mut document);
    one_of(&mut document, "ResolutionRequest", &["approved", "result", "error"]);
    one_of(&mut document, "NewMessage", &["text", "content"]);
    headers_are_not_null(&mut document);
    summary_may_be_false(&mut document);
    a_retried_status_may_be_a_number(&mut document);
    problems::describe(&mut document);
    credentials(&mut document);
    generators::suit(&mut document);
    document
}

/// Requires exactly one of these fields.
fn one_of(document: &mut Value, name: &str, fields: &[&str]) {
    let alternatives: Vec<Value> =
        fields.iter().map(|field| json!({"required": [field]})).collect();
    schemas(document)[name]["oneOf"] = json!(alternatives);
}

/// Adds `false` to what an agent's `summary` may be.
fn summary_may_be_false(document: &mut Value) {
    let summary = &mut schemas(document)["AgentDefinition"]["properties"]["summary"];
    if let Some(alternatives) = summary["oneOf"].as_array_mut() {
        alternatives.push(json!({"type": "boolean", "enum": [false]}));
    }
}

/// Adds the number 429 to what a tool's `retry.on` may name: YAML reads `429` as one.
fn a_retried_status_may_be_a_number(document: &mut Value) {
    schemas(document)["ToolRetry"]["properties"]["on"]["items"] = json!({"oneOf": [
        {"type": "string", "enum": ["network", "429", "5xx", "timeout"]},
        {"type": "integer", "enum": [429]},
    ]});
}

/// Says how callers authenticate. A node on loopback alone asks for no credential.
fn credentials(document: &mut Value) {
    let description = "An API key, a JWT of an issuer, or a conversation token.";
    document["components"]["securitySchemes"] =
        json!({"credential": {"type": "http", "scheme": "bearer", "description": description}});
    document["security"] = json!([{"credential": []}, {}]);
}

/// Removes `null` from the types of header parameters: a header is absent, never null.
fn headers_are_not_null(document: &mut Value) {
    let Value::Object(paths) = &mut document["paths"] else { return };
    let items = paths.values_mut().filter_map(Value::as_object_mut);
    for operation in items.flat_map(|item| item.values_mut()) {
        let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
        for parameter in parameters.into_iter().flatten() {
            let Value::Array(kinds) = &parameter["schema"]["type"] else { continue };
            if let Some(kind) = kinds.first().cloned() {
                parameter["schema"]["type"] = kind;
            }
        }
    }
}

/// The schemas of all components.
fn schemas(document: &mut Value) -> &mut Value {
    &mut document["components"]["schemas"]
}

/// `snake_case` as `PascalCase`.
fn pascal(snake: &str) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        let first = letters.next().map(|first| first.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    };
    snake.split('_').map(word).collect()
}
