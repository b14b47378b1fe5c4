//! Conversations: create, list, look at, delete.

use abide_actors::agent;
use abide_actors::journal::{ConversationSummary, RESPONSE_TTL, StoredResponse};
use abide_actors::request::{ForkRequest, IdempotencyKey, Reply, Request};
use abide_actors::snapshot::Snapshot;
use abide_conversation::command::Create;
use abide_conversation::event::Event;
use abide_conversation::state::ConversationStatus;
use abide_conversation::{AgentName, ConversationId, Revision};
use abide_registry::store::HeadFilter;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::{IntoParams, ToSchema};

use super::extract;
use super::extract::{Body, Idempotency, Path, Query};
use super::openapi::{ConversationPath, IdempotencyKeyHeader, JournalEvent, ToolDocument};
use super::problem::{Kind, Problem};
use super::{Api, LOOKS};

/// A conversation to be.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewConversation {
    /// Yours, or made.
    #[schema(pattern = "^[A-Za-z0-9_.:-]{1,128}$")]
    id: Option<String>,
    /// The agent's name.
    #[schema(pattern = "^[a-z0-9][a-z0-9_-]{0,63}$")]
    agent: String,
    /// Handed to every tool call; at most 64 KiB.
    #[serde(default)]
    assigns: Map<String, Value>,
    /// Yours, shown in the snapshot; at most 64 KiB.
    #[serde(default)]
    metadata: Map<String, Value>,
    /// The conversation's own tools: `client` and `human` ones.
    #[serde(default)]
    #[schema(value_type = Vec<ToolDocument>, max_items = 256)]
    tools: Vec<Value>,
}

/// A conversation that was created.
#[derive(Debug, Serialize, ToSchema)]
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
    responses((status = 201, description = "It exists.", body = ConversationCreated)))]
pub(super) async fn create(
    State(api): State<Api>,
    idempotency: Idempotency,
    body: Body<NewConversation>,
) -> Result<(StatusCode, Json<ConversationCreated>), Problem> {
    let NewConversation { id, agent: name, assigns, metadata, tools } = body.value;
    let id = match id {
        Some(id) => extract::new_conversation(&id)?,
        None => ConversationId::new(api.clock.id("conv")),
    };
    let compile = move || agent::client_tools(&tools).map(|_| tools);
    let tools = extract::compiled(compile).await?;
    let tools = tools.map_err(|all| Problem::field("tools", agent::joined(&all)))?;
    let request = Request::Create(Create {
        agent: agent_name(&name)?,
        assigns: extract::bounded("assigns", assigns)?,
        metadata: extract::bounded("metadata", metadata)?,
        tools,
        parent: None,
        fork: None,
    });
    created(&api, id, request, idempotency.repeats(body.fingerprint)).await
}

/// Where a fork begins.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewFork {
    /// The last event that the fork has of the conversation; left out, its last one.
    #[schema(minimum = 1)]
    at_seq: Option<u64>,
    /// Yours, or made.
    #[schema(pattern = "^[A-Za-z0-9_.:-]{1,128}$")]
    id: Option<String>,
}

/// Begins a new conversation with the prefix of another's journal.
///
/// Calls that were open there end here as cancelled, and the turn with them; approvals, remembered
/// decisions and queued messages' turns do not carry over. What it cost is counted anew.
#[utoipa::path(post, path = "/v1/conversations/{id}/fork", operation_id = "fork_conversation",
    tag = "conversations", params(ConversationPath, IdempotencyKeyHeader),
    request_body(content = NewFork, example = json!({"at_seq": 7})),
    responses((status = 201, description = "It exists, and the prefix is whole.",
        body = ConversationCreated)))]
pub(super) async fn fork(
    State(api): State<Api>,
    Path(from): Path<String>,
    idempotency: Idempotency,
    body: Body<NewFork>,
) -> Result<(StatusCode, Json<ConversationCreated>), Problem> {
    let NewFork { at_seq, id } = body.value;
    let from = extract::conversation(&from)?;
    let id = match id {
        Some(id) => extract::new_conversation(&id)?,
        None => ConversationId::new(api.clock.id("conv")),
    };
    if at_seq == Some(0) {
        return Err(Problem::field("at_seq", "must be at least 1"));
    }
    // A key means one conversation, whatever it was forked from.
    let fingerprint = extract::fingerprint(&["fork", from.as_str(), &body.fingerprint]);
    let request = Request::Fork(ForkRequest { from, at_seq });
    created(&api, id, request, idempotency.repeats(fingerprint)).await
}

/// Brings a conversation into being; a repeat means the one that the first request made.
async fn created(
    api: &Api,
    id: ConversationId,
    request: Request,
    repeats: Vec<IdempotencyKey>,
) -> Result<(StatusCode, Json<ConversationCreated>), Problem> {
    let id = match repeats.first() {
        Some(repeat) => meant(api, repeat, id).await?,
        None => id,
    };
    match api.conversations.deliver(&id, request, repeats).await? {
        Reply::Created { id, agent, revision } => {
            Ok((StatusCode::CREATED, Json(ConversationCreated { id, agent, revision })))
        }
        other => Err(unexpected(&other)),
    }
}

/// Where it is kept which conversation a key means; no conversation has such an id.
const CREATIONS: &str = "conversations/";

/// The conversation that a key means: `id`, unless an earlier request of that key has made one.
///
/// Kept before the conversation is made, so that a repeat after a crash in between makes the same.
async fn meant(
    api: &Api,
    repeat: &IdempotencyKey,
    id: ConversationId,
) -> Result<ConversationId, Problem> {
    let now = api.clock.now();
    let answer = StoredResponse {
        key: repeat.key.clone(),
        fingerprint: repeat.fingerprint.clone(),
        body: json!(id),
        expires_at: now.checked_add(RESPONSE_TTL).unwrap_or(jiff::Timestamp::MAX),
    };
    if api.store.reserve(CREATIONS, answer, now).await? {
        return Ok(id);
    }
    let kept = api.store.answer(CREATIONS, &repeat.key, now).await?;
    match kept {
        Some(kept) if kept.fingerprint == repeat.fingerprint => serde_json::from_value(kept.body)
            .map_err(|error| Problem::new(Kind::Internal, error.to_string())),
        Some(_) => Err(Problem::field(&repeat.field, "was used before, for another request")),
        None => Err(Problem::new(Kind::Unavailable, "the key expired just now; try again")),
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Of this agent.
    agent: Option<String>,
    /// In this state.
    state: Option<ConversationStatus>,
    /// A page's size.
    #[param(default = 50, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// From the page before.
    cursor: Option<String>,
}

/// A conversation in a list.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ConversationRow)]
struct Row {
    id: ConversationId,
    agent: AgentName,
    state: ConversationStatus,
    last_seq: u64,
    created_at: jiff::Timestamp,
    metadata: Map<String, Value>,
}

/// A page of conversations.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ConversationPage {
    conversations: Vec<Row>,
    /// For the next page; null at the end. A page may be short before the end.
    #[schema(required)]
    cursor: Option<String>,
}

/// Lists conversations, by id.
#[utoipa::path(get, path = "/v1/conversations", operation_id = "list_conversations",
    tag = "conversations", params(ListQuery),
    responses((status = 200, description = "A page of them.", body = ConversationPage)))]
pub(super) async fn list(
    State(api): State<Api>,
    Query(query): Query<ListQuery>,
) -> Result<Json<ConversationPage>, Problem> {
    let agent = query.agent.as_deref().map(agent_name).transpose()?;
    // The journal does not know whether a model speaks; the live actor does.
    let state = query.state.map(|state| match state {
        ConversationStatus::Streaming => ConversationStatus::Preparing,
        other => other,
    });
    let limit = extract::limit(query.limit, 50, 1_000)?;
    let filter = HeadFilter { agent, state };
    let page = api.store.conversations(&filter, query.cursor.as_deref(), limit).await?;
    let rows = page.items.into_iter().map(|(id, head)| row(&api, id, head));
    let rows = futures::stream::iter(rows).buffered(LOOKS);
    let wanted = |row: &Row| query.state.is_none_or(|state| state == row.state);
    let wanted = rows.filter(|row| std::future::ready(wanted(row)));
    let conversations: Vec<Row> = wanted.collect().await;
    Ok(Json(ConversationPage { conversations, cursor: page.cursor }))
}

async fn row(api: &Api, id: ConversationId, head: ConversationSummary) -> Row {
    let ConversationSummary { agent, mut state, last_seq, created_at, metadata, .. } = head;
    if state == ConversationStatus::Preparing {
        let live = api.conversations.inspect(&id).await;
        state = state.with_streaming(live.is_some_and(|live| live.streaming.is_some()));
    }
    Row { id, agent, state, last_seq, created_at, metadata }
}

/// Reads a conversation as it is now; never starts an actor.
#[utoipa::path(get, path = "/v1/conversations/{id}", operation_id = "get_conversation",
    tag = "conversations", params(ConversationPath),
    responses((status = 200, description = "The snapshot.", body = Snapshot)))]
pub(super) async fn get(
    State(api): State<Api>,
    Path(id): Path<String>,
) -> Result<Json<Snapshot>, Problem> {
    let snapshot = api.conversations.snapshot(&extract::conversation(&id)?).await?;
    snapshot.map(Json).ok_or_else(|| Problem::not_found("such conversation"))
}

/// Deletes a conversation with its journal, alarms and indexes.
#[utoipa::path(delete, path = "/v1/conversations/{id}", operation_id = "delete_conversation",
    tag = "conversations", params(ConversationPath, IdempotencyKeyHeader),
    responses((status = 204, description = "It is gone.")))]
pub(super) async fn delete(
    State(api): State<Api>,
    Path(id): Path<String>,
    idempotency: Idempotency,
) -> Result<StatusCode, Problem> {
    let id = extract::conversation(&id)?;
    let repeats = idempotency.repeats(extract::fingerprint(&["DELETE", id.as_str()]));
    match api.conversations.deliver(&id, Request::Delete, repeats).await? {
        Reply::Deleted => Ok(StatusCode::NO_CONTENT),
        other => Err(unexpected(&other)),
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct JournalQuery {
    /// A seq: the page begins with the event after it.
    #[serde(default)]
    after: u64,
    /// A page's size.
    #[param(default = 100, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// A page of the journal.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct JournalPage {
    /// Oldest first.
    #[schema(value_type = Vec<JournalEvent>)]
    events: Vec<Event>,
    /// Of the journal's last event, not of this page's.
    last_seq: u64,
}

/// Reads the journal of a conversation.
#[utoipa::path(get, path = "/v1/conversations/{id}/journal", operation_id = "read_journal",
    tag = "conversations", params(ConversationPath, JournalQuery),
    responses((status = 200, description = "A page of it.", body = JournalPage)))]
pub(super) async fn journal(
    State(api): State<Api>,
    Path(id): Path<String>,
    Query(query): Query<JournalQuery>,
) -> Result<Json<JournalPage>, Problem> {
    let id = extract::conversation(&id)?;
    let limit = extract::limit(query.limit, 100, 1_000)?;
    let head = existing(&api, &id).await?;
    let events = api.store.events(&id, query.after, limit).await?;
    let read = events.last().map(|event| event.seq).unwrap_or_default();
    Ok(Json(JournalPage { events, last_seq: head.last_seq.max(read) }))
}

/// What lists show of a conversation that must exist.
pub(super) async fn existing(
    api: &Api,
    id: &ConversationId,
) -> Result<ConversationSummary, Problem> {
    let head = api.store.head(id).await?;
    head.ok_or_else(|| Problem::not_found("such conversation"))
}

/// An agent's name in a request.
pub(super) fn agent_name(name: &str) -> Result<AgentName, Problem> {
    let legal = "must be [a-z0-9][a-z0-9_-]{0,63}";
    AgentName::parse(name).ok_or_else(|| Problem::field("agent", legal))
}

/// A conversation answered something that was not asked: a bug, or a key that two calls share.
pub(crate) fn unexpected(reply: &Reply) -> Problem {
    Problem::new(Kind::Internal, format!("an answer of another kind: {reply:?}"))
}
