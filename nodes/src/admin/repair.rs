//! What operators do about a conversation that does not go on. Each is logged with who did it.

use abide_actors::request::{FailCallRequest, Reply, Request, RequestError};
use abide_conversation::{CallId, ConversationId, Principal};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Admin;
use crate::http::conversations::unexpected;
use crate::http::parse::{Operator, OptionalBody, Path, conversation};
use crate::http::problem::{Kind, Problem};

/// The longest error that an operator may give a call: the model reads it with every later step.
const ERROR_CHARS: usize = 2_000;

fn log(id: &ConversationId, by: &Principal, verb: &str) {
    tracing::info!(conversation = %id, %by, verb, "an operator repairs a conversation");
}

/// What waits for a later attempt is tried now; what runs is left alone.
pub(super) async fn retry(
    State(admin): State<Admin>,
    Path(id): Path<String>,
    Operator(by): Operator,
) -> Result<Json<Value>, Problem> {
    let id = conversation(&id)?;
    log(&id, &by, "retry");
    let retried = admin.conversations.retry(&id).await?;
    Ok(Json(json!({"retried": retried})))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fail {
    error: Option<String>,
}

/// An open call ends with an error, and the turn goes on.
pub(super) async fn fail(
    State(admin): State<Admin>,
    Path((id, call)): Path<(String, String)>,
    Operator(by): Operator,
    OptionalBody(Fail { error }): OptionalBody<Fail>,
) -> Result<Json<Value>, Problem> {
    let id = conversation(&id)?;
    let error = error.unwrap_or_else(|| "failed by an operator".to_owned());
    if !(1..=ERROR_CHARS).contains(&error.chars().count()) {
        return Err(Problem::field("error", format!("must be 1 to {ERROR_CHARS} characters")));
    }
    log(&id, &by, &format!("fail {call}"));
    let call = CallId::new(call);
    let request = Request::FailCall(FailCallRequest { call, by, error });
    match delivered(&admin, &id, request).await? {
        Reply::Resolved { seq } => Ok(Json(json!({"status": "failed", "seq": seq}))),
        other => Err(unexpected(&other)),
    }
}

/// The running turn ends, as a client could have it.
pub(super) async fn cancel(
    State(admin): State<Admin>,
    Path(id): Path<String>,
    Operator(by): Operator,
) -> Result<Json<Value>, Problem> {
    let id = conversation(&id)?;
    log(&id, &by, "cancel");
    match delivered(&admin, &id, Request::Cancel).await? {
        Reply::Cancelled { cancelled } => Ok(Json(json!({"cancelled": cancelled}))),
        other => Err(unexpected(&other)),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Move {
    node: Option<String>,
    #[serde(default)]
    force: bool,
}

/// Another node takes the conversation over, with all that it was doing.
pub(super) async fn move_to(
    State(admin): State<Admin>,
    Path(id): Path<String>,
    Operator(by): Operator,
    OptionalBody(Move { node, force }): OptionalBody<Move>,
) -> Result<Json<Value>, Problem> {
    let id = conversation(&id)?;
    log(&id, &by, "move");
    let node = admin.conversations.move_to(&id, node.as_deref(), force).await?;
    Ok(Json(json!({"node": node})))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Release {
    #[serde(default)]
    force: bool,
}

/// Its holder lets go of it; whoever needs it next starts it anew.
pub(super) async fn release(
    State(admin): State<Admin>,
    Path(id): Path<String>,
    Operator(by): Operator,
    OptionalBody(Release { force }): OptionalBody<Release>,
) -> Result<Json<Value>, Problem> {
    let id = conversation(&id)?;
    log(&id, &by, "release");
    let released = admin.conversations.release(&id, force).await?;
    Ok(Json(json!({"released": released})))
}

/// The actor crashes, as of a bug, and is revived at once where it was.
pub(super) async fn kill(
    State(admin): State<Admin>,
    Path(id): Path<String>,
    Operator(by): Operator,
) -> Result<StatusCode, Problem> {
    let id = conversation(&id)?;
    log(&id, &by, "kill");
    match admin.conversations.kill(&id).await? {
        true => Ok(StatusCode::ACCEPTED),
        false => Err(Problem::not_found("such live actor")),
    }
}

async fn delivered(admin: &Admin, id: &ConversationId, request: Request) -> Result<Reply, Problem> {
    let delivered = admin.conversations.deliver(id, request, Vec::new()).await;
    delivered.map_err(|failure| match failure {
        RequestError::Quarantined(reason) => {
            let first = "retry, move or release it first";
            Problem::new(
                Kind::Conflict,
                format!("the conversation is quarantined ({reason}): {first}"),
            )
        }
        failure => failure.into(),
    })
}
