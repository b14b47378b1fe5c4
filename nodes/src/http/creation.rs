//! What an `Idempotency-Key` of a creation stands for: one new conversation, and the answer that tells of
//! it.
//!
//! The answer outlives the conversation, so that a late repeat makes no deleted conversation again.

use abide_actors::journal::{ResponseScope, StoredResponse};
use abide_actors::request::IdempotencyKey;
use abide_conversation::identity::Tenant;
use abide_conversation::{ConversationId, Scoped};
use serde_json::{Value, json};

use super::Api;
use super::conversations::ConversationCreated;
use super::problem::{Kind, Problem};
use super::repeats::{self, Repeats};

/// A creation that was asked for.
pub(super) enum Creation {
    /// It is a repeat: the first answer.
    Answered(ConversationCreated),
    /// It is to be carried out under this id.
    New(Scoped<ConversationId>),
}

/// Begins a creation with these keys: under `id`, unless an earlier request with them has reserved
/// another.
///
/// A key whose request was refused may be used for another one.
pub(super) async fn begin(
    api: &Api,
    id: Scoped<ConversationId>,
    keys: &[IdempotencyKey],
) -> Result<Creation, Problem> {
    let Some(key) = keys.first() else { return Ok(Creation::New(id)) };
    if let Some(first) = answers(api, id.tenant()).first(keys).await? {
        return Ok(Creation::Answered(first));
    }
    let reserved = reserve(api, key, &id).await?;
    if reserved.fingerprint == key.fingerprint {
        return sibling(&id, reserved.body).map(Creation::New);
    }
    let (scope, refusal) = (ResponseScope::Creations(id.tenant()), refusal_name(&reserved));
    if api.store.stored_response(&scope, &refusal, api.clock.now()).await?.is_none() {
        return Err(repeats::used_for_another(key));
    }
    // The reservation of the request that was refused stays: this one has its own.
    let anew = format!("anew:{}:{}", key.key, key.fingerprint);
    let reserved = reserve(api, &IdempotencyKey { key: anew, ..key.clone() }, &id).await?;
    sibling(&id, reserved.body).map(Creation::New)
}

/// Keeps the answer to a creation for repeats of it; or that it was refused, so that its key is free.
pub(super) async fn settle(
    api: &Api,
    tenant: Tenant,
    keys: Vec<IdempotencyKey>,
    outcome: Result<ConversationCreated, Problem>,
) -> Result<ConversationCreated, Problem> {
    match &outcome {
        Ok(created) => answers(api, tenant).keep(keys, created).await?,
        // It may have been carried out.
        Err(problem) if problem.status().is_server_error() => {}
        Err(_) => {
            let (scope, now) = (ResponseScope::Creations(tenant), api.clock.now());
            for key in keys {
                let mut refusal = repeats::stored(api, key.key.clone(), &key, Value::Null);
                refusal.key = refusal_name(&refusal);
                api.store.reserve(&scope, refusal, now).await?;
            }
        }
    }
    outcome
}

/// Where it is kept that the request of this reservation was refused.
fn refusal_name(reserved: &StoredResponse) -> String {
    format!("refused:{}:{}", reserved.fingerprint, reserved.key)
}

/// The answers to creations. No key and no reservation begins like this.
fn answers(api: &Api, tenant: Tenant) -> Repeats<'_> {
    Repeats::new(api, tenant, "answer".to_owned())
}

/// The id that a key stands for: `id`, unless an earlier request reserved another.
///
/// It is stored before anything is created, so that a repeat after a crash in between creates the same.
pub(super) async fn reserved(
    api: &Api,
    id: Scoped<ConversationId>,
    keys: &[IdempotencyKey],
) -> Result<Scoped<ConversationId>, Problem> {
    let Some(key) = keys.first() else { return Ok(id) };
    let first = reserve(api, key, &id).await?;
    sibling(&id, repeats::of_same_request(key, first)?)
}

/// The first reservation under a key, which may be of another request.
async fn reserve(
    api: &Api,
    key: &IdempotencyKey,
    id: &Scoped<ConversationId>,
) -> Result<StoredResponse, Problem> {
    let (scope, now) = (ResponseScope::Creations(id.tenant()), api.clock.now());
    let reservation = repeats::stored(api, key.key.clone(), key, json!(id.local()));
    if api.store.reserve(&scope, reservation.clone(), now).await? {
        return Ok(reservation);
    }
    let first = api.store.stored_response(&scope, &key.key, now).await?;
    first.ok_or_else(|| Problem::new(Kind::Unavailable, "the key has just expired; try again"))
}

fn sibling(id: &Scoped<ConversationId>, body: Value) -> Result<Scoped<ConversationId>, Problem> {
    let first: ConversationId = serde_json::from_value(body).map_err(repeats::unreadable)?;
    Ok(id.sibling(&first))
}
