//! Calls: answered, cancelled, made by the user, and everything that waits for somebody.

use abide_actors::journal::{InboxEntry, InboxFilter};
use abide_actors::request::{DispatchRequest, RememberRequest, Reply, Request, ResolveRequest};
use abide_conversation::command::ResolutionAnswer;
use abide_conversation::event::SuspensionKind;
use abide_conversation::message::{Outcome, Ui};
use abide_conversation::remembered_decision::{Match, Scope};
use abide_conversation::{CallId, ConversationId};
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::conversations::{agent_name, unexpected};
use super::extract;
use super::extract::{Body, Caller, Idempotency, Path, Query};
use super::openapi::{CallPath, ConversationPath, IdempotencyKeyHeader, PrincipalHeader};
use super::problem::Problem;

/// An answer to an open suspension: exactly one of `approved`, `result` and `error`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ResolutionRequest)]
pub(super) struct ResolutionRequest {
    /// For an approval.
    approved: Option<bool>,
    /// With `approved`: why.
    reason: Option<String>,
    /// With `approved: true`: the arguments as the approver edited them.
    args: Option<Value>,
    /// For an elicitation or a client call: any JSON, as data.
    /// Present and null is an answer.
    #[serde(default, deserialize_with = "abide_conversation::keep_null")]
    result: Option<Value>,
    /// For an elicitation or a client call: makes the call's result an error.
    error: Option<String>,
    /// The suspension that is meant, from 1; absent: whichever is open.
    #[schema(minimum = 1)]
    suspension: Option<u32>,
    /// With `approved`: the decision holds for later calls of the tool, too, unless it is `strict`.
    remember: Option<Remember>,
}

/// For which later calls a decision holds, and how long.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RememberRequest)]
struct Remember {
    /// This conversation, or all of its agent's.
    #[schema(default = "conversation")]
    scope: Option<Scope>,
    /// Calls with the same arguments, or all of the tool's.
    #[schema(default = "exact")]
    r#match: Option<Match>,
    /// A duration of at most 365 days.
    #[schema(example = "24h")]
    r#for: String,
}

impl Remember {
    fn request(&self) -> Result<RememberRequest, Problem> {
        let wrong = |why: String| Problem::field("remember.for", why);
        let span = abide_actors::agent::duration(&self.r#for).map_err(wrong)?;
        Ok(RememberRequest {
            scope: self.scope.unwrap_or(Scope::Conversation),
            matching: self.r#match.unwrap_or(Match::Exact),
            for_ms: u64::try_from(span.as_millis()).unwrap_or(u64::MAX),
        })
    }
}

impl ResolutionRequest {
    fn answer(self) -> Result<ResolutionAnswer, Problem> {
        let Self { approved, reason, args, result, error, remember, suspension: _ } = self;
        if approved.is_none() && (reason.is_some() || args.is_some()) {
            return Err(Problem::field("approved", "is missing"));
        }
        if approved.is_none() && remember.is_some() {
            return Err(Problem::field("remember", "is for an approval only"));
        }
        match (approved, result, error) {
            (Some(false), None, None) if args.is_some() => {
                Err(Problem::field("args", "a denied call takes no arguments"))
            }
            (Some(approved), None, None) => {
                Ok(ResolutionAnswer::Approval { approved, reason, args })
            }
            (None, Some(result), None) => Ok(ResolutionAnswer::Result(result)),
            (None, None, Some(error)) => Ok(ResolutionAnswer::Error(error)),
            _ => Err(Problem::field("approved", "give exactly one of approved, result and error")),
        }
    }
}

/// The answer was the one that counts.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Resolved {
    status: Accepted,
    /// Of the `resolution` event.
    seq: u64,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Accepted {
    Accepted,
}

/// Answers a call that waits.
///
/// `call-not-open` is said of an unknown call, one that is not open, one that waits for the form
/// of another phase, and of a second or late answer. An answer that breaks the tool's
/// `result_schema`, or edited `args` that break its `parameters`, leave the call open.
#[utoipa::path(post, path = "/v1/conversations/{id}/calls/{call_id}/resolution",
    operation_id = "resolve_call", tag = "calls",
    params(CallPath, IdempotencyKeyHeader, PrincipalHeader),
    request_body(content = ResolutionRequest, examples(
        ("approve" = (value = json!({"approved": true}))),
        ("approve_edited" = (value = json!({"approved": true, "args": {"to": "a@b.c"}}))),
        ("approve_for_a_day" = (value = json!({"approved": true,
            "remember": {"scope": "agent", "match": "exact", "for": "24h"}}))),
        ("deny" = (value = json!({"approved": false, "reason": "not today"}))),
        ("answer" = (value = json!({"result": {"seat": "window"}, "suspension": 1}))),
        ("fail" = (value = json!({"error": "the page was closed"}))))),
    responses((status = 200, description = "It is journalled.", body = Resolved)))]
pub(super) async fn resolve(
    State(api): State<Api>,
    Path((id, call)): Path<(String, String)>,
    Caller(by): Caller,
    idempotency: Idempotency,
    body: Body<ResolutionRequest>,
) -> Result<Json<Resolved>, Problem> {
    let (id, came) = (extract::conversation(&id)?, Instant::now());
    let suspension = body.value.suspension;
    let remember = body.value.remember.as_ref().map(Remember::request).transpose()?;
    let answer = body.value.answer()?;
    let call = CallId::new(call);
    let request = Request::Resolve(ResolveRequest { call, suspension, by, answer, remember });
    let repeats = idempotency.repeats(body.fingerprint);
    match api.conversations.deliver(&id, request, repeats).await? {
        Reply::Resolved { seq } => {
            metrics::histogram!("abide_resolution_seconds").record(came.elapsed().as_secs_f64());
            Ok(Json(Resolved { status: Accepted::Accepted, seq }))
        }
        other => Err(unexpected(&other)),
    }
}

/// Whether this call ended the turn.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Cancelled {
    /// False: there was nothing to cancel.
    cancelled: bool,
}

/// Ends the running turn, also when no actor is live.
///
/// Open calls end with `[cancelled]`; what the model had said is kept, marked. A body is not read.
#[utoipa::path(post, path = "/v1/conversations/{id}/cancel", operation_id = "cancel_turn",
    tag = "calls", params(ConversationPath, IdempotencyKeyHeader),
    responses((status = 200, description = "No turn runs now.", body = Cancelled)))]
pub(super) async fn cancel(
    State(api): State<Api>,
    Path(id): Path<String>,
    idempotency: Idempotency,
) -> Result<Json<Cancelled>, Problem> {
    let id = extract::conversation(&id)?;
    let repeats = idempotency.repeats(extract::fingerprint(&["cancel", id.as_str()]));
    match api.conversations.deliver(&id, Request::Cancel, repeats).await? {
        Reply::Cancelled { cancelled } => Ok(Json(Cancelled { cancelled })),
        other => Err(unexpected(&other)),
    }
}

/// A user's own call of a server tool.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DispatchRequest)]
pub(super) struct DispatchBody {
    /// A name, or an alias.
    tool: String,
    /// The arguments, as the tool's `parameters` describe them.
    input: Value,
    /// Whether the caller approves a gated tool.
    #[serde(default)]
    approved: bool,
}

/// What a user's own call came to.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Dispatched {
    #[serde(flatten)]
    outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    ui: Option<Ui>,
}

/// Calls a server tool for the user, never through the model.
///
/// Answers when the tool does. A tool that fails is a 200 with `ok: false`.
#[utoipa::path(post, path = "/v1/conversations/{id}/dispatch", operation_id = "dispatch_tool",
    tag = "calls", params(ConversationPath, IdempotencyKeyHeader, PrincipalHeader),
    request_body(content = DispatchBody, example = json!({
        "tool": "send_email", "input": {"to": "a@b.c"}, "approved": true})),
    responses((status = 200, description = "The tool's result.", body = Dispatched)))]
pub(super) async fn dispatch(
    State(api): State<Api>,
    Path(id): Path<String>,
    Caller(principal): Caller,
    idempotency: Idempotency,
    body: Body<DispatchBody>,
) -> Result<Json<Dispatched>, Problem> {
    let id = extract::conversation(&id)?;
    let DispatchBody { tool, input, approved } = body.value;
    let request = Request::Dispatch(DispatchRequest { tool, input, approved, principal });
    let repeats = idempotency.repeats(body.fingerprint);
    match api.conversations.deliver(&id, request, repeats).await? {
        Reply::Dispatched { outcome, ui } => Ok(Json(Dispatched { outcome, ui })),
        other => Err(unexpected(&other)),
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PendingQuery {
    /// What they wait for.
    kind: Option<SuspensionKind>,
    /// Of this agent.
    agent: Option<String>,
    /// Of this tool.
    tool: Option<String>,
    /// Of this conversation, and of the children at work for it.
    conversation: Option<String>,
    /// A page's size.
    #[param(default = 50, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// From the page before.
    cursor: Option<String>,
}

/// A page of the inbox, oldest deadline first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PendingPage {
    pending: Vec<InboxEntry>,
    /// For the next page; null at the end. A page may be short before the end.
    #[schema(required)]
    cursor: Option<String>,
}

/// Lists every open suspension, the oldest deadline first.
#[utoipa::path(get, path = "/v1/pending", operation_id = "list_pending", tag = "calls",
    params(PendingQuery),
    responses((status = 200, description = "A page of them.", body = PendingPage)))]
pub(super) async fn pending(
    State(api): State<Api>,
    Query(query): Query<PendingQuery>,
) -> Result<Json<PendingPage>, Problem> {
    let conversation = query.conversation.as_deref().map(extract::new_conversation).transpose();
    let filter = InboxFilter {
        kind: query.kind,
        agent: query.agent.as_deref().map(agent_name).transpose()?,
        tool: query.tool,
        conversation: conversation.map_err(|_| Problem::field("conversation", "is not an id"))?,
    };
    let limit = extract::limit(query.limit, 50, 1_000)?;
    if let Some(root) = &filter.conversation {
        let family = api.conversations.with_descendants(root).await?;
        if family.len() > 1 {
            return family_inbox(&api, &filter, family, query.cursor.as_deref(), limit).await;
        }
    }
    let page = api.store.inbox(&filter, query.cursor.as_deref(), limit).await?;
    Ok(Json(PendingPage { pending: page.items, cursor: page.cursor }))
}

/// What a conversation and the children at work for it wait for; a cursor counts what came before.
async fn family_inbox(
    api: &Api,
    filter: &InboxFilter,
    family: Vec<ConversationId>,
    cursor: Option<&str>,
    limit: usize,
) -> Result<Json<PendingPage>, Problem> {
    let from: usize = match cursor.map(str::parse) {
        None => 0,
        Some(Ok(from)) => from,
        Some(Err(_)) => return Err(Problem::field("cursor", "is not of the page before")),
    };
    let most = limit.saturating_add(from).saturating_add(1);
    let mut pending = Vec::new();
    for member in family {
        let filter = InboxFilter { conversation: Some(member), ..filter.clone() };
        pending.extend(api.store.inbox(&filter, None, most).await?.items);
        pending.sort_by_key(|entry| entry.pending.expires_at);
        pending.truncate(most);
    }
    let more = pending.len() == most;
    let pending = pending.into_iter().skip(from).take(limit).collect();
    let cursor = more.then(|| from.saturating_add(limit).to_string());
    Ok(Json(PendingPage { pending, cursor }))
}
