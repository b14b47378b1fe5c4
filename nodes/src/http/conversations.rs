//! Conversations: create, list, look at, delete.

use abide_actors::journal::Head;
use abide_actors::request::{Reply, Request};
use abide_actors::snapshot::Snapshot;
use abide_conversation::command::Create;
use abide_conversation::event::Event;
use abide_conversation::state::Activeness;
use abide_conversation::{AgentName, ConversationId};
use abide_registry::store::HeadFilter;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Api;
use super::parse::{self, Body, Idempotency, Query};
use super::problem::{Kind, Problem};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewConversation {
    id: Option<String>,
    agent: String,
    #[serde(default)]
    assigns: Map<String, Value>,
    #[serde(default)]
    metadata: Map<String, Value>,
    #[serde(default)]
    tools: Vec<Value>,
}

pub(super) async fn create(
    State(api): State<Api>,
    idempotency: Idempotency,
    body: Body<NewConversation>,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let NewConversation { id, agent, assigns, metadata, tools } = body.value;
    let id = match (id, idempotency.key()) {
        (Some(id), _) => parse::new_conversation(&id)?,
        // A repeat must find the conversation that its first request made.
        (None, Some(key)) => ConversationId::new(format!("conv_{}", parse::fingerprint(&[key]))),
        (None, None) => ConversationId::new(api.clock.id("conv")),
    };
    abide_actors::agent::client_tools(&tools).map_err(|all| {
        let all: Vec<String> = all.iter().map(ToString::to_string).collect();
        Problem::field("tools", all.join("; "))
    })?;
    let request = Request::Create(Create {
        agent: agent_name(&agent)?,
        assigns: parse::bounded("assigns", assigns)?,
        metadata: parse::bounded("metadata", metadata)?,
        tools,
    });
    let repeats = idempotency.repeats(body.fingerprint);
    match api.conversations.deliver(&id, request, repeats).await? {
        Reply::Created { id, agent, revision } => {
            let body = json!({"id": id, "agent": agent, "revision": revision});
            Ok((StatusCode::CREATED, Json(body)))
        }
        other => Err(unexpected(&other)),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    agent: Option<String>,
    state: Option<Activeness>,
    limit: Option<usize>,
    cursor: Option<String>,
}

/// A conversation in a list.
#[derive(Debug, Serialize)]
struct Row {
    id: ConversationId,
    agent: AgentName,
    state: Activeness,
    last_seq: u64,
    created_at: jiff::Timestamp,
    metadata: Map<String, Value>,
}

pub(super) async fn list(
    State(api): State<Api>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Value>, Problem> {
    let agent = query.agent.as_deref().map(agent_name).transpose()?;
    // The journal does not know whether a model speaks; the live actor does.
    let state = query.state.map(|state| match state {
        Activeness::Streaming => Activeness::Preparing,
        other => other,
    });
    let limit = parse::limit(query.limit, 50, 1_000)?;
    let filter = HeadFilter { agent, state };
    let page = api.store.conversations(&filter, query.cursor.as_deref(), limit).await?;
    let mut rows = Vec::with_capacity(page.items.len());
    for (id, head) in page.items {
        let row = row(&api, id, head).await;
        if query.state.is_none_or(|state| state == row.state) {
            rows.push(row);
        }
    }
    Ok(Json(json!({"conversations": rows, "cursor": page.cursor})))
}

async fn row(api: &Api, id: ConversationId, head: Head) -> Row {
    let Head { agent, mut state, last_seq, created_at, metadata, .. } = head;
    if state == Activeness::Preparing {
        let live = api.conversations.inspect(&id).await;
        if live.is_some_and(|live| live.streaming.is_some()) {
            state = Activeness::Streaming;
        }
    }
    Row { id, agent, state, last_seq, created_at, metadata }
}

pub(super) async fn get(
    State(api): State<Api>,
    Path(id): Path<String>,
) -> Result<Json<Snapshot>, Problem> {
    let snapshot = api.conversations.snapshot(&parse::conversation(&id)?).await?;
    snapshot.map(Json).ok_or_else(|| Problem::not_found("such conversation"))
}

pub(super) async fn delete(
    State(api): State<Api>,
    Path(id): Path<String>,
    idempotency: Idempotency,
) -> Result<StatusCode, Problem> {
    let id = parse::conversation(&id)?;
    let repeats = idempotency.repeats(parse::fingerprint(&["DELETE", id.as_str()]));
    match api.conversations.deliver(&id, Request::Delete, repeats).await? {
        Reply::Deleted => Ok(StatusCode::NO_CONTENT),
        other => Err(unexpected(&other)),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JournalQuery {
    #[serde(default)]
    after: u64,
    limit: Option<usize>,
}

/// A page of the journal.
#[derive(Debug, Serialize)]
pub(super) struct JournalPage {
    events: Vec<Event>,
    last_seq: u64,
}

pub(super) async fn journal(
    State(api): State<Api>,
    Path(id): Path<String>,
    Query(query): Query<JournalQuery>,
) -> Result<Json<JournalPage>, Problem> {
    let id = parse::conversation(&id)?;
    let limit = parse::limit(query.limit, 100, 1_000)?;
    let head = existing(&api, &id).await?;
    let events = api.store.events(&id, query.after, limit).await?;
    let read = events.last().map(|event| event.seq).unwrap_or_default();
    Ok(Json(JournalPage { events, last_seq: head.last_seq.max(read) }))
}

/// What lists show of a conversation that must exist.
pub(super) async fn existing(api: &Api, id: &ConversationId) -> Result<Head, Problem> {
    let head = api.store.head(id).await?;
    head.ok_or_else(|| Problem::not_found("such conversation"))
}

/// An agent's name in a request.
pub(super) fn agent_name(name: &str) -> Result<AgentName, Problem> {
    let legal = "must be [a-z0-9][a-z0-9_-]{0,63}";
    AgentName::parse(name).ok_or_else(|| Problem::field("agent", legal))
}

/// A conversation answered something that was not asked: a bug, or a key that two calls share.
pub(super) fn unexpected(reply: &Reply) -> Problem {
    Problem::new(Kind::Internal, format!("an answer of another kind: {reply:?}"))
}
