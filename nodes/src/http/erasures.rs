//! Erasures of a person: begin one, follow it, and read its report.

mod document;

use abide_actors::request::IdempotencyKey;
use abide_conversation::limits::is_subject;
use abide_conversation::{ConversationId, ErasureId, Scoped};
use abide_registry::erasure::Erasure;
use abide_registry::erasures::{self, find_running};
use aws_lc_rs::rand;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use self::document::ErasureDocument;
use super::Api;
use super::creation::reserved;
use super::extract::{self, Body, Idempotency, Path, Query};
use super::openapi::{ErasurePath, IdempotencyKeyHeader};
use super::problem::{Kind, Problem};
use crate::access::Allowed;
use crate::access::permission::ManageErasures;
use crate::operations::Act;

/// How many erasures of one tenant may run at a time.
const MAX_RUNNING: usize = 16;
/// How many erasures are looked through for those of a tenant.
const MAX_DUE: usize = 4_096;
/// What the id of an erasure begins with.
const PREFIX: &str = "er";
const SALT_BYTES: usize = 32;
/// Principals that are nobody's.
const NOBODY: [&str; 2] = ["anonymous", "system"];

/// The person to erase.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewErasure {
    /// The subject, as the owner of conversations.
    #[schema(min_length = 1, max_length = 255)]
    owner: String,
}

/// An erasure that was begun, or that ran already.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ErasureStarted {
    #[schema(example = "er_01k9")]
    id: ErasureId,
}

/// Begins to erase a person: deletes their conversations, and takes their name out of what is others'.
///
/// While an erasure of the same subject runs, it is the answer. It goes on by itself, whatever node
/// dies.
#[utoipa::path(post, path = "/v1/erasures", operation_id = "start_erasure", tag = "erasures",
    params(IdempotencyKeyHeader),
    request_body(content = NewErasure, example = json!({"owner": "ada@example.com"})),
    responses((status = 202, description = "The erasure runs.", body = ErasureStarted)))]
pub(super) async fn start(
    allowed: Allowed<ManageErasures>,
    State(api): State<Api>,
    idempotency: Idempotency,
    body: Body<NewErasure>,
) -> Result<(StatusCode, Json<ErasureStarted>), Problem> {
    let (NewErasure { owner }, fingerprint) = body.into_parts();
    if !is_subject(&owner) || NOBODY.contains(&owner.as_str()) {
        let rule = "must be 1 to 255 characters without control characters, \
                    and neither \"anonymous\" nor \"system\"";
        return Err(Problem::field("owner", rule));
    }
    let keys = idempotency.keys(&allowed, fingerprint);
    let name = Erasure::running_name(&allowed.tenant(), &owner);
    let running = api.store.erasure(&name).await?.map(|running| running.id);
    let id = match running {
        Some(running) => running,
        None => ErasureId::new(api.clock.id(PREFIX)),
    };
    let id = first_id(&api, &name, id, &keys).await?;
    if existing(&api, &allowed, &id).await?.is_none() {
        return begun(&api, &allowed, (name, id, owner)).await;
    }
    Ok((StatusCode::ACCEPTED, Json(ErasureStarted { id })))
}

/// The id of the erasure that the first request with these keys began.
async fn first_id(
    api: &Api,
    name: &Scoped<ErasureId>,
    id: ErasureId,
    keys: &[IdempotencyKey],
) -> Result<ErasureId, Problem> {
    let reserved = reserved(api, name.sibling(&ConversationId::new(id.as_str())), keys).await?;
    Ok(ErasureId::new(reserved.local().as_str()))
}

/// Begins an erasure, unless another request has just begun one of the subject.
async fn begun(
    api: &Api,
    allowed: &Allowed<ManageErasures>,
    (name, id, owner): (Scoped<ErasureId>, ErasureId, String),
) -> Result<(StatusCode, Json<ErasureStarted>), Problem> {
    let due = api.store.due_erasures(api.clock.now(), MAX_DUE).await?;
    if due.iter().filter(|other| other.is_of(&allowed.tenant())).count() >= MAX_RUNNING {
        let rule = format!("{MAX_RUNNING} erasures of the tenant run already");
        return Err(Problem::new(Kind::Overloaded, rule));
    }
    let mut salt = [0; SALT_BYTES];
    rand::fill(&mut salt)
        .map_err(|_| Problem::new(Kind::Internal, "the system has no randomness"))?;
    let erasure = Erasure::new(id.clone(), owner, &salt, api.clock.now());
    // The entry names the erasure, and not the person.
    api.operations.record(Act::of_caller(allowed, "erasure.start", id.as_str())).await?;
    if !api.store.replace_erasure(&name, None, Some(&erasure)).await?
        && let Some(other) = api.store.erasure(&name).await?
    {
        return Ok((StatusCode::ACCEPTED, Json(ErasureStarted { id: other.id })));
    }
    Ok((StatusCode::ACCEPTED, Json(ErasureStarted { id })))
}

/// Reads an erasure: how far it has come, or its report.
#[utoipa::path(get, path = "/v1/erasures/{id}", operation_id = "get_erasure", tag = "erasures",
    params(ErasurePath),
    responses((status = 200, description = "The erasure.", body = ErasureDocument)))]
pub(super) async fn get(
    allowed: Allowed<ManageErasures>,
    State(api): State<Api>,
    Path(id): Path<String>,
) -> Result<Json<ErasureDocument>, Problem> {
    let found = existing(&api, &allowed, &ErasureId::new(id)).await?;
    let erasure = found.ok_or_else(|| Problem::not_found("erasure"))?;
    Ok(Json(ErasureDocument::from(erasure)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// The size of the page.
    #[param(default = 50, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The cursor of the previous page.
    cursor: Option<String>,
}

/// A page of erasures: those that run, and then those that are done in the order in which they began.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ErasurePage {
    erasures: Vec<ErasureDocument>,
    /// The cursor of the next page; null at the end. A page before the end may be short.
    #[schema(required)]
    cursor: Option<String>,
}

/// Lists the erasures of the tenant, without the ids of conversations.
#[utoipa::path(get, path = "/v1/erasures", operation_id = "list_erasures", tag = "erasures",
    params(ListQuery),
    responses((status = 200, description = "A page of erasures.", body = ErasurePage)))]
pub(super) async fn list(
    allowed: Allowed<ManageErasures>,
    State(api): State<Api>,
    Query(query): Query<ListQuery>,
) -> Result<Json<ErasurePage>, Problem> {
    let limit = extract::limit(query.limit, 50, 1_000)?;
    let (store, tenant) = (&*api.store, allowed.tenant());
    let page = erasures::list(store, &tenant, query.cursor.as_deref(), limit).await?;
    let erasures = page.items.into_iter().map(|it| ErasureDocument::from(it).without_ids());
    Ok(Json(ErasurePage { erasures: erasures.collect(), cursor: page.cursor }))
}

/// The erasure of the caller's tenant with this id. One that ends meanwhile is found, too.
async fn existing(
    api: &Api,
    allowed: &Allowed<ManageErasures>,
    id: &ErasureId,
) -> Result<Option<Erasure>, Problem> {
    if !abide_conversation::ids::is_segment(id.as_str()) {
        return Ok(None);
    }
    let report = allowed.scoped(id);
    let is_it = |erasure: &Erasure| erasure.id == *id;
    if let Some(done) = api.store.erasure(&report).await?.filter(is_it) {
        return Ok(Some(done));
    }
    match find_running(&*api.store, &allowed.tenant(), id).await? {
        Some(running) => Ok(Some(running)),
        None => Ok(api.store.erasure(&report).await?.filter(is_it)),
    }
}
