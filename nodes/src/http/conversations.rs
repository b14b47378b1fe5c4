//! Conversations: create, fork, read and delete them, and read their journals.

use abide_actors::agent;
use abide_actors::request::{ForkRequest, Reply, Request, UpdateRequest};
use abide_actors::snapshot::Snapshot;
use abide_conversation::command::Create;
use abide_conversation::event::Event;
use abide_conversation::identity::{Participants, Role};
use abide_conversation::{AgentName, ConversationId, Revision, Scoped, Seq, Timestamp};
use abide_conversation::{keep_null, limits};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::creation;
use super::extract;
use super::extract::{Body, Idempotency, Path, Query};
use super::moment;
use super::openapi::{ConversationPath, IdempotencyKeyHeader, JournalEvent, ToolDocument};
use super::problem::{Kind, Problem};
use crate::access::Allowed;
use crate::access::permission::{CreateConversations, Delete, Fork, Read, Update};

/// A conversation to be created.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewConversation {
    /// Chosen by the client; generated if absent.
    #[schema(pattern = "^[A-Za-z0-9_.:-]{1,128}$")]
    id: Option<String>,
    /// The agent's name.
    #[schema(pattern = "^[a-z0-9][a-z0-9_-]{0,63}$")]
    agent: String,
    /// Handed to every tool call; at most 64 KiB.
    #[serde(default)]
    assigns: Map<String, Value>,
    /// The client's own data, shown in the snapshot; at most 64 KiB.
    #[serde(default)]
    metadata: Map<String, Value>,
    /// Tools of this conversation alone: `client` and `human` tools only.
    #[serde(default)]
    #[schema(value_type = Vec<ToolDocument>, max_items = 256)]
    tools: Vec<Value>,
    /// The subject whose conversation it is: the caller, unless a backend names another.
    #[schema(min_length = 1, max_length = 255)]
    owner: Option<String>,
    /// The subjects who may take part, at most 100.
    #[serde(default)]
    #[schema(max_items = 100)]
    members: Vec<String>,
    /// Shown in the snapshot and in lists.
    #[schema(min_length = 1, max_length = 200)]
    title: Option<String>,
    /// When the conversation is deleted with all that is in it: in the future, and at most ten years
    /// ahead.
    #[serde(default, deserialize_with = "moment::optional")]
    expires_at: Option<Timestamp>,
}

/// A conversation that was created.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct ConversationCreated {
    id: ConversationId,
    agent: AgentName,
    revision: Revision,
}

/// Creates a conversation.
#[utoipa::path(post, path = "/v1/conversations", operation_id = "create_conversation",
    tag = "conversations", params(IdempotencyKeyHeader),
    request_body(content = NewConversation, example = json!({
        "agent": "demo", "metadata": {"customer": 7}})),
    responses((status = 201, description = "The conversation exists.", body = ConversationCreated)))]
pub(super) async fn create(
    allowed: Allowed<CreateConversations>,
    State(api): State<Api>,
    idempotency: Idempotency,
    body: Body<NewConversation>,
) -> Result<(StatusCode, Json<ConversationCreated>), Problem> {
    let NewConversation { id, agent: name, assigns, metadata, tools, .. } = body.value;
    let NewConversation { owner, members, title, expires_at, .. } = body.value;
    limits::check_title(title.as_deref())?;
    let id = allowed.new_conversation(&id.unwrap_or_else(|| api.clock.id("conv")))?;
    let agent = agent_name(&name)?;
    allowed.check_create(&agent)?;
    let participants = participants(&allowed, owner, members)?;
    let compile = move || agent::client_tools(&tools).map(|_| tools);
    let tools = extract::compiled(compile).await?;
    let tools = tools.map_err(|errors| Problem::field("tools", agent::join_errors(&errors)))?;
    let request = Request::Create(Create {
        agent,
        assigns: extract::bounded("assigns", assigns)?,
        metadata: extract::bounded("metadata", metadata)?,
        tools,
        parent: None,
        fork: None,
        participants,
        title,
        expires_at,
    });
    let keys = idempotency.keys(&allowed, body.fingerprint);
    let create = async |id: &Scoped<ConversationId>| {
        api.access.admit_conversation(id).await?;
        created(api.conversations.create(&allowed, id, request, keys.clone()).await?)
    };
    let created = creation::once(&api, id, &keys, create).await?;
    Ok((StatusCode::CREATED, Json(created)))
}

/// The owner and members of the new conversation.
fn participants(
    allowed: &Allowed<CreateConversations>,
    owner: Option<String>,
    members: Vec<String>,
) -> Result<Participants, Problem> {
    if let Some(owner) = &owner {
        limits::check_owner(owner)?;
        let is_own = allowed.subject() == Some(owner);
        if !is_own && !allowed.has_role(&[Role::Backend]) {
            return Err(Problem::field("owner", "only a backend may name another than itself"));
        }
    }
    limits::check_members(&members)?;
    let owner = owner.or_else(|| allowed.subject().map(str::to_owned));
    Ok(Participants { owner, members })
}

/// What is to be written about a conversation. What is absent stays as it is.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ConversationPatch {
    /// A JSON Merge Patch (RFC 7396): a member that is null is removed. The result may have 64 KiB.
    #[serde(default, deserialize_with = "keep_null")]
    #[schema(value_type = Option<Map<String, Value>>, nullable = false)]
    metadata: Option<Map<String, Value>>,
    /// All who may take part from now on, at most 100, in this conversation and its children.
    #[serde(default, deserialize_with = "keep_null")]
    #[schema(value_type = Option<Vec<String>>, nullable = false, max_items = 100)]
    members: Option<Vec<String>>,
    /// Null removes it.
    #[serde(default, deserialize_with = "keep_null")]
    #[schema(value_type = Option<String>, min_length = 1, max_length = 200)]
    title: Option<Option<String>>,
    /// When the conversation is deleted, as at its creation. Null: at no time of its own.
    #[serde(default, deserialize_with = "moment::nullable")]
    #[schema(value_type = Option<Timestamp>)]
    expires_at: Option<Option<Timestamp>>,
}

/// Changes the metadata, the members, the title or the end of a conversation.
///
/// Who is no longer a member loses open event streams of the conversation with the frame
/// `credential_ended`. A request that changes nothing has no event.
#[utoipa::path(patch, path = "/v1/conversations/{id}", operation_id = "update_conversation",
    tag = "conversations", params(ConversationPath, IdempotencyKeyHeader),
    request_body(content = ConversationPatch, example = json!({
        "metadata": {"customer": 8, "draft": null}})),
    responses((status = 200, description = "The snapshot.", body = Snapshot)))]
pub(super) async fn update(
    allowed: Allowed<Update>,
    State(api): State<Api>,
    Path(id): Path<String>,
    idempotency: Idempotency,
    body: Body<ConversationPatch>,
) -> Result<Json<Snapshot>, Problem> {
    let ConversationPatch { metadata, members, title, expires_at } = body.value;
    let id = allowed.conversation(&id)?;
    limits::check_members(members.as_deref().unwrap_or_default())?;
    limits::check_title(title.as_ref().and_then(Option::as_deref))?;
    let metadata = metadata.map(|patch| extract::bounded("metadata", patch)).transpose()?;
    let keys = idempotency.keys(&allowed, body.fingerprint);
    let by = allowed.principal();
    let request = Request::Update(UpdateRequest { metadata, members, title, expires_at, by });
    match api.conversations.deliver(&allowed, &id, request, keys).await? {
        Reply::Updated => api.conversations.snapshot(&allowed, &id).await.map(Json),
        other => Err(unexpected(&other)),
    }
}

/// The point at which a fork begins.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewFork {
    /// The seq of the last event that the fork copies; all events if absent.
    #[schema(minimum = 1)]
    #[schema(value_type = Option<u64>)]
    at_seq: Option<Seq>,
    /// Chosen by the client; generated if absent.
    #[schema(pattern = "^[A-Za-z0-9_.:-]{1,128}$")]
    id: Option<String>,
}

/// Begins a new conversation with the prefix of another's journal.
///
/// Calls that were open at that point end in the fork as cancelled, and so does the turn. Approvals,
/// remembered decisions and the turns of queued messages are not copied. Costs are counted from zero.
#[utoipa::path(post, path = "/v1/conversations/{id}/fork", operation_id = "fork_conversation",
    tag = "conversations", params(ConversationPath, IdempotencyKeyHeader),
    request_body(content = NewFork, example = json!({"at_seq": 7})),
    responses((status = 201, description = "The fork exists, with the whole prefix.",
        body = ConversationCreated)))]
pub(super) async fn fork(
    allowed: Allowed<Fork>,
    State(api): State<Api>,
    Path(from): Path<String>,
    idempotency: Idempotency,
    body: Body<NewFork>,
) -> Result<(StatusCode, Json<ConversationCreated>), Problem> {
    let NewFork { at_seq, id } = body.value;
    let from = allowed.conversation(&from)?;
    let id = allowed.new_conversation(&id.unwrap_or_else(|| api.clock.id("conv")))?;
    let at_seq = at_seq.map(|seq| extract::position("at_seq", seq)).transpose()?;
    if at_seq == Some(Seq::ZERO) {
        return Err(Problem::field("at_seq", "must be at least 1"));
    }
    // A key stands for one new conversation, whichever conversation it was forked from.
    let fingerprint = extract::fingerprint(&["fork", from.as_str(), &body.fingerprint]);
    let request = Request::Fork(ForkRequest { from: from.local(), at_seq });
    let keys = idempotency.keys(&allowed, fingerprint);
    let create = async |id: &Scoped<ConversationId>| {
        api.access.admit_conversation(id).await?;
        created(api.conversations.deliver(&allowed, id, request, keys.clone()).await?)
    };
    let created = creation::once(&api, id, &keys, create).await?;
    Ok((StatusCode::CREATED, Json(created)))
}

fn created(reply: Reply) -> Result<ConversationCreated, Problem> {
    match reply {
        Reply::Created { id, agent, revision } => Ok(ConversationCreated { id, agent, revision }),
        other => Err(unexpected(&other)),
    }
}

/// Reads a conversation's snapshot; never starts an actor.
#[utoipa::path(get, path = "/v1/conversations/{id}", operation_id = "get_conversation",
    tag = "conversations", params(ConversationPath),
    responses((status = 200, description = "The snapshot.", body = Snapshot)))]
pub(super) async fn get(
    allowed: Allowed<Read>,
    State(api): State<Api>,
    Path(id): Path<String>,
) -> Result<Json<Snapshot>, Problem> {
    api.conversations.snapshot(&allowed, &allowed.conversation(&id)?).await.map(Json)
}

/// Deletes a conversation with its journal, alarms and indexes.
#[utoipa::path(delete, path = "/v1/conversations/{id}", operation_id = "delete_conversation",
    tag = "conversations", params(ConversationPath, IdempotencyKeyHeader),
    responses((status = 204, description = "The conversation is gone.")))]
pub(super) async fn delete(
    allowed: Allowed<Delete>,
    State(api): State<Api>,
    Path(id): Path<String>,
    idempotency: Idempotency,
) -> Result<StatusCode, Problem> {
    let id = allowed.conversation(&id)?;
    let keys = idempotency.keys(&allowed, extract::fingerprint(&["DELETE", id.as_str()]));
    match api.conversations.deliver(&allowed, &id, Request::Delete, keys).await? {
        Reply::Deleted => {
            api.access.deleted(&id.tenant());
            Ok(StatusCode::NO_CONTENT)
        }
        other => Err(unexpected(&other)),
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct JournalQuery {
    /// A seq: the page begins with the next event.
    #[serde(default)]
    #[param(value_type = u64)]
    after: Seq,
    /// The size of the page.
    #[param(default = 100, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// A page of the journal.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct JournalPage {
    /// Oldest first.
    #[schema(value_type = Vec<JournalEvent>)]
    events: Vec<Event>,
    /// The seq of the last event of the journal, not of this page.
    #[schema(value_type = u64)]
    last_seq: Seq,
}

/// Reads the journal of a conversation.
#[utoipa::path(get, path = "/v1/conversations/{id}/journal", operation_id = "read_journal",
    tag = "conversations", params(ConversationPath, JournalQuery),
    responses((status = 200, description = "A page of the journal.", body = JournalPage)))]
pub(super) async fn journal(
    allowed: Allowed<Read>,
    State(api): State<Api>,
    Path(id): Path<String>,
    Query(query): Query<JournalQuery>,
) -> Result<Json<JournalPage>, Problem> {
    let id = allowed.conversation(&id)?;
    let limit = extract::limit(query.limit, 100, 1_000)?;
    let after = extract::position("after", query.after)?;
    let summary = api.conversations.summary(&allowed, &*api.store, &id).await?;
    let events = api.store.events(&id, after, limit).await?;
    // An event may have been appended after the summary was read.
    let last_read = events.last().map(|event| event.seq).unwrap_or_default();
    Ok(Json(JournalPage { events, last_seq: summary.last_seq.max(last_read) }))
}

/// Parses an agent's name.
pub(super) fn agent_name(name: &str) -> Result<AgentName, Problem> {
    let rule = "must be [a-z0-9][a-z0-9_-]{0,63}";
    AgentName::parse(name).ok_or_else(|| Problem::field("agent", rule))
}

/// The problem of a reply that does not fit its request: a bug, or a key that two requests share.
pub(crate) fn unexpected(reply: &Reply) -> Problem {
    Problem::new(Kind::Internal, format!("a reply of another kind: {reply:?}"))
}
