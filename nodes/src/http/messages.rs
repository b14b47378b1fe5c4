//! Messages: said, and read back.

use abide_actors::blobs::extract_media;
use abide_actors::expressions::schema::Schema;
use abide_actors::request::{IdempotencyKey, Reply, Request, SendRequest};
use abide_actors::trace::SpanContext;
use abide_conversation::command::IfBusy;
use abide_conversation::event::{AnswerFormat, Event, Visible};
use abide_conversation::message::blocks::check_from_user;
use abide_conversation::message::{Message, Role, text_block};
use abide_conversation::{ConversationId, MessageId, TurnId};
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::{IntoParams, ToSchema};

use super::conversations::{agent_name, existing, unexpected};
use super::extract;
use super::extract::{Body, Caller, Idempotency, Path, Query};
use super::openapi::{ConversationPath, IdempotencyKeyHeader, PrincipalHeader};
use super::problem::Problem;
use super::{Api, blobs};
use crate::telemetry::TurnExtension;

/// How many events are read at once, to find messages among them.
const PAGE: usize = 200;
/// The longest `message_id`.
const MESSAGE_ID_CHARS: usize = 255;

/// A user's message: either `text` or `content`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewMessage {
    #[schema(min_length = 1)]
    text: Option<String>,
    /// Blocks such as `{"type": "text", "text": …}`, of the kinds `text`, `image`, `document`,
    /// `audio`, `video`, `json`, `xml`, `csv`, `html`, `code`, `user_action`, `system_event`,
    /// `state_change`, `generated_image`, `generated_file`, `executable_code`,
    /// `code_execution_result` and `custom`, each with the fields that it must have. Media have a
    /// `source`: `{"type": "blob", "blobId"}`, `{"type": "base64", "mimeType", "data"}`, `{"type":
    /// "url", "url"}`, `{"type": "file_id", "fileId"}`, `{"type": "s3", "bucket", "key"}` or
    /// `{"type": "gcs", "bucket", "object"}`. Base64 of more than 1 KiB is kept as a blob, and read
    /// back as one. An unknown type passes through; `tool_use`, `tool_result` and
    /// `reasoning` are the model's own.
    #[schema(value_type = Option<Vec<Object>>, min_items = 1)]
    content: Option<Vec<Value>>,
    /// Yours: within a day, the same id again is the same message, and gets the same answer.
    #[schema(min_length = 1, max_length = 255)]
    message_id: Option<String>,
    /// Creates the conversation, if it is new.
    #[schema(pattern = "^[a-z0-9][a-z0-9_-]{0,63}$")]
    agent: Option<String>,
    #[serde(default)]
    if_busy: BusyPolicy,
    /// A JSON Schema of at most 64 KiB that the turn's answer must satisfy, or false: plain, whatever
    /// the agent says.
    schema: Option<Value>,
    /// Handed to this turn's tool calls; at most 64 KiB.
    #[serde(default)]
    assigns: Map<String, Value>,
}

/// A message that was taken.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Sent {
    conversation_id: ConversationId,
    /// Of the turn that the message starts, now or when its place in the queue comes.
    turn_id: TurnId,
    /// Of the `user_msg` event.
    seq: u64,
}

/// What to do while a turn runs: refuse, wait for it, or cancel it first.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Busy)]
pub(super) enum BusyPolicy {
    #[default]
    Reject,
    Queue,
    Interrupt,
}

/// Says something, and starts a turn.
#[utoipa::path(post, path = "/v1/conversations/{id}/messages", operation_id = "send_message",
    tag = "messages", params(ConversationPath, IdempotencyKeyHeader, PrincipalHeader),
    request_body(content = NewMessage, examples(
        ("text" = (value = json!({"text": "Write a mail to Ada", "agent": "demo"}))),
        ("blocks" = (value = json!({"content": [{"type": "text", "text": "And this?"}],
            "message_id": "m-17", "if_busy": "queue"}))),
        ("image" = (value = json!({"content": [{"type": "text", "text": "What is this?"},
            {"type": "image", "source": {"type": "url", "url": "https://example.com/cat.png"}}]}))))),
    responses((status = 202, description = "It is journalled; the turn runs.", body = Sent)))]
pub(super) async fn send(
    State(api): State<Api>,
    Path(id): Path<String>,
    Caller(principal): Caller,
    idempotency: Idempotency,
    body: Body<NewMessage>,
) -> Result<(StatusCode, Extension<TurnExtension>, Json<Sent>), Problem> {
    let said = body.value;
    let id = match said.agent {
        Some(_) => extract::new_conversation(&id)?,
        None => extract::conversation(&id)?,
    };
    let mut content = content(said.text, said.content)?;
    let mut repeats = idempotency.repeats(body.fingerprint);
    repeats.extend(said.message_id.as_deref().map(|id| named(id, &content)).transpose()?);
    blobs::checked(&*api.store, &mut content).await?;
    for block in &mut content {
        extract_media(&*api.store, block).await?;
    }
    let request = Request::Send(SendRequest {
        agent: said.agent.as_deref().map(agent_name).transpose()?,
        content,
        message_id: said.message_id,
        principal,
        assigns: extract::bounded("assigns", said.assigns)?,
        shape: shape(said.schema).await?,
        if_busy: match said.if_busy {
            BusyPolicy::Reject => IfBusy::Reject,
            BusyPolicy::Queue => IfBusy::Queue,
            BusyPolicy::Interrupt => IfBusy::Interrupt,
        },
    });
    match api.conversations.deliver(&id, request, repeats).await? {
        Reply::Sent { conversation_id, turn_id, seq } => {
            let turned = Extension(TurnExtension(SpanContext::of_turn(&conversation_id, &turn_id)));
            Ok((StatusCode::ACCEPTED, turned, Json(Sent { conversation_id, turn_id, seq })))
        }
        other => Err(unexpected(&other)),
    }
}

fn content(text: Option<String>, content: Option<Vec<Value>>) -> Result<Vec<Value>, Problem> {
    let blocks = match (text, content) {
        (Some(text), None) if !text.is_empty() => return Ok(vec![text_block(text)]),
        (Some(_), None) => return Err(Problem::field("text", "is empty")),
        (None, Some(blocks)) => blocks,
        (Some(_), Some(_)) | (None, None) => {
            return Err(Problem::field("text", "give either text or content"));
        }
    };
    if blocks.is_empty() {
        return Err(Problem::field("content", "is empty"));
    }
    for (place, block) in blocks.iter().enumerate() {
        check_from_user(block).map_err(|wrong| {
            Problem::field(&format!("content[{place}]{}", wrong.path), wrong.problem)
        })?;
    }
    Ok(blocks)
}

/// A message that its client named is a repeat when the same name says the same.
fn named(id: &str, content: &[Value]) -> Result<IdempotencyKey, Problem> {
    if !(1..=MESSAGE_ID_CHARS).contains(&id.chars().count()) {
        let legal = format!("must be 1 to {MESSAGE_ID_CHARS} characters");
        return Err(Problem::field("message_id", legal));
    }
    let said = extract::canonical(&Value::Array(content.to_vec()));
    let fingerprint = extract::fingerprint(&[&said]);
    Ok(IdempotencyKey { key: format!("message:{id}"), fingerprint, field: "message_id".into() })
}

async fn shape(schema: Option<Value>) -> Result<AnswerFormat, Problem> {
    match schema {
        None => Ok(AnswerFormat::Agent),
        Some(Value::Bool(false)) => Ok(AnswerFormat::Plain),
        Some(schema @ Value::Object(_)) => {
            let schema = extract::bounded_value("schema", schema)?;
            let compile = move || Schema::compile(&schema).map(|_| schema);
            let compiled = extract::compiled(compile).await?;
            compiled.map(AnswerFormat::Schema).map_err(|why| Problem::field("schema", why))
        }
        Some(_) => Err(Problem::field("schema", "must be a JSON Schema object, or false")),
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// The `cursor` of the page below; absent: the newest messages.
    before: Option<String>,
    /// A page's size.
    #[param(default = 50, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// A page of scrollback, oldest first; `cursor` goes into `before` for the page above it.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct MessagePage {
    messages: Vec<Message>,
    /// Null when there is nothing above.
    #[schema(required)]
    cursor: Option<String>,
    more: bool,
}

/// Reads a conversation's messages, a page from below.
#[utoipa::path(get, path = "/v1/conversations/{id}/messages", operation_id = "list_messages",
    tag = "messages", params(ConversationPath, ListQuery),
    responses((status = 200, description = "A page, oldest first.", body = MessagePage)))]
pub(super) async fn list(
    State(api): State<Api>,
    Path(id): Path<String>,
    Query(query): Query<ListQuery>,
) -> Result<Json<MessagePage>, Problem> {
    let id = extract::conversation(&id)?;
    let limit = extract::limit(query.limit, 50, 1_000)?;
    let before = query.before.as_deref().map(str::parse).transpose();
    let before = before.map_err(|_| Problem::field("before", "is not a cursor"))?;
    existing(&api, &id).await?;
    let mut found = newest(&api, &id, before.unwrap_or(u64::MAX), limit + 1).await?;
    let more = found.len() > limit;
    found.truncate(limit);
    let cursor = found.last().filter(|_| more).map(|(seq, _)| seq.to_string());
    let messages = found.into_iter().rev().map(|(_, message)| message).collect();
    Ok(Json(MessagePage { messages, cursor, more }))
}

/// At most `limit` messages before a place in the journal, newest first.
async fn newest(
    api: &Api,
    id: &ConversationId,
    mut before: u64,
    limit: usize,
) -> Result<Vec<(u64, Message)>, Problem> {
    let mut found = Vec::new();
    loop {
        let events = api.store.events_before(id, before, PAGE).await?;
        let Some(oldest) = events.last().map(|event| event.seq) else { return Ok(found) };
        for event in events {
            found.extend(message(&event).map(|message| (event.seq, message)));
            if found.len() == limit {
                return Ok(found);
            }
        }
        before = oldest;
    }
}

fn message(event: &Event) -> Option<Message> {
    match event.data.visible()? {
        Visible::User(said) => Some(said.message.clone()),
        Visible::Assistant(spoken) => {
            Some(Message { status: Some(spoken.status), ..spoken.message.clone() })
        }
        Visible::Result(result) => {
            let envelope = json!(result.outcome);
            let text = envelope.to_string();
            let id = MessageId::new(format!("result_{}", result.call_id));
            let content = vec![json!({"type": "json", "data": envelope, "text": text})];
            let tool_call_id = Some(result.call_id.clone());
            Some(Message { tool_call_id, ..Message::new(id, Role::Tool, content) })
        }
        // Only the model reads these.
        Visible::Repair(_) | Visible::Added(_) | Visible::Refused(_) => None,
    }
}
