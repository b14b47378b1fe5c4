//! Agent definitions: define, list, read and delete agents.

use abide_actors::agent::{DefinitionError, Parsed, join_errors};
use abide_actors::definition::{Definition, WorkspaceRoot};
use abide_actors::journal::{ResponseScope, StoredResponse};
use abide_actors::request::IdempotencyKey;
use abide_conversation::{AgentName, Revision, Scoped};
use abide_registry::added_keys::{self, IndexChange};
use abide_registry::store::{Effect, StoredAgent};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::Api;
use super::definition_policy::privileged_parts;
use super::extract::{Body, Idempotency, NoParameters, Path, Query, compiled, fingerprint};
use super::openapi::{AgentDocument, AgentPath, IdempotencyKeyHeader};
use super::problem::{Kind, Problem};
use super::repeats;
use super::rollout;
use crate::access::Allowed;
use crate::access::document::AgentsOverHttp;
use crate::access::permission::{DefineAgents, Permission, ReadAgents};
use crate::definition_warnings;
use crate::operations::Act;

/// How often a definition is put anew because another one was put meanwhile: each round ends with one
/// of those that are put at once.
const MAX_TRIES: usize = 64;
/// The header that tells of an agent's rollout.
const ROLLOUT_HEADER: &str = "abide-rollout";

/// The response to a definition, stored for repeats.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredDefinition {
    created: bool,
    #[serde(flatten)]
    pub(super) agent: AgentDefined,
}

/// A definition that was accepted.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct AgentDefined {
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

/// The newest definitions of all agents, in the order of their names.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AgentList {
    agents: Vec<AgentRow>,
}

/// Defines an agent, or a new revision of it.
///
/// Running turns continue with the revision that they began with. A rollout of another revision stays.
/// The body may also be `application/yaml`.
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
    responses((status = 201, description = "The agent is new.", body = AgentDefined),
        (status = 200, description = "The agent existed.", body = AgentDefined)))]
pub(super) async fn put(
    allowed: Allowed<DefineAgents>,
    State(api): State<Api>,
    Path(name): Path<String>,
    idempotency: Idempotency,
    body: Body<Value>,
) -> Result<Response, Problem> {
    let name = parse(&allowed, &name)?;
    let keys = idempotency.keys(&allowed, body.fingerprint);
    let mut source = body.value;
    if let Value::Object(fields) = &mut source {
        fields.entry("name").or_insert_with(|| json!(name.local()));
    }
    let change = Change { name, source, keys, operation: "agent.put" };
    define(&api, &allowed, change).await.map(response)
}

/// A definition that is to be the newest of its name.
pub(super) struct Change {
    pub(super) name: Scoped<AgentName>,
    pub(super) source: Value,
    pub(super) keys: Vec<IdempotencyKey>,
    /// What the operators' audit calls it.
    pub(super) operation: &'static str,
}

/// Makes a definition the newest of its name, if the caller may and it is right.
pub(super) async fn define(
    api: &Api,
    allowed: &Allowed<DefineAgents>,
    change: Change,
) -> Result<StoredDefinition, Problem> {
    let policy = writable(api, allowed)?;
    let Change { name, source, keys, operation } = change;
    if let Some(first) = first_response(api, &name, &keys).await? {
        let reused = |_| Problem::field("Idempotency-Key", "was used for another request");
        return serde_json::from_value(first).map_err(reused);
    }
    let parsed = checked(api, allowed, policy, &name, source).await?;
    let (tenant, definition) = (allowed.tenant(), parsed.definition);
    let mut warnings = parsed.warnings;
    warnings.extend(definition_warnings::missing_agents(&*api.store, &name, &definition).await?);
    for _ in 0..MAX_TRIES {
        let newest = api.store.agent(&name).await?;
        let mut warnings = warnings.clone();
        warnings.extend(ask_index(api, &name, newest.as_ref(), &definition).await?);
        let revision = definition.revision.clone();
        let target = format!("{}@{revision}", name.local());
        let act = Act::of_caller(allowed, operation, target).with_request(&definition.source);
        let agent = AgentDefined { name: name.local(), revision, warnings };
        let defined = StoredDefinition { created: newest.is_none(), agent };
        // Only in place of the definition that it was compared with: else keys that another one took
        // away meanwhile would not be indexed.
        let effect = Effect::PutAgent {
            tenant: tenant.clone(),
            agent: api.catalog.stored(&definition),
            response: stored_response(api, keys.clone(), json!(defined)),
            newest: newest.map(|newest| newest.revision),
        };
        if api.operations.carry_out(act, effect).await? {
            definition_warnings::log(name.as_str(), &defined.agent.warnings);
            api.catalog.note_stored(&tenant, definition).await;
            return Ok(defined);
        }
    }
    Err(Problem::new(Kind::Unavailable, "the agent is defined too often at once"))
}

/// Has the agent's conversations indexed by the keys that the definition adds to the newest one.
/// Returns the warning that this has begun.
async fn ask_index(
    api: &Api,
    name: &Scoped<AgentName>,
    newest: Option<&StoredAgent>,
    definition: &Definition,
) -> Result<Option<String>, Problem> {
    match added_keys::ask(&*api.store, name, newest, definition, api.clock.now()).await? {
        IndexChange::None => Ok(None),
        IndexChange::Begins => Ok(Some(definition_warnings::INDEXING.to_owned())),
        IndexChange::TooMany => {
            let detail = "index: too many agents of the tenant are being indexed; try again later";
            Err(Problem::new(Kind::Overloaded, detail))
        }
    }
}

/// Parses a definition that the tenant may have under this name.
pub(super) async fn checked<P: Permission>(
    api: &Api,
    allowed: &Allowed<P>,
    policy: AgentsOverHttp,
    name: &Scoped<AgentName>,
    source: Value,
) -> Result<Parsed, Problem> {
    let catalog = api.catalog.clone();
    // Conditions, templates and schemas are compiled, which may take long.
    let parse = move || Definition::parse(source, catalog.natives());
    let parsed = compiled(parse).await?.map_err(|errors| definition_problem(&errors))?;
    if parsed.definition.name != name.local() {
        return Err(Problem::field("name", "differs from the name in the path"));
    }
    check_root(api, &parsed.definition)?;
    let rules = api.access.tenant_rules().map(|rules| rules.outbound(&allowed.tenant()));
    let mut refused = match policy {
        AgentsOverHttp::Data => privileged_parts(&parsed.definition),
        AgentsOverHttp::All | AgentsOverHttp::Off => Vec::new(),
    };
    refused.extend(rules.iter().flat_map(|rules| parsed.definition.outbound_mistakes(rules)));
    if refused.is_empty() { Ok(parsed) } else { Err(definition_problem(&refused)) }
}

/// Lists all agents.
#[utoipa::path(get, path = "/v1/agents", operation_id = "list_agents", tag = "agents",
    responses((status = 200, description = "All agents, in the order of their names.", body = AgentList)))]
pub(super) async fn list(
    allowed: Allowed<ReadAgents>,
    State(api): State<Api>,
    _: Query<NoParameters>,
) -> Result<Json<AgentList>, Problem> {
    let row = |agent: StoredAgent| {
        let description = agent.definition.get("description").and_then(Value::as_str);
        let description = description.unwrap_or_default().to_owned();
        AgentRow { name: agent.name, revision: agent.revision, description }
    };
    let agents = api.store.agents(&allowed.tenant()).await?.into_iter().map(row).collect();
    Ok(Json(AgentList { agents }))
}

/// Reads an agent's newest definition, as the client gave it.
#[utoipa::path(get, path = "/v1/agents/{name}", operation_id = "get_agent", tag = "agents",
    params(AgentPath),
    responses((status = 200, description = "The definition.", body = AgentDocument,
        headers(("Abide-Rollout" = String, description = "The revision and the percentage of the \
            agent's rollout; absent without one.")))))]
pub(super) async fn get(
    allowed: Allowed<ReadAgents>,
    State(api): State<Api>,
    Path(name): Path<String>,
) -> Result<(Option<[(&'static str, String); 1]>, Json<Value>), Problem> {
    let name = parse(&allowed, &name)?;
    let stored = api.store.agent(&name).await?;
    let stored = stored.ok_or_else(|| Problem::not_found("agent"))?;
    // The definition is as the client gave it, and can be put again: a header tells the rest.
    let rollout = rollout::find(&api, &name).await?;
    let header = rollout.map(|rollout| [(ROLLOUT_HEADER, rollout.to_header())]);
    Ok((header, Json(stored.definition)))
}

/// Deletes an agent.
///
/// Its conversations stay, but take no new messages; running turns end with their revision.
#[utoipa::path(delete, path = "/v1/agents/{name}", operation_id = "delete_agent", tag = "agents",
    params(AgentPath, IdempotencyKeyHeader),
    responses((status = 204, description = "The agent is gone.")))]
pub(super) async fn delete(
    allowed: Allowed<DefineAgents>,
    State(api): State<Api>,
    Path(name): Path<String>,
    idempotency: Idempotency,
) -> Result<StatusCode, Problem> {
    writable(&api, &allowed)?;
    let name = parse(&allowed, &name)?;
    let fingerprint = fingerprint(&["DELETE", name.as_str()]);
    let keys = idempotency.keys(&allowed, fingerprint);
    if first_response(&api, &name, &keys).await?.is_some() {
        return Ok(StatusCode::NO_CONTENT);
    }
    // Only a success may be stored for repeats.
    if api.store.agent(&name).await?.is_none() {
        return Err(Problem::not_found("agent"));
    }
    let stored = stored_response(&api, keys, Value::Null);
    let act = Act::of_caller(&allowed, "agent.delete", name.local().as_str());
    let effect = Effect::DeleteAgent { name, response: stored };
    if api.operations.carry_out(act, effect).await? {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Problem::not_found("agent"))
    }
}

pub(super) fn parse<P: Permission>(
    allowed: &Allowed<P>,
    name: &str,
) -> Result<Scoped<AgentName>, Problem> {
    let name = AgentName::parse(name).map(|name| allowed.scoped(&name));
    name.ok_or_else(|| Problem::field("name", "must be [a-z0-9][a-z0-9_-]{0,63}"))
}

fn response(defined: StoredDefinition) -> Response {
    let status = if defined.created { StatusCode::CREATED } else { StatusCode::OK };
    (status, Json(defined.agent)).into_response()
}

/// Which definitions the caller's tenant may write.
pub(super) fn writable<P: Permission>(
    api: &Api,
    allowed: &Allowed<P>,
) -> Result<AgentsOverHttp, Problem> {
    match api.access.agents_over_http(&allowed.tenant()) {
        AgentsOverHttp::Off => Err(Problem::forbidden(DefineAgents::NEEDS)),
        policy @ (AgentsOverHttp::Data | AgentsOverHttp::All) => Ok(policy),
    }
}

/// Refuses a workspace that the operator did not permit.
fn check_root(api: &Api, definition: &Definition) -> Result<(), Problem> {
    let Some(WorkspaceRoot { root, .. }) = &definition.workspace else { return Ok(()) };
    if api.workspaces.permits(root) {
        return Ok(());
    }
    let message = "must be a directory of --workspace-roots, or below one".to_owned();
    let field = "workspace.root".to_owned();
    Err(definition_problem(&[DefinitionError { tool: None, field, message }]))
}

/// The problem of a definition, with one row for each error.
fn definition_problem(errors: &[DefinitionError]) -> Problem {
    let row = |error: &DefinitionError| {
        let DefinitionError { tool, field, message } = error;
        json!({"tool": tool, "field": field, "message": message})
    };
    let rows: Vec<Value> = errors.iter().map(row).collect();
    Problem::new(Kind::InvalidRequest, join_errors(errors)).with("errors", json!(rows))
}

/// The response to the first request with this key; `None` if this is the first.
pub(super) async fn first_response(
    api: &Api,
    name: &Scoped<AgentName>,
    keys: &[IdempotencyKey],
) -> Result<Option<Value>, Problem> {
    let scope = ResponseScope::Agent(name.clone());
    for key in keys {
        if let Some(first) = api.store.stored_response(&scope, &key.key, api.clock.now()).await? {
            return repeats::of_same_request(key, first).map(Some);
        }
    }
    Ok(None)
}

/// The response to store under the request's key; `None` without a key.
pub(super) fn stored_response(
    api: &Api,
    mut keys: Vec<IdempotencyKey>,
    body: Value,
) -> Option<StoredResponse> {
    let key = keys.pop()?;
    Some(repeats::stored(api, key.key.clone(), &key, body))
}
