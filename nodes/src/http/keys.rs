//! API keys of a tenant: make one, list them, revoke one.

use std::collections::BTreeSet;
use std::time::Duration;

use abide_actors::agent;
use abide_conversation::identity::Role;
use abide_conversation::{QueueName, Timestamp};
use abide_registry::store::{Effect, KeyChange, StoredKey};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Api;
use super::extract::{Body, Idempotency, NoParameters, Path, Query};
use super::openapi::KeyPath;
use super::problem::{Kind, Problem};
use crate::access::Allowed;
use crate::access::api_key::NewKey;
use crate::access::document::{QUEUE_RULE, check_worker};
use crate::access::permission::ManageKeys;
use crate::operations::{Act, key_request};

/// How long a key lives at most, and unless its request says otherwise.
const MAX_LIFETIME: Duration = Duration::from_secs(365 * 86_400);
/// How long a key that is replaced stays valid unless the request says otherwise.
const DEFAULT_OVERLAP: Duration = Duration::from_secs(86_400);
const MAX_NAME_CHARS: usize = 255;
/// The queues of one key.
const MAX_QUEUES: usize = 64;
/// The keys of one tenant. Every node holds all keys in memory.
const MAX_KEYS: usize = 1_000;

/// A key to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewKey)]
pub(super) struct NewKeyBody {
    /// For people, such as the name of the service that has the key.
    #[schema(min_length = 1, max_length = 255)]
    name: String,
    /// Any role but `operator`.
    #[schema(min_items = 1)]
    roles: BTreeSet<Role>,
    /// Keys of workers only: the queues that they take calls from.
    #[serde(default)]
    #[schema(max_items = 64)]
    queues: BTreeSet<QueueName>,
    /// A duration of at most 365 days, which is also the default.
    #[schema(example = "720h")]
    expires_in: Option<String>,
    /// The id of the key that this one replaces: it stays valid for `overlap` and then expires.
    replaces: Option<String>,
    /// With `replaces`: a duration of at most 365 days; `24h` if absent.
    #[schema(example = "24h")]
    overlap: Option<String>,
}

/// A key that was made.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct KeyMade {
    id: String,
    /// The key itself. It is shown this once and stored nowhere.
    key: String,
    name: String,
    roles: BTreeSet<Role>,
    expires_at: Timestamp,
}

/// A key in a list.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = KeyRow)]
pub(super) struct Row {
    id: String,
    name: String,
    roles: BTreeSet<Role>,
    /// The queues of a worker's key.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    queues: BTreeSet<QueueName>,
    /// The subject who made it.
    owner: String,
    created_at: Timestamp,
    expires_at: Timestamp,
    /// Null if it was never used; up to a minute late.
    #[schema(required)]
    last_used_at: Option<Timestamp>,
}

/// The keys of a tenant.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct KeyRows {
    /// The oldest first; those of the node's file are not among them.
    keys: Vec<Row>,
}

/// Makes an API key.
///
/// Its text is in this answer and nowhere else, so that a repeat would be another key: an
/// `Idempotency-Key` is refused.
#[utoipa::path(post, path = "/v1/keys", operation_id = "create_key", tag = "access",
    request_body(content = NewKeyBody, example = json!({"name": "shop", "roles": ["backend"]})),
    responses((status = 201, description = "The key.", body = KeyMade)))]
pub(super) async fn create(
    allowed: Allowed<ManageKeys>,
    State(api): State<Api>,
    idempotency: Idempotency,
    body: Body<NewKeyBody>,
) -> Result<(StatusCode, Json<KeyMade>), Problem> {
    if idempotency.is_given() {
        let rule = "is not accepted: the answer would have to be stored with the key";
        return Err(Problem::field("Idempotency-Key", rule));
    }
    let NewKeyBody { name, roles, queues, expires_in, replaces, overlap } = body.value;
    check(&name, &roles)?;
    check_queues(&roles, &queues)?;
    let lifetime = duration("expires_in", expires_in.as_deref(), MAX_LIFETIME)?;
    if overlap.is_some() && replaces.is_none() {
        return Err(Problem::field("overlap", "is only for a key that replaces another"));
    }
    let overlap = duration("overlap", overlap.as_deref(), DEFAULT_OVERLAP)?;
    let now = api.clock.now();
    let keys = tenants_keys(&api, &allowed).await?;
    let replaced = match replaces {
        Some(id) => {
            let old = keys.iter().find(|key| key.id == id && now < key.expires_at);
            Some(old.cloned().ok_or_else(|| Problem::field("replaces", "is no valid key"))?)
        }
        None => None,
    };
    if keys.len() >= MAX_KEYS {
        let detail = format!("the tenant has {MAX_KEYS} keys: revoke some first");
        return Err(Problem::new(Kind::InvalidRequest, detail));
    }
    let new = NewKey::generate()
        .ok_or_else(|| Problem::new(Kind::Internal, "the system has no randomness"))?;
    let stored = StoredKey {
        id: new.id.clone(),
        sha256: new.digest().to_string(),
        tenant: allowed.tenant(),
        roles: roles.clone(),
        queues,
        name: name.clone(),
        owner: allowed.principal().as_str().to_owned(),
        created_at: now,
        expires_at: later(now, lifetime),
    };
    let expires_at = stored.expires_at;
    change(&api, &allowed, "key.create", KeyChange::Add(stored)).await?;
    if let Some(old) = replaced {
        let expires_at = old.expires_at.min(later(now, overlap));
        let old = KeyChange::Update(StoredKey { expires_at, ..old });
        change(&api, &allowed, "key.expire", old).await?;
    }
    api.access.keys_changed().await;
    let made = KeyMade { id: new.id, key: new.text, name, roles, expires_at };
    Ok((StatusCode::CREATED, Json(made)))
}

/// Lists the API keys of the tenant, without their texts.
#[utoipa::path(get, path = "/v1/keys", operation_id = "list_keys", tag = "access",
    responses((status = 200, description = "The keys.", body = KeyRows)))]
pub(super) async fn list(
    allowed: Allowed<ManageKeys>,
    State(api): State<Api>,
    _: Query<NoParameters>,
) -> Result<Json<KeyRows>, Problem> {
    let mut keys = tenants_keys(&api, &allowed).await?;
    keys.sort_by(|one, other| (one.created_at, &one.id).cmp(&(other.created_at, &other.id)));
    let used = api.store.keys_used(&allowed.tenant()).await?;
    let row = |StoredKey { id, name, roles, queues, owner, created_at, expires_at, .. }| {
        let last_used_at = used.get(&id).copied();
        Row { id, name, roles, queues, owner, created_at, expires_at, last_used_at }
    };
    Ok(Json(KeyRows { keys: keys.into_iter().map(row).collect() }))
}

/// Revokes an API key: within five seconds no node accepts it.
#[utoipa::path(delete, path = "/v1/keys/{id}", operation_id = "revoke_key", tag = "access",
    params(KeyPath),
    responses((status = 204, description = "The key is revoked.")))]
pub(super) async fn revoke(
    allowed: Allowed<ManageKeys>,
    State(api): State<Api>,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let missing = || Problem::not_found("key");
    let keys = tenants_keys(&api, &allowed).await?;
    keys.iter().find(|key| key.id == id).ok_or_else(missing)?;
    let removal = KeyChange::Remove(allowed.scoped(&id));
    if !change(&api, &allowed, "key.revoke", removal).await? {
        return Err(missing());
    }
    api.access.keys_changed().await;
    Ok(StatusCode::NO_CONTENT)
}

/// Changes a key, with an entry in the operators' audit. Returns whether it was there.
async fn change(
    api: &Api,
    allowed: &Allowed<ManageKeys>,
    operation: &'static str,
    change: KeyChange,
) -> Result<bool, Problem> {
    let act = Act::of_caller(allowed, operation, change.id().local());
    let act = match &change {
        KeyChange::Add(key) | KeyChange::Update(key) => act.with_request(&key_request(key)),
        KeyChange::Remove(_) => act,
    };
    api.operations.carry_out(act, Effect::ChangeKey(change)).await
}

async fn tenants_keys(api: &Api, allowed: &Allowed<ManageKeys>) -> Result<Vec<StoredKey>, Problem> {
    Ok(api.store.tenants_keys(&allowed.tenant()).await?)
}

fn check(name: &str, roles: &BTreeSet<Role>) -> Result<(), Problem> {
    if !(1..=MAX_NAME_CHARS).contains(&name.chars().count()) || name.chars().any(char::is_control) {
        let rule = format!("must be 1 to {MAX_NAME_CHARS} characters without control characters");
        return Err(Problem::field("name", rule));
    }
    if roles.is_empty() {
        return Err(Problem::field("roles", "must name at least one role"));
    }
    if roles.contains(&Role::Operator) {
        return Err(Problem::field("roles", "operator is no role of a tenant"));
    }
    Ok(())
}

/// Checks the queues of a worker's key.
fn check_queues(roles: &BTreeSet<Role>, queues: &BTreeSet<QueueName>) -> Result<(), Problem> {
    check_worker(roles, !queues.is_empty()).map_err(|(field, rule)| Problem::field(field, rule))?;
    if queues.len() > MAX_QUEUES {
        return Err(Problem::field("queues", format!("must be at most {MAX_QUEUES}")));
    }
    let is_legal = |queue: &&QueueName| QueueName::parse(queue.as_str()).is_none();
    match queues.iter().find(is_legal) {
        Some(_) => Err(Problem::field("queues", format!("each {QUEUE_RULE}"))),
        None => Ok(()),
    }
}

fn duration(field: &str, given: Option<&str>, default: Duration) -> Result<Duration, Problem> {
    let Some(given) = given else { return Ok(default) };
    agent::duration(given).map_err(|reason| Problem::field(field, reason))
}

fn later(now: Timestamp, span: Duration) -> Timestamp {
    let span = SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX);
    now.checked_add(span).unwrap_or(Timestamp::MAX)
}
