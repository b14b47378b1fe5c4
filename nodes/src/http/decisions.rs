//! Approvers' decisions that hold for later calls: listed, and revoked.

use abide_actors::agents::Agents;
use abide_actors::request::{Reply, Request};
use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::{AgentName, DecisionId};
use abide_registry::store::agent_scope;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::conversations::{agent_name, unexpected};
use super::extract;
use super::extract::{Idempotency, Path};
use super::openapi::{
    AgentDecisionPath, AgentPath, ConversationPath, DecisionPath, IdempotencyKeyHeader,
};
use super::problem::Problem;
use super::{Api, agents};

/// The decisions that hold now, the one that ends first at the front.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Decisions {
    decisions: Vec<RememberedDecision>,
}

impl Decisions {
    fn now(api: &Api, all: impl IntoIterator<Item = RememberedDecision>) -> Json<Self> {
        let now = api.clock.now();
        let live = all.into_iter().filter(|decision| now < decision.expires_at);
        let mut decisions: Vec<RememberedDecision> = live.collect();
        decisions.sort_by_key(|decision| decision.expires_at);
        Json(Self { decisions })
    }
}

/// Lists the decisions that hold for later calls of this conversation alone.
#[utoipa::path(get, path = "/v1/conversations/{id}/decisions", tag = "decisions",
    operation_id = "list_decisions", params(ConversationPath),
    responses((status = 200, description = "Those that have not expired.", body = Decisions)))]
pub(super) async fn of_conversation(
    State(api): State<Api>,
    Path(id): Path<String>,
) -> Result<Json<Decisions>, Problem> {
    let id = extract::conversation(&id)?;
    let state = api.conversations.stored_state(&id).await?;
    let state = state.ok_or_else(|| Problem::not_found("such conversation"))?;
    let own = state.decisions.into_iter();
    // Those on their way to the agent are the agent's.
    let own =
        own.filter(|(id, _)| !state.unpublished.contains_key(id)).map(|(_, decision)| decision);
    Ok(Decisions::now(&api, own))
}

/// Revokes a decision of this conversation: later calls ask again.
#[utoipa::path(delete, path = "/v1/conversations/{id}/decisions/{decision_id}",
    operation_id = "revoke_decision", tag = "decisions", params(DecisionPath, IdempotencyKeyHeader),
    responses((status = 204, description = "It holds no more.")))]
pub(super) async fn revoke(
    State(api): State<Api>,
    Path((id, decision)): Path<(String, String)>,
    idempotency: Idempotency,
) -> Result<StatusCode, Problem> {
    let id = extract::conversation(&id)?;
    let print = extract::fingerprint(&["revoke", id.as_str(), &decision]);
    let request = Request::RevokeDecision(DecisionId::new(decision));
    match api.conversations.deliver(&id, request, idempotency.repeats(print)).await? {
        Reply::Revoked => Ok(StatusCode::NO_CONTENT),
        other => Err(unexpected(&other)),
    }
}

/// Lists the decisions that hold for all conversations of an agent.
#[utoipa::path(get, path = "/v1/agents/{name}/decisions", tag = "decisions",
    operation_id = "list_agent_decisions", params(AgentPath),
    responses((status = 200, description = "Those that have not expired.", body = Decisions)))]
pub(super) async fn of_agent(
    State(api): State<Api>,
    Path(name): Path<String>,
) -> Result<Json<Decisions>, Problem> {
    let name = known(&api, &name).await?;
    Ok(Decisions::now(&api, api.catalogue.decisions(&name).await?))
}

/// Revokes a decision of an agent: later calls ask again.
#[utoipa::path(delete, path = "/v1/agents/{name}/decisions/{decision_id}", tag = "decisions",
    operation_id = "revoke_agent_decision", params(AgentDecisionPath, IdempotencyKeyHeader),
    responses((status = 204, description = "It holds no more.")))]
pub(super) async fn revoke_of_agent(
    State(api): State<Api>,
    Path((name, decision)): Path<(String, String)>,
    idempotency: Idempotency,
) -> Result<StatusCode, Problem> {
    let name = known(&api, &name).await?;
    let print = extract::fingerprint(&["revoke", name.as_str(), &decision]);
    if agents::repeated(&api, &name, &idempotency, &print).await?.is_some() {
        return Ok(StatusCode::NO_CONTENT);
    }
    if !api.catalogue.revoke(&name, &DecisionId::new(decision)).await? {
        return Err(Problem::not_found("such decision"));
    }
    if let Some(kept) = agents::keep(&api, &idempotency, print, Value::Null) {
        api.store.reserve(&agent_scope(&name), kept, api.clock.now()).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

async fn known(api: &Api, name: &str) -> Result<AgentName, Problem> {
    let name = agent_name(name)?;
    match api.store.newest(&name).await? {
        Some(_) => Ok(name),
        None => Err(Problem::not_found("such agent")),
    }
}
