//! Messages: sending one, and listing those of a conversation.

use abide_actors::blobs::BlobHold;
use abide_actors::expressions::schema::Schema;
use abide_actors::journal::ResponseScope;
use abide_actors::request::{IdempotencyKey, Reply, Request, SendRequest};
use abide_actors::trace;
use abide_conversation::branch::NewestFirst;
use abide_conversation::command::IfBusy;
use abide_conversation::event::AnswerFormat;
use abide_conversation::{ConversationId, Scoped, Seq, Timestamp, TurnId};
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::conversations::{agent_name, unexpected};
use super::extract;
use super::extract::{Body, Idempotency, Path, Query};
use super::message_parts::{Blocks, turn_tools};
use super::moment;
use super::openapi::{
    ConversationPath, IdempotencyKeyHeader, PrincipalHeader, ToolDocument, any_of,
};
use super::problem::Problem;
use super::scheduled::{self, Accepted, ScheduledReply};
use super::transcript::{Cursor, ListedMessage, Transcript};
use super::wait::{self, TurnReport, WaitQuery};
use crate::access::Allowed;
use crate::access::permission::{Read, Send};
use crate::telemetry::TurnExtension;

/// How many events are read from the store at a time, to find messages among them.
const EVENTS_PER_READ: usize = 200;
/// The longest `message_id`.
pub(super) const MAX_MESSAGE_ID_CHARS: usize = 255;

/// A user's message: either `text` or `content`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewMessage {
    #[schema(min_length = 1)]
    pub(super) text: Option<String>,
    /// Blocks such as `{"type": "text", "text": …}`, of the kinds `text`, `image`, `document`,
    /// `audio`, `video`, `json`, `xml`, `csv`, `html`, `code`, `user_action`, `system_event`,
    /// `state_change`, `generated_image`, `generated_file`, `executable_code`,
    /// `code_execution_result` and `custom`, each with the fields that it must have. Media have a
    /// `source`: `{"type": "blob", "blobId"}`, `{"type": "base64", "mimeType", "data"}`, `{"type":
    /// "url", "url"}`, `{"type": "file_id", "fileId"}`, `{"type": "s3", "bucket", "key"}` or
    /// `{"type": "gcs", "bucket", "object"}`. Base64 of more than 1 KiB is kept as a blob, and read
    /// back as one. A block of an unknown type passes through; `tool_use`, `tool_result` and
    /// `reasoning` are reserved for the model.
    #[schema(value_type = Option<Vec<Object>>, min_items = 1)]
    pub(super) content: Option<Vec<Value>>,
    /// Chosen by the client: within a day, a request with the same id is a repeat and gets the first
    /// answer.
    #[schema(min_length = 1, max_length = 255)]
    pub(super) message_id: Option<String>,
    /// The agent's name: creates the conversation if it does not exist.
    #[schema(pattern = "^[a-z0-9][a-z0-9_-]{0,63}$")]
    pub(super) agent: Option<String>,
    /// `reject` if absent.
    pub(super) if_busy: Option<BusyPolicy>,
    /// A JSON Schema of at most 64 KiB that the turn's answer must satisfy, or false for plain text
    /// even if the agent has a schema.
    pub(super) schema: Option<Value>,
    /// Handed to this turn's tool calls; at most 64 KiB.
    #[serde(default)]
    pub(super) assigns: Map<String, Value>,
    /// Tools of the executors `client` and `human` for this turn, in the form of an agent's; at most
    /// 128 KiB. None may have the name of a tool of the agent. They wait for an answer as long as their
    /// timeout, whether or not a stream is open.
    #[serde(default)]
    #[schema(value_type = Vec<ToolDocument>, max_items = 256)]
    pub(super) tools: Vec<Value>,
    /// Blocks, as in `content`, for the end of this turn's prompts; at most 100, and 64 KiB without
    /// media. They are no part of the message.
    #[serde(default)]
    #[schema(value_type = Vec<Object>, max_items = 100)]
    pub(super) context: Vec<Value>,
    /// A duration: delivers the message so much later, at most 365 days. `if_busy` is then `queue`
    /// unless it is given.
    #[schema(example = "2h")]
    pub(super) deliver_in: Option<String>,
    /// Delivers the message at this time, within ten years; at once if it has passed.
    #[serde(default, deserialize_with = "moment::optional")]
    pub(super) deliver_at: Option<Timestamp>,
}

/// A message that was accepted.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Sent {
    conversation_id: ConversationId,
    /// The turn that the message starts, now or when its turn in the queue comes; or the turn that runs,
    /// which it steers.
    pub(super) turn_id: TurnId,
    /// The seq of the `user_msg` event.
    #[schema(value_type = u64)]
    pub(super) seq: Seq,
}

/// A message that was accepted; after a `wait`, with what its turn has come to.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum SendReply {
    Answered(Box<AnsweredMessage>),
    Accepted(Sent),
    Scheduled(ScheduledReply),
}

any_of!(AcceptedMessage, Sent, ScheduledReply);

/// A message that was accepted: its turn, or when it will be delivered.
#[derive(Debug)]
pub(super) enum AcceptedMessage {}

/// What the turn of a message has come to.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AnsweredMessage {
    /// The seq of the `user_msg` event.
    #[schema(value_type = u64)]
    seq: Seq,
    #[serde(flatten)]
    turn: TurnReport,
}

/// What to do with a message while a turn runs: reject it, queue it, cancel that turn first, or add it
/// to that turn, before its next step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Busy)]
pub(super) enum BusyPolicy {
    #[default]
    Reject,
    Queue,
    Interrupt,
    Steer,
}

/// Reads a policy for messages that begin turns of their own.
pub(super) fn without_steer<'de, D>(from: D) -> Result<Option<BusyPolicy>, D::Error>
where
    D: serde::Deserializer<'de>,
{
    match Option::<BusyPolicy>::deserialize(from)? {
        Some(BusyPolicy::Steer) => {
            Err(serde::de::Error::custom("must be reject, queue or interrupt here"))
        }
        policy => Ok(policy),
    }
}

type SendResponse = (StatusCode, Option<Extension<TurnExtension>>, Json<SendReply>);

/// Sends a message, which starts a turn, now or later.
#[utoipa::path(post, path = "/v1/conversations/{id}/messages", operation_id = "send_message",
    tag = "messages",
    params(ConversationPath, WaitQuery, IdempotencyKeyHeader, PrincipalHeader),
    request_body(content = NewMessage, examples(
        ("text" = (value = json!({"text": "Write a mail to Ada", "agent": "demo"}))),
        ("blocks" = (value = json!({"content": [{"type": "text", "text": "And this?"}],
            "message_id": "m-17", "if_busy": "queue"}))),
        ("image" = (value = json!({"content": [{"type": "text", "text": "What is this?"},
            {"type": "image", "source": {"type": "url", "url": "https://example.com/cat.png"}}]}))))),
    responses(
        (status = 202, description = "The message is journalled, and its turn runs or is queued; or \
            it will be delivered later.", body = AcceptedMessage),
        (status = 200, description = "With `wait`: the turn of the message has ended, or rests.",
            body = AnsweredMessage)))]
pub(super) async fn send(
    allowed: Allowed<Send>,
    State(api): State<Api>,
    Path(id): Path<String>,
    Query(query): Query<WaitQuery>,
    idempotency: Idempotency,
    body: Body<NewMessage>,
) -> Result<SendResponse, Problem> {
    let wait = query.duration()?;
    let (message, fingerprint) = body.into_parts();
    let deliver_at = scheduled::delivery_time(
        message.deliver_in.as_deref(),
        message.deliver_at,
        api.clock.now(),
    )?;
    if deliver_at.is_some() && wait.is_some() {
        return Err(Problem::field("wait", "must be absent for a message that is scheduled"));
    }
    let id = match message.agent {
        Some(_) => allowed.new_conversation(&id)?,
        None => allowed.conversation(&id)?,
    };
    let keys = idempotency.keys(&allowed, fingerprint);
    let message = (message, deliver_at);
    let sent = match scheduled::deliver(&api, &allowed, &id, message, keys).await? {
        Accepted::Sent(sent) => sent,
        Accepted::Scheduled(reply) => {
            return Ok((StatusCode::ACCEPTED, None, Json(SendReply::Scheduled(reply))));
        }
    };
    let span = trace::root_of(&id, &sent.turn_id).map(|root| Extension(TurnExtension(root)));
    Ok(match wait::after(&api, &allowed, &id, sent.seq, wait).await? {
        Some(turn) => {
            let answered = Box::new(AnsweredMessage { seq: sent.seq, turn });
            (StatusCode::OK, span, Json(SendReply::Answered(answered)))
        }
        None => (StatusCode::ACCEPTED, span, Json(SendReply::Accepted(sent))),
    })
}

/// Sends a message to its conversation, now. A repeat of one that was accepted gets the first answer.
pub(super) async fn deliver(
    api: &Api,
    allowed: &Allowed<Send>,
    id: &Scoped<ConversationId>,
    message: NewMessage,
    mut keys: Vec<IdempotencyKey>,
) -> Result<Sent, Problem> {
    let request = Request::Send(compose(api, allowed, id, message, &mut keys).await?);
    sent(api.conversations.deliver(allowed, id, request, keys).await?)
}

/// The response to a message that was sent.
pub(super) fn sent(reply: Reply) -> Result<Sent, Problem> {
    match reply {
        Reply::Sent { conversation_id, turn_id, seq } => Ok(Sent { conversation_id, turn_id, seq }),
        Reply::Scheduled { .. } => {
            Err(Problem::field("message_id", "is that of a message that is sent later"))
        }
        other => Err(unexpected(&other)),
    }
}

/// Checks and admits a message, and stores its media.
pub(super) async fn compose(
    api: &Api,
    allowed: &Allowed<Send>,
    id: &Scoped<ConversationId>,
    message: NewMessage,
    keys: &mut Vec<IdempotencyKey>,
) -> Result<SendRequest, Problem> {
    let is_later = message.deliver_in.is_some() || message.deliver_at.is_some();
    let if_busy =
        message.if_busy.unwrap_or(if is_later { BusyPolicy::Queue } else { BusyPolicy::Reject });
    if if_busy == BusyPolicy::Steer {
        check_steering(&message)?;
    }
    let mut blocks = Blocks::new(message.text, message.content, message.context)?;
    let message_key = message.message_id.as_deref().map(|id| message_key(id, &blocks.content));
    keys.extend(message_key.transpose()?);
    let tools = turn_tools(message.tools).await?;
    admit(api, id, keys, (blocks.media_bytes(), message.agent.is_some())).await?;
    let hold = BlobHold::of_conversation(id, api.clock.now());
    blocks.store_media(api, id, &hold).await?;
    Ok(SendRequest {
        agent: message.agent.as_deref().map(agent_name).transpose()?,
        content: blocks.content,
        message_id: message.message_id,
        principal: allowed.principal(),
        assigns: extract::bounded("assigns", message.assigns)?,
        answer_format: answer_format(message.schema).await?,
        tools: tools.into(),
        context: blocks.context,
        if_busy: match if_busy {
            BusyPolicy::Reject => IfBusy::Reject,
            BusyPolicy::Queue => IfBusy::Queue,
            BusyPolicy::Interrupt => IfBusy::Interrupt,
            BusyPolicy::Steer => IfBusy::Steer,
        },
    })
}

/// Refuses what a message asks of its turn as a whole: one that steers may belong to a turn that runs.
fn check_steering(message: &NewMessage) -> Result<(), Problem> {
    let given = [
        ("deliver_in", message.deliver_in.is_some()),
        ("deliver_at", message.deliver_at.is_some()),
        ("schema", message.schema.is_some()),
        ("assigns", !message.assigns.is_empty()),
        ("tools", !message.tools.is_empty()),
        ("context", !message.context.is_empty()),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        Some((field, _)) => Err(Problem::field(field, "must be absent with if_busy steer")),
        None => Ok(()),
    }
}

/// Refuses a message for which its tenant has no room. A repeat of one that was accepted gets the
/// first answer.
async fn admit(
    api: &Api,
    id: &Scoped<ConversationId>,
    keys: &[IdempotencyKey],
    (media_bytes, may_create): (u64, bool),
) -> Result<(), Problem> {
    let tenant = id.tenant();
    let admitted = async {
        api.access.admit_turn(&tenant).await?;
        if media_bytes > 0 {
            api.access.admit_blob(&tenant, media_bytes).await?;
        }
        if may_create { api.access.admit_conversation(id).await } else { Ok(()) }
    };
    let Err(refusal) = admitted.await else { return Ok(()) };
    let (scope, now) = (ResponseScope::Conversation(id.clone()), api.clock.now());
    for key in keys {
        if api.store.stored_response(&scope, &key.key, now).await?.is_some() {
            return Ok(());
        }
    }
    Err(refusal)
}

/// The key of a message with an id: a message with the same id and the same content is a repeat.
fn message_key(id: &str, content: &[Value]) -> Result<IdempotencyKey, Problem> {
    if !(1..=MAX_MESSAGE_ID_CHARS).contains(&id.chars().count()) {
        let rule = format!("must be 1 to {MAX_MESSAGE_ID_CHARS} characters");
        return Err(Problem::field("message_id", rule));
    }
    let canonical = extract::canonical(&Value::Array(content.to_vec()));
    let fingerprint = extract::fingerprint(&[&canonical]);
    Ok(IdempotencyKey { key: message_key_name(id), fingerprint, field: "message_id".into() })
}

/// The name of the key of a message with this id.
pub(super) fn message_key_name(id: &str) -> String {
    format!("message:{id}")
}

async fn answer_format(schema: Option<Value>) -> Result<AnswerFormat, Problem> {
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
    /// The `cursor` of the page of newer messages; the newest page if absent.
    before: Option<String>,
    /// The size of the page.
    #[param(default = 50, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// A page of messages, oldest first; `cursor`, given as `before`, asks for the page of older ones.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct MessagePage {
    messages: Vec<ListedMessage>,
    /// Null on the page with the oldest message.
    #[schema(required)]
    cursor: Option<String>,
    more: bool,
}

/// Lists a conversation's messages, the newest page first.
///
/// The message of a turn that was queued stands where its turn began; while it waits, it is at the end.
#[utoipa::path(get, path = "/v1/conversations/{id}/messages", operation_id = "list_messages",
    tag = "messages", params(ConversationPath, ListQuery),
    responses((status = 200, description = "A page of messages, oldest first.", body = MessagePage)))]
pub(super) async fn list(
    allowed: Allowed<Read>,
    State(api): State<Api>,
    Path(id): Path<String>,
    Query(query): Query<ListQuery>,
) -> Result<Json<MessagePage>, Problem> {
    let id = allowed.conversation(&id)?;
    let limit = extract::limit(query.limit, 50, 1_000)?;
    let cursor = query.before.as_deref().map(str::parse::<Cursor>).transpose();
    let cursor = cursor.map_err(|()| Problem::field("before", "is not a cursor"))?;
    let (before, mut page) = match cursor.unwrap_or(Cursor::Queued(0)) {
        Cursor::Queued(shown) => {
            let state = api.conversations.state(&allowed, &id).await?;
            let turns = state.queue.into_iter().map(|queued| queued.id);
            (state.seq.saturating_add(1), Transcript::after_queue(turns.collect(), shown))
        }
        Cursor::Before(seq) => {
            api.conversations.summary(&allowed, &*api.store, &id).await?;
            (seq, Transcript::default())
        }
    };
    // One message past the page tells whether there is another page.
    fill(&api, &id, before, limit.saturating_add(1), &mut page).await?;
    let (messages, cursor) = page.page(limit);
    let more = cursor.is_some();
    Ok(Json(MessagePage { messages, cursor: cursor.map(|cursor| cursor.to_string()), more }))
}

/// Reads events before a seq, until the newest `count` messages are known.
async fn fill(
    api: &Api,
    id: &Scoped<ConversationId>,
    mut before: Seq,
    count: usize,
    transcript: &mut Transcript,
) -> Result<(), Problem> {
    let mut reader = NewestFirst::default();
    while !transcript.has(count) {
        let events = api.store.events_before(id, before, EVENTS_PER_READ).await?;
        let Some(oldest) = events.last().map(|event| event.seq) else { return Ok(()) };
        for event in events.into_iter().filter(|event| reader.counts(event)) {
            transcript.take(&event, count);
        }
        before = reader.before(oldest);
    }
    Ok(())
}
