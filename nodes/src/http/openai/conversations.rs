//! Conversations, and their items.

use std::collections::BTreeMap;

use abide_actors::journal::ConversationSummary;
use abide_actors::request::{Reply, Request};
use abide_conversation::command::Create;
use abide_conversation::event::{Event, EventData, UserMsg};
use abide_conversation::identity::Participants;
use abide_conversation::{AgentName, ConversationId, Scoped, Seq, TurnId};
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::IntoParams;

use super::list::{ItemQuery, List};
use super::models;
use crate::access::Allowed;
use crate::access::permission::{CreateConversations, Delete, Read};
use crate::http::Api;
use crate::http::conversations::unexpected;
use crate::http::creation::reserved;
use crate::http::extract::{self, Body, Idempotency, Path, Query};
use crate::http::openapi::IdempotencyKeyHeader;
use crate::http::turn_stream::answerable;
use crate::problem::Problem;
use crate::protocols::feed::{Answerable, Feed, Item};
use crate::protocols::openai::encoder::ResponseEncoder;
use crate::protocols::openai::items;
use crate::protocols::openai::response::{ResponseHead, ResponseId};

/// How many events are read at a time.
const EVENTS_PER_READ: usize = 200;
/// The most events that items are made of: the newest.
const MAX_LISTED_EVENTS: u64 = 20_000;

/// The path of a conversation.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct OpenAiConversationPath {
    /// The conversation's id.
    #[param(pattern = "^[A-Za-z0-9_.:-]{1,128}$", example = "conv_1")]
    conversation_id: String,
}

#[derive(Debug, Deserialize)]
struct NewConversation {
    metadata: Option<Map<String, Value>>,
    items: Option<Vec<Value>>,
}

fn document(id: &ConversationId, created_at: i64, metadata: &Map<String, Value>) -> Value {
    json!({"id": id, "object": "conversation", "created_at": created_at, "metadata": metadata})
}

/// Creates a conversation with the agent that `metadata.agent` names.
#[utoipa::path(post, path = "/openai/v1/conversations",
    operation_id = "openai_create_conversation", tag = "protocols", params(IdempotencyKeyHeader),
    request_body(content = Object, example = json!({"metadata": {"agent": "demo"}})),
    responses((status = 200, body = Object, description =
        "A conversation: <https://platform.openai.com/docs/api-reference/conversations>.")))]
pub(in crate::http) async fn create(
    allowed: Allowed<CreateConversations>,
    State(api): State<Api>,
    idempotency: Idempotency,
    body: Body<Value>,
) -> Result<Json<Value>, Problem> {
    let (body, fingerprint) = body.into_parts();
    let NewConversation { metadata, items } = extract::deserialize(body)?;
    if items.is_some_and(|items| !items.is_empty()) {
        return Err(Problem::field("items", "a conversation has no history that it did not see"));
    }
    let metadata = extract::bounded("metadata", metadata.unwrap_or_default())?;
    let agent = metadata.get("agent").and_then(Value::as_str);
    let agent = agent.ok_or_else(|| Problem::field("metadata.agent", "must name an agent"))?;
    let agent = models::find(&api, &allowed, agent).await?.name;
    let id = allowed.new_conversation(&api.clock.id("conv"))?;
    let id = reserved(&api, id, &idempotency.keys(&allowed, fingerprint.clone())).await?;
    let keys = idempotency.keys(&allowed, fingerprint);
    let request = new(&allowed, agent, metadata.clone())?;
    api.access.admit_conversation(&id).await?;
    match api.conversations.create(&allowed, &id, request, keys).await? {
        Reply::Created { id: own, .. } => {
            let summary = api.store.summary(&id).await?;
            let at = summary.map_or_else(|| api.clock.now(), |summary| summary.created_at);
            Ok(Json(document(&own, at.as_second(), &metadata)))
        }
        other => Err(unexpected(&other)),
    }
}

/// The request to create a conversation of the caller.
pub(super) fn new(
    allowed: &Allowed<CreateConversations>,
    agent: AgentName,
    metadata: Map<String, Value>,
) -> Result<Request, Problem> {
    allowed.check_create(&agent)?;
    let owner = allowed.subject().map(str::to_owned);
    Ok(Request::Create(Create {
        agent,
        assigns: Map::new(),
        metadata,
        tools: Vec::new(),
        parent: None,
        fork: None,
        title: None,
        expires_at: None,
        participants: Participants { owner, members: Vec::new() },
    }))
}

/// Reads a conversation.
#[utoipa::path(get, path = "/openai/v1/conversations/{conversation_id}",
    operation_id = "openai_get_conversation", tag = "protocols", params(OpenAiConversationPath),
    responses((status = 200, body = Object, description =
        "A conversation: <https://platform.openai.com/docs/api-reference/conversations>.")))]
pub(in crate::http) async fn get(
    allowed: Allowed<Read>,
    State(api): State<Api>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    let id = allowed.conversation(&id)?;
    let summary = api.conversations.summary(&allowed, &*api.store, &id).await?;
    Ok(Json(document(&id.local(), summary.created_at.as_second(), &summary.metadata)))
}

/// Deletes a conversation with its journal.
#[utoipa::path(delete, path = "/openai/v1/conversations/{conversation_id}",
    operation_id = "openai_delete_conversation", tag = "protocols",
    params(OpenAiConversationPath, IdempotencyKeyHeader),
    responses((status = 200, body = Object, description = "The conversation is gone.")))]
pub(in crate::http) async fn delete(
    allowed: Allowed<Delete>,
    State(api): State<Api>,
    Path(id): Path<String>,
    idempotency: Idempotency,
) -> Result<Json<Value>, Problem> {
    let id = allowed.conversation(&id)?;
    let keys = idempotency.keys(&allowed, extract::fingerprint(&["DELETE", id.as_str()]));
    match api.conversations.deliver(&allowed, &id, Request::Delete, keys).await? {
        Reply::Deleted => {
            api.access.deleted(&id.tenant());
            let id = id.local();
            Ok(Json(json!({"id": id, "object": "conversation.deleted", "deleted": true})))
        }
        other => Err(unexpected(&other)),
    }
}

/// Lists the messages of a conversation, and its calls as far as clients are told of them.
#[utoipa::path(get, path = "/openai/v1/conversations/{conversation_id}/items",
    operation_id = "openai_list_items", tag = "protocols",
    params(OpenAiConversationPath, ItemQuery),
    responses((status = 200, body = Object, description =
        "A list: <https://platform.openai.com/docs/api-reference/conversations>.")))]
pub(in crate::http) async fn items(
    allowed: Allowed<Read>,
    State(api): State<Api>,
    Path(id): Path<String>,
    Query(query): Query<ItemQuery>,
) -> Result<Json<Value>, Problem> {
    let mut list = List::new(&query)?;
    let id = allowed.conversation(&id)?;
    let state = api.conversations.state(&allowed, &id).await?;
    let summary = api.conversations.summary(&allowed, &*api.store, &id).await?;
    let now = api.clock.now();
    let open = answerable(&allowed.answerer(now).within_token().access, &state, now);
    let mut turns = Turns {
        summary: &summary,
        questions: BTreeMap::new(),
        turn: None,
        steering: Vec::new(),
        open,
    };
    let mut after = Seq::new(state.seq.get().saturating_sub(MAX_LISTED_EVENTS));
    loop {
        let events = api.store.events(&id, after, EVENTS_PER_READ).await?;
        let Some(last) = events.last().map(|event| event.seq) else { break };
        after = last;
        let counting = events.iter().filter(|event| state.context.counts(event.seq));
        for event in counting {
            turns.take(&id, event).into_iter().for_each(|item| list.take(item));
        }
        if events.len() < EVENTS_PER_READ {
            break;
        }
    }
    turns.end().into_iter().for_each(|item| list.take(item));
    Ok(Json(list.into_page()))
}

/// The items of turns, one after another.
struct Turns<'a> {
    summary: &'a ConversationSummary,
    /// The messages whose turns have not started.
    questions: BTreeMap<TurnId, UserMsg>,
    turn: Option<(Feed, ResponseEncoder)>,
    /// The messages that were added to the turn, each with the number of its items before it.
    steering: Vec<(usize, Value)>,
    open: Answerable,
}

impl Turns<'_> {
    /// Takes the next event, and returns the items that are known with it.
    fn take(&mut self, id: &Scoped<ConversationId>, event: &Event) -> Vec<Value> {
        let mut items = Vec::new();
        match (&event.data, &event.turn_id) {
            (EventData::UserMsg(user), Some(turn)) => {
                self.questions.insert(turn.clone(), user.clone());
            }
            (EventData::TurnStarted(_), Some(turn)) => {
                items.extend(self.end());
                if let Some(UserMsg { message, .. }) = self.questions.remove(turn) {
                    items.push(items::user_message(message.id.as_str(), &message.content));
                }
                let from = event.seq;
                let response = ResponseId { from, turn: turn.clone(), conversation: id.local() };
                let (model, created_at) = (self.summary.agent.clone(), event.at);
                let head = ResponseHead { id: response, model, created_at };
                let feed = Feed::new(turn.clone(), from.saturating_sub(1));
                self.turn = Some((feed, ResponseEncoder::new(head, false)));
            }
            _ => {}
        }
        if let Some((feed, encoder)) = &mut self.turn {
            for item in feed.event(event, &self.open) {
                if let (Item::Steered(_), EventData::Steered(steered)) = (&item, &event.data) {
                    let message = &steered.message;
                    let message = items::user_message(message.id.as_str(), &message.content);
                    let output = encoder.response()["output"].as_array().map_or(0, Vec::len);
                    self.steering.push((output, message));
                }
                encoder.item(Some(event.seq), &item);
            }
        }
        items
    }

    /// The items of the turn.
    fn end(&mut self) -> Vec<Value> {
        let Some((_, encoder)) = self.turn.take() else { return Vec::new() };
        let mut items = match encoder.response()["output"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        };
        for (before, message) in std::mem::take(&mut self.steering).into_iter().rev() {
            items.insert(before.min(items.len()), message);
        }
        items
    }
}
