//! Agents' definitions.

use abide_actors::agent::{Definition, Invalid};
use abide_actors::journal::Answer;
use abide_conversation::AgentName;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Api;
use super::parse::{Body, Idempotency, fingerprint};
use super::problem::{Kind, Problem};

/// The answer to a definition, kept for repeats.
#[derive(Debug, Serialize, Deserialize)]
struct Defined {
    created: bool,
    name: AgentName,
    revision: String,
    warnings: Vec<String>,
}

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
    let parsed = tokio::task::spawn_blocking(parse).await;
    let parsed = parsed.map_err(|error| Problem::new(Kind::Internal, error.to_string()))?;
    let parsed = parsed.map_err(|all| refused(&all))?;
    if parsed.definition.name != name {
        return Err(Problem::field("name", "differs from the path's"));
    }
    let before = api.store.agent(&name).await?;
    let defined = Defined {
        created: before.is_none(),
        name: name.clone(),
        revision: parsed.definition.revision.to_string(),
        warnings: parsed.warnings,
    };
    let kept = keep(&api, &idempotency, body.fingerprint, json!(defined));
    let created = api.catalogue.put(parsed.definition, kept).await?;
    Ok(answer(Defined { created, ..defined }))
}

pub(super) async fn list(State(api): State<Api>) -> Result<Json<Value>, Problem> {
    let agents = api.store.agents().await?;
    let row = |agent: &abide_registry::store::StoredAgent| {
        let description = agent.definition.get("description").cloned().unwrap_or_default();
        json!({"name": agent.name, "revision": agent.revision, "description": description})
    };
    Ok(Json(json!({"agents": agents.iter().map(row).collect::<Vec<_>>()})))
}

pub(super) async fn get(
    State(api): State<Api>,
    Path(name): Path<String>,
) -> Result<Json<Value>, Problem> {
    let stored = api.store.agent(&parse(&name)?).await?;
    stored.map(|agent| Json(agent.definition)).ok_or_else(|| Problem::not_found("such agent"))
}

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
    let Defined { name, revision, warnings, .. } = defined;
    let body = json!({"name": name, "revision": revision, "warnings": warnings});
    (status, Json(body)).into_response()
}

fn refused(mistakes: &[Invalid]) -> Problem {
    let detail: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
    let row = |mistake: &Invalid| json!({"tool": mistake.tool, "field": mistake.field, "message": mistake.message});
    let rows: Vec<Value> = mistakes.iter().map(row).collect();
    Problem::new(Kind::InvalidRequest, detail.join("; ")).with("errors", json!(rows))
}

fn scope(name: &AgentName) -> String {
    format!("agents/{name}")
}

async fn repeated(
    api: &Api,
    name: &AgentName,
    idempotency: &Idempotency,
    fingerprint: &str,
) -> Result<Option<Value>, Problem> {
    for repeat in idempotency.repeats(fingerprint.to_owned()) {
        let kept = api.store.answer(&scope(name), &repeat.key, api.clock.now()).await?;
        match kept {
            Some(kept) if kept.fingerprint == fingerprint => return Ok(Some(kept.body)),
            Some(_) => return Err(Problem::field(repeat.field, "was used for another request")),
            None => {}
        }
    }
    Ok(None)
}

fn keep(api: &Api, idempotency: &Idempotency, fingerprint: String, body: Value) -> Option<Answer> {
    let repeat = idempotency.repeats(fingerprint).pop()?;
    let expires_at = api.clock.now().checked_add(jiff::SignedDuration::from_hours(24));
    let expires_at = expires_at.unwrap_or(jiff::Timestamp::MAX);
    Some(Answer { key: repeat.key, fingerprint: repeat.fingerprint, body, expires_at })
}
