//! Calls: cancel a turn, dispatch a tool, and list everything that is pending.

use abide_actors::access::Answerer;
use abide_actors::journal::{InboxEntry, InboxFilter};
use abide_actors::request::{DispatchRequest, Reply, Request};
use abide_conversation::approval::VoteRefusal;
use abide_conversation::event::SuspensionKind;
use abide_conversation::identity::Role;
use abide_conversation::message::{Outcome, Ui};
use abide_conversation::{ConversationId, Rejection, Scoped, Tenant};
use abide_registry::store::{inbox_cursor, inbox_key};
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::conversations::{agent_name, unexpected};
use super::extract;
use super::extract::{Body, Idempotency, Path, Query};
use super::openapi::{ConversationPath, IdempotencyKeyHeader, PrincipalHeader};
use super::problem::Problem;
use crate::access::Allowed;
use crate::access::permission::{Cancel, Dispatch, ListPending};

/// A page of pending calls ends early when it has more bytes than these.
const PAGE_BYTES: usize = 4 << 20;
/// How many entries are read before it is known how large they are.
const FIRST_READ: usize = 16;

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

#[derive(Debug, Default, Deserialize, IntoParams)]
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

impl PendingEntry {
    /// The suspension as this caller sees it.
    pub(super) fn new(entry: InboxEntry, caller: &Answerer) -> Self {
        Self { may_answer: caller.may_answer(&entry.participants, &entry.pending), entry }
    }
}

impl PendingPage {
    fn new(entries: Vec<InboxEntry>, caller: &Answerer, cursor: Option<String>) -> Self {
        let entries = entries.into_iter();
        Self { pending: entries.map(|entry| PendingEntry::new(entry, caller)).collect(), cursor }
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
    pending_page(&api, &allowed, query).await.map(Json)
}

/// A page of the open suspensions that the caller may see.
pub(super) async fn pending_page(
    api: &Api,
    allowed: &Allowed<ListPending>,
    query: PendingQuery,
) -> Result<PendingPage, Problem> {
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
    let (tenant, limit) = (allowed.tenant(), extract::limit(query.limit, 50, 1_000)?);
    if let Some(root) = &conversation {
        let tree = api.conversations.unscoped().with_descendants(root).await?;
        if tree.len() > 1 {
            let (entries, cursor) =
                tree_inbox(api, &filter, (&tenant, tree), query.cursor.as_deref(), limit).await?;
            return Ok(PendingPage::new(entries, &caller, cursor));
        }
    }
    let (entries, cursor) = bounded_inbox(api, &tenant, &filter, query.cursor, limit).await?;
    Ok(PendingPage::new(entries, &caller, cursor))
}

/// A page with at most `limit` entries. It ends early when they are large: each may have a megabyte of
/// arguments.
async fn bounded_inbox(
    api: &Api,
    tenant: &Tenant,
    filter: &InboxFilter,
    mut cursor: Option<String>,
    limit: usize,
) -> Result<(Vec<InboxEntry>, Option<String>), Problem> {
    let mut entries: Vec<InboxEntry> = Vec::new();
    let mut bytes = 0_usize;
    let mut part = limit.min(FIRST_READ);
    loop {
        let page = api.store.inbox(tenant, filter, cursor.as_deref(), part).await?;
        let is_full = page.items.len() == part;
        bytes = page.items.iter().map(json_bytes).fold(bytes, usize::saturating_add);
        entries.extend(page.items);
        cursor = page.cursor;
        if !is_full || cursor.is_none() || entries.len() >= limit || bytes >= PAGE_BYTES {
            return Ok((entries, cursor));
        }
        // As many as fit if they are like those before, of which there are not many more.
        let fitting = entries.len().saturating_mul(PAGE_BYTES - bytes) / bytes.max(1);
        part = fitting.clamp(1, 2 * entries.len()).min(limit - entries.len());
    }
}

/// The length of an entry as JSON.
fn json_bytes(entry: &InboxEntry) -> usize {
    serde_json::to_vec(entry).map_or(0, |json| json.len())
}

/// The inbox of a conversation and of the children that work for it.
async fn tree_inbox(
    api: &Api,
    filter: &InboxFilter,
    (tenant, tree): (&Tenant, Vec<Scoped<ConversationId>>),
    cursor: Option<&str>,
    limit: usize,
) -> Result<(Vec<InboxEntry>, Option<String>), Problem> {
    // One entry past the page tells whether there is another page.
    let max = limit.saturating_add(1);
    let mut pending = Vec::new();
    for conversation in tree {
        let filter = InboxFilter { conversation: Some(conversation.local()), ..filter.clone() };
        pending.extend(api.store.inbox(tenant, &filter, cursor, max).await?.items);
        pending.sort_by_cached_key(|entry| inbox_key(tenant, entry));
        pending.truncate(max);
    }
    let more = pending.len() == max;
    pending.truncate(limit);
    let cursor = pending.last().filter(|_| more).map(|last| inbox_cursor(tenant, last));
    Ok((pending, cursor))
}
