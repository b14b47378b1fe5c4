//! The cards of agents.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use serde_json::Value;

use crate::access::Allowed;
use crate::access::permission::ReadAgents;
use crate::headers::origin;
use crate::http::Api;
use crate::http::conversations::agent_name;
use crate::http::extract::Path;
use crate::http::openapi::AgentPath;
use crate::problem::Problem;
use crate::protocols::a2a::card::{CardSource, card};

/// Reads the card of an agent, from which A2A's clients learn where and how it is reached.
#[utoipa::path(get, path = "/a2a/{name}/.well-known/agent-card.json",
    operation_id = "get_agent_card", tag = "protocols", params(AgentPath),
    responses((status = 200, body = Object, description =
        "An `AgentCard`: <https://a2a-protocol.org/latest/specification/>.")))]
pub(in crate::http) async fn get(
    allowed: Allowed<ReadAgents>,
    State(api): State<Api>,
    Path(agent): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, Problem> {
    let agent = agent_name(&agent)?;
    let stored = api.store.agent(&allowed.scoped(&agent)).await?;
    let stored = stored.ok_or_else(|| Problem::not_found("agent"))?;
    let url = format!("{}/a2a/{agent}", origin(&headers));
    Ok(Json(card(&CardSource {
        name: agent.as_str(),
        description: stored.definition["description"].as_str().unwrap_or_default(),
        revision: stored.revision.as_ref(),
        url: &url,
        is_guarded: allowed.session().is_some(),
    })))
}
