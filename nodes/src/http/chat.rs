//! Chat pages with the AI SDK: `reference/ui-stream.md`.

mod decode;
mod response;

use abide_conversation::event::{Event, EventData};
use abide_conversation::state::ConversationStatus;
use abide_conversation::{ConversationId, Scoped};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::answers::{GivenAnswer, give};
use super::conversations::agent_name;
use super::extract::{self, Body, Idempotency, Path, Query};
use super::messages::{self, BusyPolicy, NewMessage, Sent};
use super::openapi::{AgentPath, ChatPath, IdempotencyKeyHeader, PrincipalHeader};
use super::problem::Problem;
use super::protocol_requests::{cancel, conversation, newest_turns};
use super::rewind::begin_anew;
use super::turn_stream::{TurnStream, answerable, find_in_turn};
use crate::access::permission::{Cancel, ConversationPermission, Read, Send};
use crate::access::{Allowed, StreamPermit};
use crate::protocols::ai_sdk::encoder::{Encoder, Version};
use crate::protocols::ai_sdk::page::Page;
use crate::protocols::ai_sdk::transcript;
use crate::protocols::feed::{Answerable, Feed};
use decode::{ChatAction, ChatRequest, UserMessage, answers};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct VersionQuery {
    /// The major version of the client's package `ai`: 7 gets chunks that version 6 refuses.
    #[param(minimum = 6, maximum = 7, default = 6)]
    v: Option<u8>,
}

impl VersionQuery {
    fn version(&self) -> Result<Version, Problem> {
        match self.v {
            None | Some(6) => Ok(Version::V6),
            Some(7) => Ok(Version::V7),
            Some(_) => Err(Problem::field("v", "must be 6 or 7")),
        }
    }
}

/// Sends a message of a chat page, or its answers, and streams what follows.
///
/// The body is that of the AI SDK's `DefaultChatTransport`: `id` is the conversation, and of `messages`
/// only the last is read. A user's message is sent, once for its id. The assistant's message has answers:
/// to approvals and to calls of the page that are open; anything else in it is history. The response
/// tells the turn, or what the page does not show of it yet, until the turn ends or rests.
#[utoipa::path(post, path = "/v1/agents/{name}/ui", operation_id = "chat", tag = "protocols",
    params(AgentPath, VersionQuery, IdempotencyKeyHeader, PrincipalHeader),
    request_body(content = Object, example = json!({"id": "conv_1", "trigger": "submit-message",
        "messages": [{"id": "m-1", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}]})),
    responses((status = 200, content_type = "text/event-stream", body = String,
        description = "A UI message stream: <https://ai-sdk.dev/docs/ai-sdk-ui/stream-protocol>.")))]
pub(super) async fn chat(
    allowed: Allowed<Send>,
    State(api): State<Api>,
    Path(agent): Path<String>,
    Query(query): Query<VersionQuery>,
    idempotency: Idempotency,
    body: Body<ChatRequest>,
) -> Result<Response, Problem> {
    let version = query.version()?;
    agent_name(&agent)?;
    // Nothing is done for a caller whom its outcome cannot be told.
    let reader = allowed.with::<Read>().map_err(|_| Problem::forbidden("read"))?;
    let (request, fingerprint) = body.into_parts();
    let id = allowed.new_conversation(&request.id)?;
    let keys = idempotency.keys(&allowed, fingerprint);
    let action = request.action()?;
    let permit = api.access.open_stream(&id.tenant())?;
    match action {
        ChatAction::Send(message) => {
            let message = new_message(&api, &id, agent, message).await?;
            let sent = messages::deliver(&api, &allowed, &id, message, keys).await?;
            begun(&api, &allowed, (&id, permit), sent, version).await
        }
        ChatAction::Regenerate { message } => {
            conversation(&api, &reader, &id, &agent).await?;
            let which = message.map(|id| ("messageId", id));
            let sent = begin_anew(&api, &allowed, &id, which, keys).await?;
            begun(&api, &allowed, (&id, permit), sent, version).await
        }
        ChatAction::Answer { turn, page } => {
            let state = conversation(&api, &reader, &id, &agent).await?;
            let answers = answers(&page, &state.pending_calls(), &allowed.principal());
            if !answers.is_empty() {
                let answers = answers.into_iter().map(GivenAnswer::to_question).collect();
                give(&api, &allowed.with()?, (&id, &state), answers, keys).await?;
            }
            let shown = |event: &Event| match &event.data {
                EventData::AssistantMsg(assistant) => page.shows(&assistant.message.tool_calls),
                _ => false,
            };
            let from = find_in_turn(&api, &id, &turn, shown).await?;
            let unknown = || Problem::field("messages", "the last is of no turn of the chat");
            let from = from.ok_or_else(unknown)?;
            let mut feed = Feed::new(turn.clone(), from.seq.saturating_sub(1));
            let shows_a_step = shown(&from);
            let mut encoder = Encoder::new(version, id.local(), turn, page);
            if shows_a_step {
                encoder.prime(&feed.event(&from, &Answerable::All));
            }
            respond(&api, &allowed, (&id, permit), feed, encoder).await
        }
    }
}

/// Streams a turn that has just begun.
async fn begun(
    api: &Api,
    allowed: &Allowed<Send>,
    stream: (&Scoped<ConversationId>, Option<StreamPermit>),
    sent: Sent,
    version: Version,
) -> Result<Response, Problem> {
    let turn = sent.turn_id;
    let feed = Feed::new(turn.clone(), sent.seq.saturating_sub(1));
    let encoder = Encoder::new(version, stream.0.local(), turn, Page::default());
    respond(api, allowed, stream, feed, encoder).await
}

/// The message as it is sent. By default it supersedes a turn that waits for somebody.
async fn new_message(
    api: &Api,
    id: &Scoped<ConversationId>,
    agent: String,
    message: UserMessage,
) -> Result<NewMessage, Problem> {
    let UserMessage { message_id, content, if_busy } = message;
    let if_busy = match if_busy {
        Some(if_busy) => if_busy,
        None => {
            let state = api.conversations.unscoped().stored_state(id).await?.unwrap_or_default();
            if state.status() == ConversationStatus::AwaitingInput {
                BusyPolicy::Interrupt
            } else {
                BusyPolicy::Reject
            }
        }
    };
    Ok(NewMessage {
        text: None,
        content: Some(content),
        message_id: Some(message_id),
        agent: Some(agent),
        if_busy: Some(if_busy),
        schema: None,
        assigns: Map::new(),
        tools: Vec::new(),
        context: Vec::new(),
        deliver_in: None,
        deliver_at: None,
    })
}

async fn respond<P: ConversationPermission>(
    api: &Api,
    allowed: &Allowed<P>,
    stream: (&Scoped<ConversationId>, Option<StreamPermit>),
    feed: Feed,
    encoder: Encoder,
) -> Result<Response, Problem> {
    let stream = TurnStream::open(api, allowed, stream, feed).await?;
    Ok(response::respond(stream, encoder))
}

/// Streams the open turn of a chat from its beginning.
///
/// For a page that was loaded again, or lost its connection: the stream replaces what the page shows of
/// the turn.
#[utoipa::path(get, path = "/v1/agents/{name}/ui/{chat}/stream", operation_id = "resume_chat",
    tag = "protocols", params(ChatPath, VersionQuery),
    responses(
        (status = 200, content_type = "text/event-stream", body = String,
            description = "A UI message stream: <https://ai-sdk.dev/docs/ai-sdk-ui/stream-protocol>."),
        (status = 204, description = "No turn is open.")))]
pub(super) async fn resume(
    allowed: Allowed<Read>,
    State(api): State<Api>,
    Path((agent, chat)): Path<(String, String)>,
    Query(query): Query<VersionQuery>,
) -> Result<Response, Problem> {
    let version = query.version()?;
    let id = allowed.conversation(&chat)?;
    let state = conversation(&api, &allowed, &id, &agent).await?;
    let Some(turn) = state.turn.map(|turn| turn.id) else {
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    let began = find_in_turn(&api, &id, &turn, |_| false).await?;
    let after = began.map(|event| event.seq.saturating_sub(1)).unwrap_or_default();
    let encoder = Encoder::new(version, id.local(), turn.clone(), Page::default());
    let permit = api.access.open_stream(&id.tenant())?;
    respond(&api, &allowed, (&id, permit), Feed::new(turn, after), encoder).await
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ChatMessagesQuery {
    /// How many turns, the newest.
    #[param(default = 50, minimum = 1, maximum = 200)]
    limit: Option<usize>,
}

/// Lists the messages of a chat as a chat page holds them, oldest first.
#[utoipa::path(get, path = "/v1/agents/{name}/ui/{chat}/messages",
    operation_id = "list_chat_messages", tag = "protocols", params(ChatPath, ChatMessagesQuery),
    responses((status = 200, body = Vec<Object>,
        description = "Messages of the AI SDK's type `UIMessage`.")))]
pub(super) async fn list(
    allowed: Allowed<Read>,
    State(api): State<Api>,
    Path((agent, chat)): Path<(String, String)>,
    Query(query): Query<ChatMessagesQuery>,
) -> Result<Json<Vec<Value>>, Problem> {
    let id = allowed.conversation(&chat)?;
    let limit = extract::limit(query.limit, 50, 200)?;
    let state = conversation(&api, &allowed, &id, &agent).await?;
    let now = api.clock.now();
    let open = answerable(&allowed.answerer(now).within_token().access, &state, now);
    let events = newest_turns(&api, &id, state.seq, limit).await?;
    Ok(Json(transcript::messages(&id.local(), &events, &open)))
}

/// Whether the request stopped a turn.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ChatStopped {
    /// False when no turn was open.
    stopped: bool,
}

/// Cancels the open turn of a chat: a page that only stops listening does not.
#[utoipa::path(post, path = "/v1/agents/{name}/ui/{chat}/stop", operation_id = "stop_chat",
    tag = "protocols", params(ChatPath, IdempotencyKeyHeader),
    responses((status = 200, description = "No turn is open.", body = ChatStopped)))]
pub(super) async fn stop(
    allowed: Allowed<Cancel>,
    State(api): State<Api>,
    Path((agent, chat)): Path<(String, String)>,
    idempotency: Idempotency,
) -> Result<Json<ChatStopped>, Problem> {
    let id = allowed.conversation(&chat)?;
    let stopped = cancel(&api, &allowed, (&id, &agent), idempotency).await?;
    Ok(Json(ChatStopped { stopped }))
}
