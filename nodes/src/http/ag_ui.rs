//! Runs of agents over AG-UI: `reference/ag-ui.md`.

mod beginning;
mod message;
mod response;

use abide_conversation::AgentName;
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};

use super::Api;
use super::conversations::agent_name;
use super::extract::{Body, Idempotency, Path};
use super::openapi::{AgentPath, IdempotencyKeyHeader, PrincipalHeader};
use super::problem::Problem;
use crate::access::Allowed;
use crate::access::permission::{Read, ReadAgents, Send};
use crate::protocols::ag_ui::types::RunInput;
use beginning::Beginning;

/// Runs an agent, and streams what follows.
///
/// The body is AG-UI's `RunAgentInput`: `threadId` is the conversation, which is created if it is new.
/// The answers in `resume`, results of tools, and the user's messages behind all others are taken from
/// it; anything else in `messages` is history. The response tells the turn until it ends, or rests on
/// interrupts or on calls of the client's `tools`.
#[utoipa::path(post, path = "/v1/agents/{name}/ag-ui", operation_id = "run_agent",
    tag = "protocols", params(AgentPath, IdempotencyKeyHeader, PrincipalHeader),
    request_body(content = Object, example = json!({"threadId": "conv_1", "runId": "run_1",
        "protocolVersion": "1.0", "state": {}, "tools": [], "context": [], "forwardedProps": {},
        "messages": [{"id": "m-1", "role": "user", "content": "Hi"}]})),
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

/// Does what a request to run an agent asks for, whatever its path.
pub(super) async fn run_agent(
    api: &Api,
    allowed: &Allowed<Send>,
    agent: &str,
    idempotency: Idempotency,
    body: Body<RunInput>,
) -> Result<Response, Problem> {
    let agent = agent_name(agent)?;
    // Nothing is done for a caller whom its outcome cannot be told.
    let reader = allowed.with::<Read>().map_err(|_| Problem::forbidden("read"))?;
    let (input, fingerprint) = body.into_parts();
    let keys = idempotency.keys(allowed, fingerprint);
    Beginning::new(api, &reader, agent, input)?.run(allowed, keys).await
}

/// Streams what a thread has and what goes on in it, and sends nothing.
pub(super) async fn connect_thread(
    api: &Api,
    allowed: &Allowed<Read>,
    agent: &str,
    body: Body<RunInput>,
) -> Result<Response, Problem> {
    let agent = agent_name(agent)?;
    let (input, _) = body.into_parts();
    Beginning::new(api, allowed, agent, input)?.connect().await
}

/// Says what an agent can do over AG-UI.
#[utoipa::path(get, path = "/v1/agents/{name}/ag-ui/capabilities",
    operation_id = "get_agent_capabilities", tag = "protocols", params(AgentPath),
    responses((status = 200, body = Object,
        description = "AG-UI's `AgentCapabilities`: <https://docs.ag-ui.com/concepts/capabilities>.")))]
pub(super) async fn capabilities(
    allowed: Allowed<ReadAgents>,
    State(api): State<Api>,
    Path(agent): Path<String>,
) -> Result<Json<Value>, Problem> {
    let agent: AgentName = agent_name(&agent)?;
    let stored = api.store.agent(&allowed.scoped(&agent)).await?;
    let stored = stored.ok_or_else(|| Problem::not_found("agent"))?;
    let description = stored.definition.get("description").and_then(Value::as_str);
    Ok(Json(describe(&agent, description.unwrap_or_default())))
}

/// What any agent can do.
pub(super) fn describe(agent: &AgentName, description: &str) -> Value {
    json!({
        "identity": {"name": agent, "type": "abide", "description": description},
        "transport": {"streaming": true, "resumable": true},
        "tools": {"supported": true, "parallelCalls": true, "clientProvided": true},
        "state": {"snapshots": true, "deltas": false, "memory": true, "persistentState": true},
        "reasoning": {"supported": true, "streaming": true},
        "humanInTheLoop": {"supported": true, "approvals": true, "interrupts": true,
            "approveWithEdits": true},
    })
}
