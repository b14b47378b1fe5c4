//! Calls: answered, cancelled, made by the user, and everything that waits for somebody.

use abide_actors::journal::{InboxEntry, InboxFilter};
use abide_actors::request::{DispatchRequest, Reply, Request, ResolveRequest};
use abide_conversation::CallId;
use abide_conversation::command::Answer;
use abide_conversation::event::Kind;
use axum::Json;
use axum::extract::{Path, State};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use super::Api;
use super::conversations::{agent_name, unexpected};
use super::parse::{self, Body, Caller, Idempotency, Query};
use super::problem::Problem;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Resolution {
    approved: Option<bool>,
    reason: Option<String>,
    args: Option<Value>,
    /// Present and null is an answer.
    #[serde(default, deserialize_with = "present")]
    result: Option<Value>,
    error: Option<String>,
    suspension: Option<u32>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl Resolution {
    fn answer(self) -> Result<Answer, Problem> {
        let Self { approved, reason, args, result, error, .. } = self;
        if approved.is_none() && (reason.is_some() || args.is_some()) {
            return Err(Problem::field("approved", "is missing"));
        }
        match (approved, result, error) {
            (Some(false), None, None) if args.is_some() => {
                Err(Problem::field("args", "a denied call takes no arguments"))
            }
            (Some(approved), None, None) => Ok(Answer::Approval { approved, reason, args }),
            (None, Some(result), None) => Ok(Answer::Result(result)),
            (None, None, Some(error)) => Ok(Answer::Error(error)),
            _ => Err(Problem::field("approved", "give exactly one of approved, result and error")),
        }
    }
}

pub(super) async fn resolve(
    State(api): State<Api>,
    Path((id, call)): Path<(String, String)>,
    Caller(by): Caller,
    idempotency: Idempotency,
    body: Body<Resolution>,
) -> Result<Json<Value>, Problem> {
    let id = parse::conversation(&id)?;
    let suspension = body.value.suspension;
    let answer = body.value.answer()?;
    let call = CallId::new(call);
    let request = Request::Resolve(ResolveRequest { call, suspension, by, answer });
    let repeats = idempotency.repeats(body.fingerprint);
    match api.conversations.deliver(&id, request, repeats).await? {
        Reply::Resolved { seq } => Ok(Json(json!({"status": "accepted", "seq": seq}))),
        other => Err(unexpected(&other)),
    }
}

pub(super) async fn cancel(
    State(api): State<Api>,
    Path(id): Path<String>,
    idempotency: Idempotency,
) -> Result<Json<Value>, Problem> {
    let id = parse::conversation(&id)?;
    let repeats = idempotency.repeats(parse::fingerprint(&["cancel", id.as_str()]));
    match api.conversations.deliver(&id, Request::Cancel, repeats).await? {
        Reply::Cancelled { cancelled } => Ok(Json(json!({"cancelled": cancelled}))),
        other => Err(unexpected(&other)),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UsersCall {
    tool: String,
    #[serde(default = "no_input")]
    input: Value,
    #[serde(default)]
    approved: bool,
}

fn no_input() -> Value {
    json!({})
}

pub(super) async fn dispatch(
    State(api): State<Api>,
    Path(id): Path<String>,
    Caller(principal): Caller,
    idempotency: Idempotency,
    body: Body<UsersCall>,
) -> Result<Json<Value>, Problem> {
    let id = parse::conversation(&id)?;
    let UsersCall { tool, input, approved } = body.value;
    let request = Request::Dispatch(DispatchRequest { tool, input, approved, principal });
    let repeats = idempotency.repeats(body.fingerprint);
    match api.conversations.deliver(&id, request, repeats).await? {
        Reply::Dispatched { outcome, ui } => {
            let mut body = json!(outcome);
            if let Some(ui) = ui {
                body["ui"] = json!(ui);
            }
            Ok(Json(body))
        }
        other => Err(unexpected(&other)),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PendingQuery {
    kind: Option<Kind>,
    agent: Option<String>,
    tool: Option<String>,
    conversation: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

/// A page of the inbox, oldest deadline first.
#[derive(Debug, Serialize)]
pub(super) struct PendingPage {
    pending: Vec<InboxEntry>,
    cursor: Option<String>,
}

pub(super) async fn pending(
    State(api): State<Api>,
    Query(query): Query<PendingQuery>,
) -> Result<Json<PendingPage>, Problem> {
    let conversation = query.conversation.as_deref().map(parse::new_conversation).transpose();
    let filter = InboxFilter {
        kind: query.kind,
        agent: query.agent.as_deref().map(agent_name).transpose()?,
        tool: query.tool,
        conversation: conversation.map_err(|_| Problem::field("conversation", "is not an id"))?,
    };
    let limit = parse::limit(query.limit, 50, 1_000)?;
    let page = api.store.inbox(&filter, query.cursor.as_deref(), limit).await?;
    Ok(Json(PendingPage { pending: page.items, cursor: page.cursor }))
}
