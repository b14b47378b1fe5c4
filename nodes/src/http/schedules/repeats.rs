//! Repeats of requests about schedules get the first response.

use abide_actors::journal::{RESPONSE_TTL, ResponseScope, StoredResponse};
use abide_actors::request::IdempotencyKey;
use abide_conversation::{ScheduleName, Scoped, Timestamp};
use serde_json::Value;

use crate::http::Api;
use crate::http::problem::Problem;

/// The response to the first request with these keys; `None` if this is the first.
pub(super) async fn first(
    api: &Api,
    id: &Scoped<ScheduleName>,
    keys: &[IdempotencyKey],
) -> Result<Option<Value>, Problem> {
    let scope = ResponseScope::Creations(id.tenant());
    for key in keys {
        match api.store.stored_response(&scope, &name_of(id, key), api.clock.now()).await? {
            Some(first) if first.fingerprint == key.fingerprint => return Ok(Some(first.body)),
            Some(_) => return Err(Problem::field(&key.field, "was used for another request")),
            None => {}
        }
    }
    Ok(None)
}

/// Keeps the response for a day. Where this fails, the repeat does what was asked once more, which
/// changes nothing but the version of the schedule.
pub(super) async fn keep(
    api: &Api,
    id: &Scoped<ScheduleName>,
    keys: Vec<IdempotencyKey>,
    body: Value,
) -> Result<(), Problem> {
    let (scope, now) = (ResponseScope::Creations(id.tenant()), api.clock.now());
    for key in keys {
        let name = name_of(id, &key);
        let expires_at = now.checked_add(RESPONSE_TTL).unwrap_or(Timestamp::MAX);
        let (fingerprint, body) = (key.fingerprint, body.clone());
        let response = StoredResponse { key: name, fingerprint, body, expires_at };
        api.store.reserve(&scope, response, now).await?;
    }
    Ok(())
}

/// Creations of conversations have keys in the same scope, and none with such a name.
fn name_of(id: &Scoped<ScheduleName>, key: &IdempotencyKey) -> String {
    format!("schedule:{}:{}", id.local(), key.key)
}
