//! What operators can do about a conversation that is stuck. Each action is logged with its author.

use abide_actors::identity::NodeName;
use abide_actors::request::{FailCallRequest, Reply, Request, RequestError};
use abide_conversation::{CallId, ConversationId, Principal, Scoped};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Admin;
use super::scoped_id::conversation;
use crate::access::Allowed;
use crate::access::permission::Operate;
use crate::http::conversations::unexpected;
use crate::http::extract::{OptionalBody, Path};
use crate::problem::{Kind, Problem};

/// The longest error that an operator may give a call: the model reads it in every later step.
const MAX_ERROR_CHARS: usize = 2_000;

fn log(id: &Scoped<ConversationId>, by: &Principal, verb: &str) {
    tracing::info!(conversation = %id, %by, verb, "repair by an operator");
}

/// Retries now what is backing off; what runs is left alone.
pub(super) async fn retry(
    allowed: Allowed<Operate>,
    State(admin): State<Admin>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    let id = conversation(&allowed, &id)?;
    let by = allowed.operator();
    log(&id, &by, "retry");
    let retried = admin.conversations.retry(&id).await?;
    Ok(Json(json!({"retried": retried})))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FailBody {
    error: Option<String>,
}

/// Ends an open call with an error; the turn goes on.
pub(super) async fn fail(
    allowed: Allowed<Operate>,
    State(admin): State<Admin>,
    Path((id, call)): Path<(String, String)>,
    OptionalBody(FailBody { error }): OptionalBody<FailBody>,
) -> Result<Json<Value>, Problem> {
    let id = conversation(&allowed, &id)?;
    let error = error.unwrap_or_else(|| "failed by an operator".to_owned());
    if !(1..=MAX_ERROR_CHARS).contains(&error.chars().count()) {
        return Err(Problem::field("error", format!("must be 1 to {MAX_ERROR_CHARS} characters")));
    }
    let by = allowed.operator();
    log(&id, &by, &format!("fail {call}"));
    let call = CallId::new(call);
    let request = Request::FailCall(FailCallRequest { call, by, error });
    match deliver(&admin, &id, request).await? {
        Reply::Resolved { seq } => Ok(Json(json!({"status": "failed", "seq": seq}))),
        other => Err(unexpected(&other)),
    }
}

/// Cancels the running turn, as a client could.
pub(super) async fn cancel(
    allowed: Allowed<Operate>,
    State(admin): State<Admin>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    let id = conversation(&allowed, &id)?;
    let by = allowed.operator();
    log(&id, &by, "cancel");
    match deliver(&admin, &id, Request::Cancel).await? {
        Reply::Cancelled { cancelled } => Ok(Json(json!({"cancelled": cancelled}))),
        other => Err(unexpected(&other)),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MoveBody {
    node: Option<NodeName>,
    #[serde(default)]
    force: bool,
}

/// Moves the conversation to another node, which resumes all that was running.
pub(super) async fn move_to(
    allowed: Allowed<Operate>,
    State(admin): State<Admin>,
    Path(id): Path<String>,
    OptionalBody(MoveBody { node, force }): OptionalBody<MoveBody>,
) -> Result<Json<Value>, Problem> {
    let id = conversation(&allowed, &id)?;
    let by = allowed.operator();
    log(&id, &by, "move");
    let node = admin.conversations.move_to(&id, node.as_ref(), force).await?;
    Ok(Json(json!({"node": node})))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReleaseBody {
    #[serde(default)]
    force: bool,
}

/// Makes the holder release the conversation; the next request starts it anew.
pub(super) async fn release(
    allowed: Allowed<Operate>,
    State(admin): State<Admin>,
    Path(id): Path<String>,
    OptionalBody(ReleaseBody { force }): OptionalBody<ReleaseBody>,
) -> Result<Json<Value>, Problem> {
    let id = conversation(&allowed, &id)?;
    let by = allowed.operator();
    log(&id, &by, "release");
    let released = admin.conversations.release(&id, force).await?;
    Ok(Json(json!({"released": released})))
}

/// Crashes the actor, as a bug would; it is revived at once on the same node.
pub(super) async fn kill(
    allowed: Allowed<Operate>,
    State(admin): State<Admin>,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let id = conversation(&allowed, &id)?;
    let by = allowed.operator();
    log(&id, &by, "kill");
    if admin.conversations.kill(&id).await? {
        Ok(StatusCode::ACCEPTED)
    } else {
        Err(Problem::not_found("live actor"))
    }
}

async fn deliver(
    admin: &Admin,
    id: &Scoped<ConversationId>,
    request: Request,
) -> Result<Reply, Problem> {
    let reply = admin.conversations.deliver(id, request, Vec::new()).await;
    reply.map_err(|error| match error {
        RequestError::Quarantined(reason) => {
            let detail = format!(
                "the conversation is quarantined ({reason}): retry, move or release it first"
            );
            Problem::new(Kind::Conflict, detail)
        }
        error => error.into(),
    })
}
