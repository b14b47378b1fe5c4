//! What operators can do about a conversation that is stuck. Each action is in the operators' audit
//! before it happens, and in the journal of the conversation as far as that can be written.

use abide_actors::identity::NodeName;
use abide_actors::request::{FailCallRequest, Reply, Request, RequestError};
use abide_conversation::{CallId, ConversationId, Scoped};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Admin;
use super::repair_record::{Repair, RepairVerb};
use crate::access::Allowed;
use crate::access::permission::Operate;
use crate::http::conversations::unexpected;
use crate::http::extract::{Idempotency, OptionalBody, Path};
use crate::problem::{Kind, Problem};

/// The longest error that an operator may give a call: the model reads it in every later step.
const MAX_ERROR_CHARS: usize = 2_000;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RepairBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Retries now what is backing off; what runs is left alone.
pub(super) async fn retry(
    allowed: Allowed<Operate>,
    State(admin): State<Admin>,
    Path(id): Path<String>,
    idempotency: Idempotency,
    OptionalBody(body): OptionalBody<RepairBody>,
) -> Result<Json<Value>, Problem> {
    let repair = Repair::new(&admin, &allowed, &id, RepairVerb::Retry, body.reason.as_deref())?;
    let repair = repair.repeatable(&idempotency, &body);
    if let Some(first) = repair.first_answer().await? {
        return Ok(Json(first));
    }
    repair.record(&body).await?;
    let was_journalled = repair.journal_if_live().await;
    let retried = admin.conversations.retry(repair.id()).await?;
    if !was_journalled {
        repair.journal().await;
    }
    repair.keep(json!({"retried": retried})).await.map(Json)
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FailBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Ends an open call with an error; the turn goes on.
pub(super) async fn fail(
    allowed: Allowed<Operate>,
    State(admin): State<Admin>,
    Path((id, call)): Path<(String, String)>,
    idempotency: Idempotency,
    OptionalBody(body): OptionalBody<FailBody>,
) -> Result<Json<Value>, Problem> {
    let error = body.error.clone().unwrap_or_else(|| "failed by an operator".to_owned());
    if !(1..=MAX_ERROR_CHARS).contains(&error.chars().count()) {
        return Err(Problem::field("error", format!("must be 1 to {MAX_ERROR_CHARS} characters")));
    }
    let verb = RepairVerb::Fail(CallId::new(call.clone()));
    let repair = Repair::new(&admin, &allowed, &id, verb, body.reason.as_deref())?;
    let repair = repair.repeatable(&idempotency, &body);
    if let Some(first) = repair.first_answer().await? {
        return Ok(Json(first));
    }
    repair.record(&body).await?;
    let (by, identity) = repair.author();
    let (call, reason) = (CallId::new(call), body.reason);
    let request = Request::FailCall(FailCallRequest { call, by, identity, reason, error });
    match deliver(&admin, repair.id(), request).await? {
        Reply::Resolved { seq } => {
            repair.keep(json!({"status": "failed", "seq": seq})).await.map(Json)
        }
        other => Err(unexpected(&other)),
    }
}

/// Cancels the running turn, as a client could.
pub(super) async fn cancel(
    allowed: Allowed<Operate>,
    State(admin): State<Admin>,
    Path(id): Path<String>,
    idempotency: Idempotency,
    OptionalBody(body): OptionalBody<RepairBody>,
) -> Result<Json<Value>, Problem> {
    let repair = Repair::new(&admin, &allowed, &id, RepairVerb::Cancel, body.reason.as_deref())?;
    let repair = repair.repeatable(&idempotency, &body);
    if let Some(first) = repair.first_answer().await? {
        return Ok(Json(first));
    }
    repair.record(&body).await?;
    repair.journal().await;
    match deliver(&admin, repair.id(), Request::Cancel).await? {
        Reply::Cancelled { cancelled } => {
            repair.keep(json!({"cancelled": cancelled})).await.map(Json)
        }
        other => Err(unexpected(&other)),
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MoveBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<NodeName>,
    #[serde(default)]
    force: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Moves the conversation to another node, which resumes all that was running.
pub(super) async fn move_to(
    allowed: Allowed<Operate>,
    State(admin): State<Admin>,
    Path(id): Path<String>,
    idempotency: Idempotency,
    OptionalBody(body): OptionalBody<MoveBody>,
) -> Result<Json<Value>, Problem> {
    let repair = Repair::new(&admin, &allowed, &id, RepairVerb::Move, body.reason.as_deref())?;
    let repair = repair.repeatable(&idempotency, &body);
    if let Some(first) = repair.first_answer().await? {
        return Ok(Json(first));
    }
    repair.record(&body).await?;
    let was_journalled = repair.journal_if_live().await;
    let moved = admin.conversations.move_to(repair.id(), body.node.as_ref(), body.force).await;
    let node = moved?;
    if !was_journalled {
        repair.journal().await;
    }
    repair.keep(json!({"node": node})).await.map(Json)
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReleaseBody {
    #[serde(default)]
    force: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Makes the holder release the conversation; the next request starts it anew.
pub(super) async fn release(
    allowed: Allowed<Operate>,
    State(admin): State<Admin>,
    Path(id): Path<String>,
    idempotency: Idempotency,
    OptionalBody(body): OptionalBody<ReleaseBody>,
) -> Result<Json<Value>, Problem> {
    let repair = Repair::new(&admin, &allowed, &id, RepairVerb::Release, body.reason.as_deref())?;
    let repair = repair.repeatable(&idempotency, &body);
    if let Some(first) = repair.first_answer().await? {
        return Ok(Json(first));
    }
    repair.record(&body).await?;
    // Whoever wrote into the journal afterwards would hold the conversation again.
    repair.journal_if_live().await;
    let released = admin.conversations.release(repair.id(), body.force).await?;
    repair.keep(json!({"released": released})).await.map(Json)
}

/// Crashes the actor, as a bug would; it is revived at once on the same node.
pub(super) async fn kill(
    allowed: Allowed<Operate>,
    State(admin): State<Admin>,
    Path(id): Path<String>,
    idempotency: Idempotency,
    OptionalBody(body): OptionalBody<RepairBody>,
) -> Result<StatusCode, Problem> {
    let repair = Repair::new(&admin, &allowed, &id, RepairVerb::Kill, body.reason.as_deref())?;
    let repair = repair.repeatable(&idempotency, &body);
    if repair.first_answer().await?.is_some() {
        return Ok(StatusCode::ACCEPTED);
    }
    repair.record(&body).await?;
    repair.journal_if_live().await;
    if !admin.conversations.kill(repair.id()).await? {
        return Err(Problem::not_found("live actor"));
    }
    repair.keep(Value::Null).await?;
    Ok(StatusCode::ACCEPTED)
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
