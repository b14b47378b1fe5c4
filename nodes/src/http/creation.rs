//! What an `Idempotency-Key` of a creation stands for: one new conversation, and the answer that tells of
//! it.
//!
//! The answer outlives the conversation, so that a late repeat makes no deleted conversation again.

use abide_actors::journal::{ResponseScope, StoredResponse};
use abide_actors::request::IdempotencyKey;
use abide_conversation::{ConversationId, Scoped};
use serde_json::{Value, json};

use super::Api;
use super::conversations::ConversationCreated;
use super::problem::{Kind, Problem};
use super::repeats::{self, Repeats};

/// Carries out a creation with these keys once: under `id`, unless an earlier request with them has
/// reserved another. A repeat gets the first answer; a key whose request was refused may be used for
/// another one.
pub(super) async fn once(
    api: &Api,
    id: Scoped<ConversationId>,
    keys: &[IdempotencyKey],
    create: impl AsyncFnOnce(&Scoped<ConversationId>) -> Result<ConversationCreated, Problem>,
) -> Result<ConversationCreated, Problem> {
    let Some(key) = keys.first() else { return create(&id).await };
    // No key and no reservation begins like this.
    let answers = Repeats::new(api, id.tenant(), "answer".to_owned());
    if let Some(first) = answers.first(keys).await? {
        return Ok(first);
    }
    let id = reserved_or_anew(api, key, id).await?;
    let outcome = create(&id).await;
    match &outcome {
        Ok(created) => answers.keep(keys.to_vec(), created).await?,
        // It may have been carried out.
        Err(problem) if problem.status().is_server_error() => {}
        Err(_) => note_refusal(api, &id, key).await?,
    }
    outcome
}

/// The id that a key stands for; a request of its own has one if that which reserved it was refused.
async fn reserved_or_anew(
    api: &Api,
    key: &IdempotencyKey,
    id: Scoped<ConversationId>,
) -> Result<Scoped<ConversationId>, Problem> {
    let mut reserved = reserve(api, key, &id).await?;
    if reserved.fingerprint != key.fingerprint {
        let (scope, refusal) = (ResponseScope::Creations(id.tenant()), refusal_name(&reserved));
        if api.store.stored_response(&scope, &refusal, api.clock.now()).await?.is_none() {
            return Err(repeats::used_for_another(key));
        }
        // The reservation of the request that was refused stays.
        let anew = format!("anew:{}:{}", key.key, key.fingerprint);
        reserved = reserve(api, &IdempotencyKey { key: anew, ..key.clone() }, &id).await?;
    }
    sibling(&id, reserved.body)
}

/// Keeps that the request was refused, so that its key is free.
async fn note_refusal(
    api: &Api,
    id: &Scoped<ConversationId>,
    key: &IdempotencyKey,
) -> Result<(), Problem> {
    let mut refusal = repeats::stored(api, key.key.clone(), key, Value::Null);
    refusal.key = refusal_name(&refusal);
    api.store.reserve(&ResponseScope::Creations(id.tenant()), refusal, api.clock.now()).await?;
    Ok(())
}

/// Where it is kept that the request of this reservation was refused.
fn refusal_name(reserved: &StoredResponse) -> String {
    format!("refused:{}:{}", reserved.fingerprint, reserved.key)
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
