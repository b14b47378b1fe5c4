//! The rollout of an agent's revision: a share of the conversations runs on it in place of the
//! newest one.

use abide_conversation::{AgentName, Revision, Scoped};
use abide_registry::store::{CurrentRevisions, Effect, Rollout, RolloutChange};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::agents::{self, checked, stored_response, writable};
use super::extract::{Body, Idempotency, Path, fingerprint};
use super::openapi::{AgentPath, IdempotencyKeyHeader};
use super::problem::Problem;
use super::{Api, revisions};
use crate::access::Allowed;
use crate::access::permission::{DefineAgents, ReadAgents};
use crate::operations::Act;

/// Which share of the conversations runs on which revision.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RolloutRequest)]
pub(super) struct RolloutBody {
    /// Another one than the newest.
    #[schema(pattern = "^[0-9a-f]{16}$", example = "0123456789abcdef")]
    revision: String,
    #[schema(value_type = u8, maximum = 100)]
    percent: Percent,
}

/// A whole number from 0 to 100.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(try_from = "Value")]
struct Percent(u8);

impl TryFrom<Value> for Percent {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        let percent = value.as_u64().and_then(|percent| u8::try_from(percent).ok());
        let percent = percent.filter(|percent| *percent <= 100);
        percent.map(Self).ok_or("must be a whole number from 0 to 100")
    }
}

/// A rollout.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Rollout)]
pub(super) struct RolloutView {
    /// The revision that the share runs on.
    revision: Revision,
    /// The share of the agent's conversations, from 1 to 100; 0 if the rollout has just ended.
    percent: u8,
    /// The revision that all other conversations run on.
    newest: Revision,
}

impl RolloutView {
    pub(super) fn of(current: CurrentRevisions) -> Option<Self> {
        let CurrentRevisions { newest, rollout } = current;
        let Rollout { revision, percent } = rollout?;
        Some(Self { revision, percent, newest })
    }

    /// The value of the header that tells of it.
    pub(super) fn to_header(&self) -> String {
        format!("{} {}", self.revision, self.percent)
    }

    /// The share that this revision has.
    pub(super) fn share_of(&self, revision: &Revision) -> Option<u8> {
        (self.revision == *revision).then_some(self.percent)
    }
}

/// The rollout of an agent that exists; `None` if all conversations run on its newest revision.
pub(super) async fn find(
    api: &Api,
    name: &Scoped<AgentName>,
) -> Result<Option<RolloutView>, Problem> {
    Ok(api.store.current_revisions(name).await?.and_then(RolloutView::of))
}

/// Lets a share of an agent's conversations run on another revision than the newest one.
///
/// Which conversations these are depends on their ids alone: a larger share has all conversations of
/// a smaller one. It concerns turns that begin from now on; a turn ends on the revision that it began
/// with. It stays when another definition is put, and ends with `percent` 0 or when its revision
/// becomes the newest one. The revision is checked as a definition is that is put now.
#[utoipa::path(put, path = "/v1/agents/{name}/rollout", tag = "agents",
    operation_id = "put_rollout", params(AgentPath, IdempotencyKeyHeader),
    request_body = RolloutBody,
    responses((status = 200, description = "It is as the request says.", body = RolloutView)))]
pub(super) async fn put(
    allowed: Allowed<DefineAgents>,
    State(api): State<Api>,
    Path(name): Path<String>,
    idempotency: Idempotency,
    body: Body<RolloutBody>,
) -> Result<Json<RolloutView>, Problem> {
    let policy = writable(&api, &allowed)?;
    let name = agents::parse(&allowed, &name)?;
    let (body, fingerprint) = body.into_parts();
    let keys = idempotency.keys(&allowed, fingerprint);
    if let Some(first) = agents::first_response(&api, &name, &keys).await? {
        let reused = |_| Problem::field("Idempotency-Key", "was used for another request");
        return serde_json::from_value(first).map(Json).map_err(reused);
    }
    let found = revisions::find(&api, &name, "revision", &body.revision).await?;
    let current = api.store.current_revisions(&name).await?;
    let current = current.ok_or_else(|| Problem::not_found("agent"))?;
    let Percent(percent) = body.percent;
    let (newest, revision) = (current.newest, found.revision);
    if percent > 0 && revision == newest {
        return Err(Problem::field("revision", "is the newest one, on which all others run"));
    }
    if percent > 0 {
        checked(&api, &allowed, policy, &name, found.definition).await?;
    }
    let view = RolloutView { revision: revision.clone(), percent, newest };
    let rollout = (percent > 0).then_some(Rollout { revision, percent });
    if rollout.is_none() && current.rollout.is_none() {
        return Ok(Json(view));
    }
    let target = format!("{}@{}", name.local(), view.revision);
    let act = Act::of_caller(&allowed, "agent.rollout", target).with_request(&body);
    let response = stored_response(&api, keys, json!(view));
    let effect = Effect::ChangeRollout(RolloutChange { name, rollout, response });
    // It fails if somebody has just deleted or removed what was found, or made it the newest.
    let is_done = api.operations.carry_out(act, effect).await?;
    if is_done || percent == 0 { Ok(Json(view)) } else { Err(Problem::not_found("revision")) }
}

/// Reads the rollout of an agent.
#[utoipa::path(get, path = "/v1/agents/{name}/rollout", tag = "agents",
    operation_id = "get_rollout", params(AgentPath),
    responses((status = 200, description = "The rollout.", body = RolloutView)))]
pub(super) async fn get(
    allowed: Allowed<ReadAgents>,
    State(api): State<Api>,
    Path(name): Path<String>,
) -> Result<Json<RolloutView>, Problem> {
    let name = agents::parse(&allowed, &name)?;
    let current = api.store.current_revisions(&name).await?;
    let current = current.ok_or_else(|| Problem::not_found("agent"))?;
    RolloutView::of(current).map(Json).ok_or_else(|| Problem::not_found("rollout"))
}

/// Ends the rollout of an agent: all turns that begin from now on run on the newest revision.
#[utoipa::path(delete, path = "/v1/agents/{name}/rollout", tag = "agents",
    operation_id = "end_rollout", params(AgentPath, IdempotencyKeyHeader),
    responses((status = 204, description = "It has ended.")))]
pub(super) async fn delete(
    allowed: Allowed<DefineAgents>,
    State(api): State<Api>,
    Path(name): Path<String>,
    idempotency: Idempotency,
) -> Result<StatusCode, Problem> {
    writable(&api, &allowed)?;
    let name = agents::parse(&allowed, &name)?;
    let fingerprint = fingerprint(&["DELETE", name.as_str(), "rollout"]);
    let keys = idempotency.keys(&allowed, fingerprint);
    if agents::first_response(&api, &name, &keys).await?.is_some() {
        return Ok(StatusCode::NO_CONTENT);
    }
    let act = Act::of_caller(&allowed, "agent.rollout_end", name.local().as_str());
    let response = stored_response(&api, keys, Value::Null);
    let effect = Effect::ChangeRollout(RolloutChange { name, rollout: None, response });
    if api.operations.carry_out(act, effect).await? {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Problem::not_found("rollout"))
    }
}
