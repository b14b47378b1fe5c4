//! Agents' definitions.

use abide_actors::agent::{DefinitionError, joined};
use abide_actors::definition::Definition;
use abide_actors::journal::{RESPONSE_TTL, StoredResponse};
use abide_conversation::{AgentName, Revision, Timestamp};
use abide_registry::store::StoredAgent;
use abide_registry::store::agent_scope;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::Api;
use super::extract::{Body, Idempotency, Path, compiled, fingerprint};
use super::openapi::{AgentDocument, AgentPath, IdempotencyKeyHeader};
use super::problem::{Kind, Problem};

/// The answer to a definition, kept for repeats.
#[derive(Debug, Serialize, Deserialize)]
struct Defined {
    created: bool,
    #[serde(flatten)]
    agent: AgentDefined,
}

/// A definition that was accepted.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
struct AgentDefined {
    name: AgentName,
    /// The first 16 hex digits of the SHA-256 of the definition's canonical JSON.
    revision: Revision,
    warnings: Vec<String>,
}

/// An agent in a list.
#[derive(Debug, Serialize, ToSchema)]
struct AgentRow {
    name: AgentName,
    revision: Revision,
    description: String,
}

/// The newest definitions of all agents, by name.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AgentList {
    agents: Vec<AgentRow>,
}

/// Defines an agent, or a new revision of it.
///
/// Turns that run go on with the revision that they began with. Also takes `application/yaml`.
#[utoipa::path(put, path = "/v1/agents/{name}", operation_id = "put_agent", tag = "agents",
    params(AgentPath, IdempotencyKeyHeader),
    request_body(content = AgentDocument, example = json!({
        "model": {"provider": "openai", "name": "gpt-5", "api_key_env": "OPENAI_API_KEY"},
        "system_prompt": "You are helpful.",
        "tools": [{"name": "send_email", "description": "Sends one e-mail.",
            "parameters": {"type": "object", "properties": {"to": {"type": "string"}}},
            "approval": "requires_approval",
            "run": {"http": {"url": "http://127.0.0.1:9100/send"}}}],
    })),
    responses((status = 201, description = "The name was new.", body = AgentDefined),
        (status = 200, description = "The name was known.", body = AgentDefined)))]
pub(super) async fn put(
    State(api): State<Api>,
    Path(name): Path<String>,
    idempotency: Idempotency,
    body: Body<Value>,
) -> Result<Response, Problem> {
    let name = parse(&name)?;
    if let Some(first) = repeated(&api, &name, &idempotency, &body.fingerprint).await? {
        let first = serde_json::from_value(first);
        return first.map(answer).map_err(|_| Problem::field("Idempotency-Key", "was used before"));
    }
    let mut source = body.value;
    if let Value::Object(fields) = &mut source {
        fields.entry("name").or_insert_with(|| json!(name.as_str()));
    }
    let catalogue = api.catalogue.clone();
    // Conditions, templates and schemas are compiled: that may take a while.
    let parse = move || Definition::parse(source, catalogue.natives());
    let parsed = compiled(parse).await?.map_err(|all| refused(&all))?;
    if parsed.definition.name != name {
        return Err(Problem::field("name", "differs from the path's"));
    }
    let before = api.store.agent(&name).await?;
    let revision = parsed.definition.revision.clone();
    let agent = AgentDefined { name: name.clone(), revision, warnings: parsed.warnings };
    let defined = Defined { created: before.is_none(), agent };
    let kept = keep(&api, &idempotency, body.fingerprint, json!(defined));
    let created = api.catalogue.put(parsed.definition, kept).await?;
    Ok(answer(Defined { created, ..defined }))
}

/// Lists all agents.
#[utoipa::path(get, path = "/v1/agents", operation_id = "list_agents", tag = "agents",
    responses((status = 200, description = "All of them, by name.", body = AgentList)))]
pub(super) async fn list(State(api): State<Api>) -> Result<Json<AgentList>, Problem> {
    let row = |agent: StoredAgent| {
        let description = agent.definition.get("description").and_then(Value::as_str);
        let description = description.unwrap_or_default().to_owned();
        AgentRow { name: agent.name, revision: agent.revision, description }
    };
    let agents = api.store.agents().await?.into_iter().map(row).collect();
    Ok(Json(AgentList { agents }))
}

/// Reads an agent's newest definition, as it was given.
#[utoipa::path(get, path = "/v1/agents/{name}", operation_id = "get_agent", tag = "agents",
    params(AgentPath),
    responses((status = 200, description = "The definition.", body = AgentDocument)))]
pub(super) async fn get(
    State(api): State<Api>,
    Path(name): Path<String>,
) -> Result<Json<Value>, Problem> {
    let stored = api.store.agent(&parse(&name)?).await?;
    stored.map(|agent| Json(agent.definition)).ok_or_else(|| Problem::not_found("such agent"))
}

/// Deletes an agent.
///
/// Its conversations stay and take no new messages; turns that run end on their revision.
#[utoipa::path(delete, path = "/v1/agents/{name}", operation_id = "delete_agent", tag = "agents",
    params(AgentPath, IdempotencyKeyHeader),
    responses((status = 204, description = "It is gone.")))]
pub(super) async fn delete(
    State(api): State<Api>,
    Path(name): Path<String>,
    idempotency: Idempotency,
) -> Result<StatusCode, Problem> {
    let name = parse(&name)?;
    let print = fingerprint(&["DELETE", name.as_str()]);
    if repeated(&api, &name, &idempotency, &print).await?.is_some() {
        return Ok(StatusCode::NO_CONTENT);
    }
    // A refusal must not be kept as if it were an answer.
    if api.store.agent(&name).await?.is_none() {
        return Err(Problem::not_found("such agent"));
    }
    let kept = keep(&api, &idempotency, print, Value::Null);
    match api.store.delete_agent(&name, kept).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::not_found("such agent")),
    }
}

fn parse(name: &str) -> Result<AgentName, Problem> {
    AgentName::parse(name).ok_or_else(|| Problem::field("name", "must be [a-z0-9][a-z0-9_-]{0,63}"))
}

fn answer(defined: Defined) -> Response {
    let status = if defined.created { StatusCode::CREATED } else { StatusCode::OK };
    (status, Json(defined.agent)).into_response()
}

fn refused(mistakes: &[DefinitionError]) -> Problem {
    let row = |mistake: &DefinitionError| {
        let DefinitionError { tool, field, message } = mistake;
        json!({"tool": tool, "field": field, "message": message})
    };
    let rows: Vec<Value> = mistakes.iter().map(row).collect();
    Problem::new(Kind::InvalidRequest, joined(mistakes)).with("errors", json!(rows))
}

pub(super) async fn repeated(
    api: &Api,
    name: &AgentName,
    idempotency: &Idempotency,
    fingerprint: &str,
) -> Result<Option<Value>, Problem> {
    for repeat in idempotency.repeats(fingerprint.to_owned()) {
        let kept = api.store.answer(&agent_scope(name), &repeat.key, api.clock.now()).await?;
        match kept {
            Some(kept) if kept.fingerprint == fingerprint => return Ok(Some(kept.body)),
            Some(_) => return Err(Problem::field(&repeat.field, "was used for another request")),
            None => {}
        }
    }
    Ok(None)
}

pub(super) fn keep(
    api: &Api,
    idempotency: &Idempotency,
    fingerprint: String,
    body: Value,
) -> Option<StoredResponse> {
    let repeat = idempotency.repeats(fingerprint).pop()?;
    let expires_at = api.clock.now().checked_add(RESPONSE_TTL).unwrap_or(Timestamp::MAX);
    Some(StoredResponse { key: repeat.key, fingerprint: repeat.fingerprint, body, expires_at })
}
