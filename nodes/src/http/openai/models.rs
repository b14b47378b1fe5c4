//! Agents, as models.

use abide_conversation::{AgentName, Scoped};
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use crate::access::Allowed;
use crate::access::permission::{Permission, ReadAgents};
use crate::http::Api;
use crate::problem::{Kind, Problem};

/// What may stand before the name of an agent.
const PREFIX: &str = "abide/";

/// Lists the agents as models.
#[utoipa::path(get, path = "/openai/v1/models", operation_id = "openai_list_models",
    tag = "protocols",
    responses((status = 200, body = Object,
        description = "A list: <https://platform.openai.com/docs/api-reference/models>.")))]
pub(in crate::http) async fn list(
    allowed: Allowed<ReadAgents>,
    State(api): State<Api>,
) -> Result<Json<Value>, Problem> {
    let agents = api.store.agents(&allowed.tenant()).await?;
    let model = |name: &AgentName| json!({"id": name, "object": "model", "created": 0, "owned_by": "abide"});
    let models: Vec<Value> = agents.iter().map(|agent| model(&agent.name)).collect();
    Ok(Json(json!({"object": "list", "data": models})))
}

/// An agent that a request names as its model.
pub(super) struct Model {
    pub(super) name: AgentName,
    /// The names of its tools, as far as its definition has them.
    pub(super) tools: Vec<String>,
}

/// The agent that is named as a model.
pub(super) async fn find<P: Permission>(
    api: &Api,
    allowed: &Allowed<P>,
    model: &str,
) -> Result<Model, Problem> {
    let missing = || {
        let name: String = model.chars().take(100).collect();
        let problem =
            Problem::new(Kind::AgentMissing, format!("the model {name:?} does not exist"));
        problem.with_openai_code("model_not_found")
    };
    let name = AgentName::parse(model.strip_prefix(PREFIX).unwrap_or(model)).ok_or_else(missing)?;
    let scoped: Scoped<AgentName> = allowed.scoped(&name);
    let stored = api.store.agent(&scoped).await?.ok_or_else(missing)?;
    let tools = stored.definition["tools"].as_array().cloned().unwrap_or_default();
    let names = tools.iter().filter_map(|tool| tool["name"].as_str().map(str::to_owned));
    Ok(Model { name, tools: names.collect() })
}
