//! The revisions of agents: list, read and compare them, and go back to one.

mod diff;

use abide_actors::request::IdempotencyKey;
use abide_conversation::{AgentName, Revision, Scoped, Timestamp};
use abide_registry::store::{HistoryEntry, StoredAgent};
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use self::diff::{DefinitionChange, diff};
use super::Api;
use super::agents::{self, AgentDefined, Change};
use super::extract::{Body, Idempotency, NoParameters, Path, Query};
use super::openapi::{AgentDocument, AgentPath, IdempotencyKeyHeader};
use super::problem::Problem;
use super::rollout::RolloutView;
use crate::access::Allowed;
use crate::access::permission::{DefineAgents, ReadAgents};

/// How long a revision is, in hex digits.
const REVISION_DIGITS: usize = 16;

/// The path of a revision.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct RevisionPath {
    /// The agent's name.
    #[param(pattern = "^[a-z0-9][a-z0-9_-]{0,63}$", example = "support")]
    name: String,
    /// The revision.
    #[param(pattern = "^[0-9a-f]{16}$", example = "0123456789abcdef")]
    revision: String,
}

/// The path of two revisions.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct TwoRevisionsPath {
    /// The agent's name.
    #[param(pattern = "^[a-z0-9][a-z0-9_-]{0,63}$", example = "support")]
    name: String,
    /// The revision before the changes.
    #[param(pattern = "^[0-9a-f]{16}$", example = "0123456789abcdef")]
    a: String,
    /// The revision after the changes.
    #[param(pattern = "^[0-9a-f]{16}$", example = "fedcba9876543210")]
    b: String,
}

/// A revision in a list.
#[derive(Debug, Serialize, ToSchema)]
struct RevisionRow {
    revision: Revision,
    /// When it was put last; null for one that an earlier version of the program put.
    #[schema(required)]
    put_at: Option<Timestamp>,
    /// Whether it is the agent's newest, with which turns begin.
    newest: bool,
    /// The share of the agent's conversations that run on it by a rollout, from 1 to 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    rollout_percent: Option<u8>,
}

/// The revisions of an agent, the one that was put last at the front.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RevisionList {
    revisions: Vec<RevisionRow>,
}

/// What differs between two revisions.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RevisionDiff {
    from: Revision,
    to: Revision,
    changes: Vec<DefinitionChange>,
}

/// Which revision is to be the newest again.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RollbackRequest)]
pub(super) struct RollbackBody {
    #[schema(pattern = "^[0-9a-f]{16}$", example = "0123456789abcdef")]
    revision: String,
}

/// Lists the revisions of an agent, also of one that was deleted.
///
/// A revision goes when 50 others were put after it and nothing runs on it any more.
#[utoipa::path(get, path = "/v1/agents/{name}/revisions", tag = "agents",
    operation_id = "list_revisions", params(AgentPath),
    responses((status = 200, description = "The revisions.", body = RevisionList)))]
pub(super) async fn list(
    allowed: Allowed<ReadAgents>,
    State(api): State<Api>,
    Path(name): Path<String>,
    _: Query<NoParameters>,
) -> Result<Json<RevisionList>, Problem> {
    let name = agents::parse(&allowed, &name)?;
    let current = api.store.current_revisions(&name).await?;
    let newest = current.as_ref().map(|current| current.newest.clone());
    let rollout = current.and_then(RolloutView::of);
    let history = api.store.history(&name).await?;
    let is_newest = |revision: &Revision| newest.as_ref() == Some(revision);
    let mut revisions = Vec::with_capacity(history.len() + 1);
    // An earlier version of the program may have put it, without a history.
    if let Some(newest) = &newest
        && !history.iter().any(|entry| is_newest(&entry.revision))
    {
        let revision = newest.clone();
        revisions.push(RevisionRow { revision, put_at: None, newest: true, rollout_percent: None });
    }
    revisions.extend(history.into_iter().map(|entry| {
        let newest = is_newest(&entry.revision);
        let HistoryEntry { revision, put_at } = entry;
        let rollout_percent = rollout.as_ref().and_then(|rollout| rollout.share_of(&revision));
        RevisionRow { revision, put_at, newest, rollout_percent }
    }));
    if revisions.is_empty() {
        return Err(Problem::not_found("agent"));
    }
    Ok(Json(RevisionList { revisions }))
}

/// Reads one revision of an agent's definition, as it was given.
#[utoipa::path(get, path = "/v1/agents/{name}/revisions/{revision}", tag = "agents",
    operation_id = "get_revision", params(RevisionPath),
    responses((status = 200, description = "The definition.", body = AgentDocument)))]
pub(super) async fn get(
    allowed: Allowed<ReadAgents>,
    State(api): State<Api>,
    Path((name, revision)): Path<(String, String)>,
) -> Result<Json<Value>, Problem> {
    let name = agents::parse(&allowed, &name)?;
    find(&api, &name, "revision", &revision).await.map(|found| Json(found.definition))
}

/// Compares two revisions of an agent.
///
/// Lists whose items have names, such as `tools`, are compared item by item.
#[utoipa::path(get, path = "/v1/agents/{name}/revisions/{a}/diff/{b}", tag = "agents",
    operation_id = "compare_revisions", params(TwoRevisionsPath),
    responses((status = 200, description = "What differs.", body = RevisionDiff)))]
pub(super) async fn compare(
    allowed: Allowed<ReadAgents>,
    State(api): State<Api>,
    Path((name, a, b)): Path<(String, String, String)>,
) -> Result<Json<RevisionDiff>, Problem> {
    let name = agents::parse(&allowed, &name)?;
    let before = find(&api, &name, "a", &a).await?;
    let after = find(&api, &name, "b", &b).await?;
    let changes = diff(&before.definition, &after.definition);
    Ok(Json(RevisionDiff { from: before.revision, to: after.revision, changes }))
}

/// Makes an earlier revision the newest one again.
///
/// It is checked as a definition is that is put now. An agent that was deleted exists again. A rollout
/// of that revision ends.
#[utoipa::path(post, path = "/v1/agents/{name}/rollback", tag = "agents",
    operation_id = "roll_back_agent", params(AgentPath, IdempotencyKeyHeader),
    request_body = RollbackBody,
    responses((status = 200, description = "It is the newest one.", body = AgentDefined)))]
pub(super) async fn roll_back(
    allowed: Allowed<DefineAgents>,
    State(api): State<Api>,
    Path(name): Path<String>,
    idempotency: Idempotency,
    body: Body<RollbackBody>,
) -> Result<Json<AgentDefined>, Problem> {
    let name = agents::parse(&allowed, &name)?;
    let keys: Vec<IdempotencyKey> = idempotency.keys(&allowed, body.fingerprint);
    // A repeat is answered even if the revision has gone since.
    let first = agents::first_response(&api, &name, &keys).await?;
    let source = match &first {
        Some(_) => Value::Null,
        None => find(&api, &name, "revision", &body.value.revision).await?.definition,
    };
    let change = Change { name, source, keys, operation: "agent.rollback" };
    agents::define(&api, &allowed, change).await.map(|defined| Json(defined.agent))
}

/// A revision of this agent; `field` names what says which.
pub(super) async fn find(
    api: &Api,
    name: &Scoped<AgentName>,
    field: &str,
    revision: &str,
) -> Result<StoredAgent, Problem> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if revision.len() != REVISION_DIGITS || !revision.bytes().all(is_digit) {
        return Err(Problem::field(field, "must be 16 hex digits"));
    }
    let found = api.store.revision(&name.sibling(&Revision::new(revision))).await?;
    let found = found.filter(|found| found.name == name.local());
    found.ok_or_else(|| Problem::not_found("revision"))
}
