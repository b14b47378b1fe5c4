//! Calls: resolve one, cancel a turn, dispatch a tool, and list everything that is pending.

use abide_actors::access::Answerer;
use abide_actors::journal::{InboxEntry, InboxFilter};
use abide_actors::request::{DispatchRequest, RememberRequest, Reply, Request, ResolveRequest};
use abide_conversation::approval::VoteRefusal;
use abide_conversation::command::ResolutionAnswer;
use abide_conversation::event::SuspensionKind;
use abide_conversation::identity::Role;
use abide_conversation::message::{Outcome, Ui};
use abide_conversation::remembered_decision::{Match, Scope};
use abide_conversation::{CallId, ConversationId, Rejection, Scoped, Seq};
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::conversations::{agent_name, unexpected};
use super::extract;
use super::extract::{Body, Idempotency, Path, Query};
use super::openapi::{CallPath, ConversationPath, IdempotencyKeyHeader, PrincipalHeader};
use super::problem::Problem;
use crate::access::Allowed;
use crate::access::permission::{Answer, Cancel, Dispatch, ListPending};

/// The largest number of a suspension: clients count in 32 bits with a sign.
const MAX_SUSPENSION: u32 = i32::MAX.unsigned_abs();

/// An answer to an open suspension: exactly one of `approved`, `result` and `error`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ResolutionRequest)]
pub(super) struct ResolutionRequest {
    /// For an approval: whether the call may run.
    approved: Option<bool>,
    /// With `approved`: the reason.
    reason: Option<String>,
    /// With `approved: true`: the arguments as the approver edited them.
    args: Option<Value>,
    /// For an elicitation or a client call: any JSON, as data. A null that is present is an answer.
    #[serde(default, deserialize_with = "abide_conversation::keep_null")]
    result: Option<Value>,
    /// For an elicitation or a client call: makes the call's result an error.
    #[schema(min_length = 1)]
    error: Option<String>,
    /// The number of the suspension, from 1; the open one if absent.
    #[schema(minimum = 1)]
    suspension: Option<u32>,
    /// With `approved`: also applies the decision to later calls of the tool, unless it is `strict`.
    remember: Option<Remember>,
}

/// The later calls that a decision applies to, and for how long.
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
        let duration = abide_actors::agent::duration(&self.r#for);
        let duration = duration.map_err(|reason| Problem::field("remember.for", reason))?;
        Ok(RememberRequest {
            scope: self.scope.unwrap_or(Scope::Conversation),
            matching: self.r#match.unwrap_or(Match::Exact),
            for_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
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
            return Err(Problem::field("remember", "is only for an approval"));
        }
        match (approved, result, error) {
            (Some(false), None, None) if args.is_some() => {
                Err(Problem::field("args", "must be absent when the call is denied"))
            }
            (Some(approved), None, None) => {
                Ok(ResolutionAnswer::Approval { approved, reason, args })
            }
            (None, Some(result), None) => Ok(ResolutionAnswer::Result(result)),
            (None, None, Some(error)) if error.trim().is_empty() => {
                Err(Problem::field("error", "is empty"))
            }
            (None, None, Some(error)) => Ok(ResolutionAnswer::Error(error)),
            _ => Err(Problem::field(
                "approved",
                "exactly one of approved, result and error is required",
            )),
        }
    }
}

/// An answer that is journalled.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Resolved {
    status: ResolutionStatus,
    /// `recorded` only: how many have voted so.
    #[serde(skip_serializing_if = "Option::is_none")]
    votes: Option<u32>,
    /// `recorded` only: how many must.
    #[serde(skip_serializing_if = "Option::is_none")]
    needed: Option<u32>,
    /// The seq of the event `resolution` or `voted`.
    #[schema(value_type = u64)]
    seq: Seq,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ResolutionStatus {
    /// The call is resolved.
    Accepted,
    /// A vote: others must approve, too.
    Recorded,
}

/// Resolves a call that waits for an answer.
///
/// The problem `call-not-open` answers for an unknown call, for one that is not open or that waits for
/// another form of answer, and for a second or late answer. An answer that violates the tool's
/// `result_schema`, or edited `args` that violate its `parameters`, leave the call open. An approval that
/// several must give is `recorded` until the last of them gives it.
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
    responses((status = 200, description = "The answer is journalled.", body = Resolved)))]
pub(super) async fn resolve(
    allowed: Allowed<Answer>,
    State(api): State<Api>,
    Path((id, call)): Path<(String, String)>,
    idempotency: Idempotency,
    body: Body<ResolutionRequest>,
) -> Result<Json<Resolved>, Problem> {
    let received = Instant::now();
    let id = allowed.conversation(&id)?;
    let suspension = body.value.suspension;
    if suspension.is_some_and(|number| number > MAX_SUSPENSION) {
        return Err(Problem::field("suspension", format!("must be at most {MAX_SUSPENSION}")));
    }
    let remember = body.value.remember.as_ref().map(Remember::request).transpose()?;
    let answer = body.value.answer()?;
    let call = CallId::new(call);
    let by = allowed.principal();
    let request = Request::Resolve(ResolveRequest { call, suspension, by, answer, remember });
    let keys = idempotency.keys(&allowed, body.fingerprint);
    match api.conversations.deliver(&allowed, &id, request, keys).await? {
        Reply::Resolved { seq } => {
            metrics::histogram!("abide_resolution_seconds")
                .record(received.elapsed().as_secs_f64());
            let status = ResolutionStatus::Accepted;
            Ok(Json(Resolved { status, votes: None, needed: None, seq }))
        }
        Reply::Recorded { votes, needed, seq } => {
            let status = ResolutionStatus::Recorded;
            Ok(Json(Resolved { status, votes: Some(votes), needed: Some(needed), seq }))
        }
        other => Err(unexpected(&other)),
    }
}

/// Whether the request ended a turn.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Cancelled {
    /// False when there was nothing to cancel.
    cancelled: bool,
}

/// Cancels the running turn, also when no actor is live.
///
/// Open calls end with `[cancelled]`; the partial message of the model is kept, with a status that says
/// so. A body is not read.
#[utoipa::path(post, path = "/v1/conversations/{id}/cancel", operation_id = "cancel_turn",
    tag = "calls", params(ConversationPath, IdempotencyKeyHeader),
    responses((status = 200, description = "No turn is running.", body = Cancelled)))]
pub(super) async fn cancel(
    allowed: Allowed<Cancel>,
    State(api): State<Api>,
    Path(id): Path<String>,
    idempotency: Idempotency,
) -> Result<Json<Cancelled>, Problem> {
    let id = allowed.conversation(&id)?;
    let keys = idempotency.keys(&allowed, extract::fingerprint(&["cancel", id.as_str()]));
    match api.conversations.deliver(&allowed, &id, Request::Cancel, keys).await? {
        Reply::Cancelled { cancelled } => Ok(Json(Cancelled { cancelled })),
        other => Err(unexpected(&other)),
    }
}

/// A call of a server tool by the user.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = DispatchRequest)]
pub(super) struct DispatchBody {
    /// The tool's name or alias.
    tool: String,
    /// The arguments, as the tool's `parameters` describe them.
    input: Value,
    /// Whether the caller approves a gated tool; for approvers only, where callers are authenticated.
    #[serde(default)]
    approved: bool,
}

/// The result of a dispatched call.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Dispatched {
    #[serde(flatten)]
    outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    ui: Option<Ui>,
}

/// Calls a server tool for the user, without the model.
///
/// The response comes when the tool has ended. A tool that fails is a 200 with `ok: false`.
#[utoipa::path(post, path = "/v1/conversations/{id}/dispatch", operation_id = "dispatch_tool",
    tag = "calls", params(ConversationPath, IdempotencyKeyHeader, PrincipalHeader),
    request_body(content = DispatchBody, example = json!({
        "tool": "send_email", "input": {"to": "a@b.c"}, "approved": true})),
    responses((status = 200, description = "The tool's result.", body = Dispatched)))]
pub(super) async fn dispatch(
    allowed: Allowed<Dispatch>,
    State(api): State<Api>,
    Path(id): Path<String>,
    idempotency: Idempotency,
    body: Body<DispatchBody>,
) -> Result<Json<Dispatched>, Problem> {
    let id = allowed.conversation(&id)?;
    let DispatchBody { tool, input, approved } = body.value;
    if approved && !allowed.has_role(&[Role::Approver]) {
        return Err(Rejection::VoteRefused(VoteRefusal::Role).into());
    }
    let principal = allowed.principal();
    let request = Request::Dispatch(DispatchRequest { tool, input, approved, principal });
    let keys = idempotency.keys(&allowed, body.fingerprint);
    match api.conversations.deliver(&allowed, &id, request, keys).await? {
        Reply::Dispatched { outcome, ui } => Ok(Json(Dispatched { outcome, ui })),
        other => Err(unexpected(&other)),
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PendingQuery {
    /// Only suspensions of this kind.
    kind: Option<SuspensionKind>,
    /// Only those of this agent.
    agent: Option<String>,
    /// Only those of this tool.
    tool: Option<String>,
    /// Only those of this conversation and of the children that work for it.
    conversation: Option<String>,
    /// Only what the caller may answer.
    #[param(default = false)]
    mine: Option<bool>,
    /// The size of the page.
    #[param(default = 50, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The cursor of the previous page.
    cursor: Option<String>,
}

/// A page of open suspensions, the earliest deadline first.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PendingPage {
    pending: Vec<PendingEntry>,
    /// The cursor of the next page; null at the end. A page before the end may be short.
    #[schema(required)]
    cursor: Option<String>,
}

/// An open suspension, and what the caller may do about it.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PendingEntry {
    #[serde(flatten)]
    entry: InboxEntry,
    /// Whether the caller may answer it now.
    may_answer: bool,
}

impl PendingPage {
    fn new(entries: Vec<InboxEntry>, caller: &Answerer, cursor: Option<String>) -> Self {
        let seen_by_caller = |entry: InboxEntry| PendingEntry {
            may_answer: caller.may_answer(&entry.participants, &entry.pending),
            entry,
        };
        Self { pending: entries.into_iter().map(seen_by_caller).collect(), cursor }
    }
}

/// Lists the open suspensions, the earliest deadline first.
#[utoipa::path(get, path = "/v1/pending", operation_id = "list_pending", tag = "calls",
    params(PendingQuery),
    responses((status = 200, description = "A page of open suspensions.", body = PendingPage)))]
pub(super) async fn pending(
    allowed: Allowed<ListPending>,
    State(api): State<Api>,
    Query(query): Query<PendingQuery>,
) -> Result<Json<PendingPage>, Problem> {
    let conversation = query.conversation.as_deref().map(|id| {
        let wrong = || Problem::field("conversation", "is not a conversation id");
        allowed.named_conversation(id).ok_or_else(wrong)
    });
    let conversation = conversation.transpose()?;
    let caller = allowed.answerer(api.clock.now());
    let filter = InboxFilter {
        kind: query.kind,
        agent: query.agent.as_deref().map(agent_name).transpose()?,
        tool: query.tool,
        conversation: conversation.as_ref().map(Scoped::local),
        visible_to: allowed.viewer(),
        answerable_by: query.mine.unwrap_or(false).then(|| caller.clone()),
    };
    let limit = extract::limit(query.limit, 50, 1_000)?;
    if let Some(root) = &conversation {
        let tree = api.conversations.unscoped().with_descendants(root).await?;
        if tree.len() > 1 {
            let (entries, cursor) =
                tree_inbox(&api, &filter, tree, query.cursor.as_deref(), limit).await?;
            return Ok(Json(PendingPage::new(entries, &caller, cursor)));
        }
    }
    let cursor = query.cursor.as_deref();
    let page = api.store.inbox(&allowed.tenant(), &filter, cursor, limit).await?;
    Ok(Json(PendingPage::new(page.items, &caller, page.cursor)))
}

/// The inbox of a conversation and of the children that work for it; the cursor is the number of
/// entries on the pages before.
async fn tree_inbox(
    api: &Api,
    filter: &InboxFilter,
    tree: Vec<Scoped<ConversationId>>,
    cursor: Option<&str>,
    limit: usize,
) -> Result<(Vec<InboxEntry>, Option<String>), Problem> {
    let offset: usize = match cursor.map(str::parse) {
        None => 0,
        Some(Ok(offset)) => offset,
        Some(Err(_)) => return Err(Problem::field("cursor", "was not returned by this listing")),
    };
    // One entry past the page tells whether there is another page.
    let max = limit.saturating_add(offset).saturating_add(1);
    let mut pending = Vec::new();
    for conversation in tree {
        let filter = InboxFilter { conversation: Some(conversation.local()), ..filter.clone() };
        pending.extend(api.store.inbox(&conversation.tenant(), &filter, None, max).await?.items);
        pending.sort_by_key(|entry| entry.pending.expires_at);
        pending.truncate(max);
    }
    let more = pending.len() == max;
    let pending = pending.into_iter().skip(offset).take(limit).collect();
    let cursor = more.then(|| offset.saturating_add(limit).to_string());
    Ok((pending, cursor))
}
