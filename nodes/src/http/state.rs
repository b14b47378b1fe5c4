//! The key-value state of a conversation: what clients and tools note in it.

use abide_actors::request::{ChangeStateRequest, Reply, Request};
use abide_conversation::key_value::{StateRejection, is_state_key};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Map, Value};

use super::Api;
use super::conversations::unexpected;
use super::extract;
use super::extract::{AnyBody, Idempotency, Path};
use super::openapi::{IdempotencyKeyHeader, StatePath};
use super::problem::Problem;
use crate::access::Allowed;
use crate::access::permission::{Read, Update};

/// Reads the value of a key of the conversation's state.
#[utoipa::path(get, path = "/v1/conversations/{id}/state/{key}", operation_id = "get_state",
    tag = "conversations", params(StatePath),
    responses((status = 200, description = "The value.", body = Value)))]
pub(super) async fn get(
    allowed: Allowed<Read>,
    State(api): State<Api>,
    Path((id, key)): Path<(String, String)>,
) -> Result<Json<Value>, Problem> {
    let id = allowed.conversation(&id)?;
    let state = api.conversations.state(&allowed, &id).await?;
    let value = state.key_values.get(&key).cloned();
    value.map(Json).ok_or_else(|| Problem::not_found("key"))
}

/// Sets a key of the conversation's state. All keys together have at most 64 KiB.
///
/// A value that the key has already is no change, and has no event.
#[utoipa::path(put, path = "/v1/conversations/{id}/state/{key}", operation_id = "put_state",
    tag = "conversations", params(StatePath, IdempotencyKeyHeader),
    request_body(content = Value, description = "The value: any JSON but null.",
        example = json!({"step": 2})),
    responses((status = 204, description = "The key has the value.")))]
pub(super) async fn put(
    allowed: Allowed<Update>,
    State(api): State<Api>,
    Path((id, key)): Path<(String, String)>,
    idempotency: Idempotency,
    AnyBody(body): AnyBody,
) -> Result<StatusCode, Problem> {
    let id = allowed.conversation(&id)?;
    if !is_state_key(&key) {
        return Err(Problem::field("key", StateRejection::Key));
    }
    let (value, fingerprint) = body.into_parts();
    if value.is_null() {
        return Err(Problem::field("value", "must not be null: DELETE removes a key"));
    }
    let changes = Map::from_iter([(key, value)]);
    let request = Request::ChangeState(ChangeStateRequest { changes, by: allowed.principal() });
    let keys = idempotency.keys(&allowed, fingerprint);
    match api.conversations.deliver(&allowed, &id, request, keys).await? {
        Reply::Noted => Ok(StatusCode::NO_CONTENT),
        other => Err(unexpected(&other)),
    }
}

/// Removes a key of the conversation's state, if it is there.
#[utoipa::path(delete, path = "/v1/conversations/{id}/state/{key}", operation_id = "delete_state",
    tag = "conversations", params(StatePath, IdempotencyKeyHeader),
    responses((status = 204, description = "The key is not there.")))]
pub(super) async fn delete(
    allowed: Allowed<Update>,
    State(api): State<Api>,
    Path((id, key)): Path<(String, String)>,
    idempotency: Idempotency,
) -> Result<StatusCode, Problem> {
    let id = allowed.conversation(&id)?;
    if !is_state_key(&key) {
        return Err(Problem::field("key", StateRejection::Key));
    }
    let fingerprint = extract::fingerprint(&["delete_state", id.as_str(), &key]);
    let changes = Map::from_iter([(key, Value::Null)]);
    let request = Request::ChangeState(ChangeStateRequest { changes, by: allowed.principal() });
    let keys = idempotency.keys(&allowed, fingerprint);
    match api.conversations.deliver(&allowed, &id, request, keys).await? {
        Reply::Noted => Ok(StatusCode::NO_CONTENT),
        other => Err(unexpected(&other)),
    }
}
