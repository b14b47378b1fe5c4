//! Remembered decisions of approvers: list them, and revoke one.

use abide_actors::agents::Agents;
use abide_actors::journal::ResponseScope;
use abide_actors::request::{Reply, Request};
use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::{AgentName, DecisionId, Scoped};
use abide_registry::store::Effect;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::conversations::{agent_name, unexpected};
use super::extract;
use super::extract::{Idempotency, NoParameters, Path, Query};
use super::openapi::{
    AgentDecisionPath, AgentPath, ConversationPath, DecisionPath, IdempotencyKeyHeader,
};
use super::problem::Problem;
use super::{Api, agents};
use crate::access::Allowed;
use crate::access::permission::{ManageDecisions, Read, RevokeDecisions};
use crate::operations::Act;

/// The decisions that have not expired, the one that expires first at the front.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DecisionList)]
pub(super) struct Decisions {
    decisions: Vec<RememberedDecision>,
}

impl Decisions {
    fn unexpired(api: &Api, all: impl IntoIterator<Item = RememberedDecision>) -> Json<Self> {
        let now = api.clock.now();
        let unexpired = all.into_iter().filter(|decision| now < decision.expires_at);
        let mut decisions: Vec<RememberedDecision> = unexpired.collect();
        decisions.sort_by_key(|decision| decision.expires_at);
        Json(Self { decisions })
    }
}

/// Lists the decisions that apply to later calls of this conversation alone.
#[utoipa::path(get, path = "/v1/conversations/{id}/decisions", tag = "decisions",
    operation_id = "list_decisions", params(ConversationPath),
    responses((status = 200, description = "The decisions that have not expired.", body = Decisions)))]
pub(super) async fn of_conversation(
    allowed: Allowed<Read>,
    State(api): State<Api>,
    Path(id): Path<String>,
    _: Query<NoParameters>,
) -> Result<Json<Decisions>, Problem> {
    let id = allowed.conversation(&id)?;
    let state = api.conversations.state(&allowed, &id).await?;
    let own = state.decisions.into_iter();
    // A decision that is being published to the agent is the agent's.
    let own =
        own.filter(|(id, _)| !state.unpublished.contains_key(id)).map(|(_, decision)| decision);
    Ok(Decisions::unexpired(&api, own))
}

/// Revokes a decision of this conversation: later calls need an approval again.
#[utoipa::path(delete, path = "/v1/conversations/{id}/decisions/{decision_id}",
    operation_id = "revoke_decision", tag = "decisions", params(DecisionPath, IdempotencyKeyHeader),
    responses((status = 204, description = "The decision no longer applies.")))]
pub(super) async fn revoke(
    allowed: Allowed<RevokeDecisions>,
    State(api): State<Api>,
    Path((id, decision)): Path<(String, String)>,
    idempotency: Idempotency,
) -> Result<StatusCode, Problem> {
    let id = allowed.conversation(&id)?;
    let fingerprint = extract::fingerprint(&["revoke", id.as_str(), &decision]);
    let request = Request::RevokeDecision(DecisionId::new(decision));
    match api
        .conversations
        .deliver(&allowed, &id, request, idempotency.keys(&allowed, fingerprint))
        .await?
    {
        Reply::Revoked => Ok(StatusCode::NO_CONTENT),
        other => Err(unexpected(&other)),
    }
}

/// Lists the decisions that apply to all conversations of an agent.
#[utoipa::path(get, path = "/v1/agents/{name}/decisions", tag = "decisions",
    operation_id = "list_agent_decisions", params(AgentPath),
    responses((status = 200, description = "The decisions that have not expired.", body = Decisions)))]
pub(super) async fn of_agent(
    allowed: Allowed<ManageDecisions>,
    State(api): State<Api>,
    Path(name): Path<String>,
    _: Query<NoParameters>,
) -> Result<Json<Decisions>, Problem> {
    let name = existing_agent(&api, &allowed, &name).await?;
    Ok(Decisions::unexpired(&api, api.catalog.decisions(&name).await?))
}

/// Revokes a decision of an agent: later calls need an approval again.
#[utoipa::path(delete, path = "/v1/agents/{name}/decisions/{decision_id}", tag = "decisions",
    operation_id = "revoke_agent_decision", params(AgentDecisionPath, IdempotencyKeyHeader),
    responses((status = 204, description = "The decision no longer applies.")))]
pub(super) async fn revoke_of_agent(
    allowed: Allowed<ManageDecisions>,
    State(api): State<Api>,
    Path((name, decision)): Path<(String, String)>,
    idempotency: Idempotency,
) -> Result<StatusCode, Problem> {
    let name = existing_agent(&api, &allowed, &name).await?;
    let fingerprint = extract::fingerprint(&["revoke", name.as_str(), &decision]);
    if agents::first_response(&api, &name, &idempotency.keys(&allowed, fingerprint.clone()))
        .await?
        .is_some()
    {
        return Ok(StatusCode::NO_CONTENT);
    }
    let missing = || Problem::not_found("decision");
    let expired = api.catalog.expired(&name, &DecisionId::new(decision.as_str())).await?;
    let decision = expired.ok_or_else(missing)?;
    let target = format!("{}/{}", name.local(), decision.id);
    let act = Act::of_caller(&allowed, "decision.revoke", target);
    let effect = Effect::ReplaceDecision { agent: name.clone(), decision };
    if !api.operations.carry_out(act, effect).await? {
        return Err(missing());
    }
    let stored =
        agents::stored_response(&api, idempotency.keys(&allowed, fingerprint), Value::Null);
    if let Some(stored) = stored {
        api.store.reserve(&ResponseScope::Agent(name), stored, api.clock.now()).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// The name of an agent; a problem if it does not exist.
async fn existing_agent(
    api: &Api,
    allowed: &Allowed<ManageDecisions>,
    name: &str,
) -> Result<Scoped<AgentName>, Problem> {
    let name = allowed.scoped(&agent_name(name)?);
    match api.store.newest(&name).await? {
        Some(_) => Ok(name),
        None => Err(Problem::not_found("agent")),
    }
}
