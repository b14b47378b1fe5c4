//! The runtime of CopilotKit's front end, with a thread for each conversation: `reference/ag-ui.md`.

use abide_conversation::{AgentName, Scoped};
use abide_registry::store::StoredAgent;
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::Api;
use super::ag_ui::{connect_thread, describe, run_agent};
use super::conversations::agent_name;
use super::extract::{Body, Idempotency, Path};
use super::openapi::{AgentPath, IdempotencyKeyHeader, PrincipalHeader, RuntimeThreadPath};
use super::problem::Problem;
use super::protocol_requests::cancel;
use crate::access::permission::{Cancel, Known, Read, ReadAgents, Send};
use crate::access::{Allowed, TokenTarget};
use crate::protocols::ag_ui::types::RunInput;

/// Lists the agents that a CopilotKit page may use.
///
/// For a token these are the agent of its conversation, or the one that it may create conversations of.
#[utoipa::path(get, path = "/v1/copilotkit/info", operation_id = "get_copilotkit_info",
    tag = "protocols",
    responses((status = 200, body = Object, description = "CopilotKit's `RuntimeInfo`.")))]
pub(super) async fn info(
    allowed: Allowed<Known>,
    State(api): State<Api>,
) -> Result<Json<Value>, Problem> {
    let stored = match allowed.with::<ReadAgents>() {
        Ok(reader) => api.store.agents(&reader.tenant()).await?,
        Err(_) => token_agent(&api, &allowed).await?.into_iter().collect(),
    };
    let agent = |agent: StoredAgent| {
        let description = agent.definition.get("description").and_then(Value::as_str);
        let description = description.unwrap_or_default();
        let capabilities = describe(&agent.name, description);
        let about = json!({"name": agent.name, "description": description,
            "className": "Abide", "capabilities": capabilities});
        (agent.name.as_str().to_owned(), about)
    };
    let agents: Map<String, Value> = stored.into_iter().map(agent).collect();
    Ok(Json(json!({
        "version": env!("CARGO_PKG_VERSION"), "agents": agents, "mode": "sse",
        "audioFileTranscriptionEnabled": false,
        "threadEndpoints": {"list": false, "inspect": false, "mutations": false,
            "realtimeMetadata": false},
        "a2uiEnabled": false, "openGenerativeUIEnabled": false, "telemetryDisabled": true,
    })))
}

/// The agent that the caller's token is for, if it is for one.
async fn token_agent(api: &Api, allowed: &Allowed<Known>) -> Result<Option<StoredAgent>, Problem> {
    let grant = allowed.session().and_then(|session| session.credential().grant.as_ref());
    let Some(grant) = grant else { return Ok(None) };
    let name = match (&grant.agent, &grant.target) {
        (Some(agent), _) => Some(agent.clone()),
        (None, TokenTarget::Conversation { id, .. } | TokenTarget::Calls { id, .. }) => {
            let summary = api.store.summary(&allowed.scoped(id)).await?;
            summary.map(|summary| summary.agent)
        }
        (None, TokenTarget::Prefix(_)) => None,
    };
    let Some(name) = name else { return Ok(None) };
    let name: Scoped<AgentName> = allowed.scoped(&name);
    Ok(api.store.agent(&name).await?)
}

/// Runs an agent for a CopilotKit page, as `POST /v1/agents/{name}/ag-ui` does.
#[utoipa::path(post, path = "/v1/copilotkit/agent/{name}/run", operation_id = "run_copilotkit_agent",
    tag = "protocols", params(AgentPath, IdempotencyKeyHeader, PrincipalHeader),
    request_body(content = Object, description = "AG-UI's `RunAgentInput`."),
    responses((status = 200, content_type = "text/event-stream", body = String,
        description = "Events of AG-UI: <https://docs.ag-ui.com/concepts/events>.")))]
pub(super) async fn run(
    allowed: Allowed<Send>,
    State(api): State<Api>,
    Path(agent): Path<String>,
    idempotency: Idempotency,
    body: Body<RunInput>,
) -> Result<Response, Problem> {
    run_agent(&api, &allowed, &agent, idempotency, body).await
}

/// Tells a CopilotKit page what a thread has and what goes on in it.
///
/// Sends nothing: a thread that does not exist has no messages.
#[utoipa::path(post, path = "/v1/copilotkit/agent/{name}/connect",
    operation_id = "connect_copilotkit_agent", tag = "protocols", params(AgentPath),
    request_body(content = Object, description = "AG-UI's `RunAgentInput`."),
    responses((status = 200, content_type = "text/event-stream", body = String,
        description = "Events of AG-UI: <https://docs.ag-ui.com/concepts/events>.")))]
pub(super) async fn connect(
    allowed: Allowed<Read>,
    State(api): State<Api>,
    Path(agent): Path<String>,
    body: Body<RunInput>,
) -> Result<Response, Problem> {
    connect_thread(&api, &allowed, &agent, body).await
}

/// Whether the request stopped a turn.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RunStopped {
    /// False when no turn was open.
    stopped: bool,
}

/// Cancels the open turn of a CopilotKit page's thread.
#[utoipa::path(post, path = "/v1/copilotkit/agent/{name}/stop/{thread}",
    operation_id = "stop_copilotkit_agent", tag = "protocols",
    params(RuntimeThreadPath, IdempotencyKeyHeader),
    responses((status = 200, description = "No turn is open.", body = RunStopped)))]
pub(super) async fn stop(
    allowed: Allowed<Cancel>,
    State(api): State<Api>,
    Path((agent, thread)): Path<(String, String)>,
    idempotency: Idempotency,
) -> Result<Json<RunStopped>, Problem> {
    let agent = agent_name(&agent)?;
    let id = allowed.conversation(&thread)?;
    let stopped = cancel(&api, &allowed, (&id, agent.as_str()), idempotency).await?;
    Ok(Json(RunStopped { stopped }))
}
