//! Responses: a message, or answers to what a response asked for, and what follows.

use abide_conversation::message::text_block;
use abide_conversation::{ConversationId, Scoped, Seq};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use serde::Deserialize;
use serde_json::{Value, json};

use super::input::{self, Input};
use super::models;
use super::segment::Segment;
use super::sending::{AbideOptions, Target, Turn, conversation_name};
use crate::access::permission::{ConversationPermission, Read, Send};
use crate::access::{Allowed, StreamPermit};
use crate::http::Api;
use crate::http::event_stream::write_data;
use crate::http::extract::{self, Body, Idempotency};
use crate::http::messages::BusyPolicy;
use crate::http::openapi::{IdempotencyKeyHeader, PrincipalHeader};
use crate::http::turn_body::{TurnBody, TurnEncoder};
use crate::http::turn_stream::{PlacedItem, TurnStream};
use crate::problem::Problem;
use crate::protocols::openai::encoder::{ResponseEncoder, ResponseEvent};
use crate::protocols::openai::response::ResponseId;

/// The body of a request. Whatever the definition of the agent rules is ignored.
#[derive(Debug, Deserialize)]
struct ResponseRequest {
    model: String,
    input: Value,
    #[serde(default)]
    conversation: Value,
    previous_response_id: Option<String>,
    instructions: Option<String>,
    tools: Option<Vec<Value>>,
    #[serde(default)]
    text: Value,
    stream: Option<bool>,
    background: Option<bool>,
    store: Option<bool>,
    abide: Option<AbideOptions>,
}

impl ResponseRequest {
    fn check(&self) -> Result<(), Problem> {
        if self.store == Some(false) {
            return Err(Problem::field("store", "everything is journalled: must not be false"));
        }
        if self.previous_response_id.is_some() && !self.conversation.is_null() {
            let why = "must be absent where conversation is given";
            return Err(Problem::field("previous_response_id", why));
        }
        if self.abide.is_some_and(|abide| abide.on_wait.is_some()) {
            return Err(Problem::field("abide.on_wait", "is for chat completions"));
        }
        Ok(())
    }

    /// The items of the input.
    fn items(&self) -> Result<Vec<Value>, Problem> {
        match &self.input {
            Value::String(text) if !text.is_empty() => {
                Ok(vec![json!({"role": "user", "content": text})])
            }
            Value::Array(items) => Ok(items.clone()),
            _ => Err(Problem::field("input", "must be text, or items")),
        }
    }

    /// The schema of the answer.
    fn schema(&self) -> Option<Value> {
        let format = &self.text["format"];
        (format["type"] == "json_schema").then(|| format["schema"].clone())
    }
}

/// Sends a message, or answers, and responds with what follows, until the turn rests or ends.
///
/// `model` is an agent. The request names a `conversation`, which may be new, or a
/// `previous_response_id`; without either it begins a conversation. `stream` streams the response, and
/// `background` responds at once.
#[utoipa::path(post, path = "/openai/v1/responses", operation_id = "openai_create_response",
    tag = "protocols", params(IdempotencyKeyHeader, PrincipalHeader),
    request_body(content = Object, example = json!({"model": "demo", "input": "hello"})),
    responses((status = 200, description =
        "A response, or its events: <https://platform.openai.com/docs/api-reference/responses>.",
        content((Object = "application/json"), (String = "text/event-stream")))))]
pub(in crate::http) async fn create(
    allowed: Allowed<Send>,
    State(api): State<Api>,
    idempotency: Idempotency,
    body: Body<Value>,
) -> Result<Response, Problem> {
    let (body, fingerprint) = body.into_parts();
    let request: ResponseRequest = extract::deserialize(body.clone())?;
    request.check()?;
    // Nothing is done for a caller whom its outcome cannot be told.
    allowed.with::<Read>().map_err(|_| Problem::forbidden("read"))?;
    let items = request.items()?;
    let input = input::input("input", &items)?;
    let named = conversation(&api, &allowed, &request, &input).await?;
    let model = models::find(&api, &allowed, &request.model).await?;
    let turn = Turn {
        if_busy: request.abide.unwrap_or_default().if_busy.unwrap_or(BusyPolicy::Reject),
        schema: request.schema(),
        tools: input::client_tools(request.tools.as_deref().unwrap_or_default(), &model.tools)?,
        context: context(&request, &items, &input, named.is_some()),
    };
    let streams = request.stream == Some(true);
    let target = match named {
        Some(id) => Target::named(&api, &allowed, id, (&idempotency, fingerprint, &body)).await?,
        None => Target::new(&api, &allowed, "conv", (&idempotency, fingerprint)).await?,
    };
    let id = target.id.clone();
    let permit = if streams { api.access.open_stream(&id.tenant())? } else { None };
    let from = target.send(&api, &allowed, (model, input, turn)).await?;
    let is_background = request.background == Some(true);
    respond(&api, &allowed, (&id, from), (streams, is_background, permit)).await
}

/// The conversation that a request names.
async fn conversation(
    api: &Api,
    allowed: &Allowed<Send>,
    request: &ResponseRequest,
    input: &Input,
) -> Result<Option<Scoped<ConversationId>>, Problem> {
    if let Some(previous) = &request.previous_response_id {
        return of_previous(api, allowed, previous).await.map(Some);
    }
    match conversation_name(&request.conversation)? {
        Some(name) => {
            let id = allowed.new_conversation(&name);
            id.map(Some).map_err(|problem| match problem.field_name() {
                Some(_) => Problem::field("conversation", "must be [A-Za-z0-9_.:-]{1,128}"),
                None => problem,
            })
        }
        None if matches!(input, Input::Answers(_)) => {
            let why = "answers need a conversation, or a previous_response_id";
            Err(Problem::field("conversation", why))
        }
        None => Ok(None),
    }
}

/// The conversation of an earlier response. One that the caller may not read does not exist.
async fn of_previous(
    api: &Api,
    allowed: &Allowed<Send>,
    previous: &str,
) -> Result<Scoped<ConversationId>, Problem> {
    let missing = || {
        let why = "previous_response_id: no such response";
        Problem::unreadable(why).with_openai_code("previous_response_not_found")
    };
    let response = ResponseId::parse(previous).ok_or_else(missing)?;
    let reader = allowed.with::<Read>()?;
    let id = reader.conversation(response.conversation.as_str()).map_err(|_| missing())?;
    let readable = api.conversations.summary(&reader, &*api.store, &id).await;
    let found = match readable {
        Ok(_) => Segment::find(api, &id, (response.from, Some(&response.turn))).await.map(|_| ()),
        Err(problem) => Err(problem),
    };
    found.map_err(|problem| if problem.is_not_found() { missing() } else { problem })?;
    Ok(id)
}

/// The blocks for the end of the turn's prompts. History is background for a new conversation only: an
/// old one has its own.
fn context(
    request: &ResponseRequest,
    items: &[Value],
    input: &Input,
    has_history: bool,
) -> Vec<Value> {
    let given = request.instructions.iter().filter(|text| !text.trim().is_empty());
    let mut context: Vec<Value> = given.map(text_block).collect();
    context.extend(input::instructions(items));
    context.extend(input.background().filter(|_| !has_history).cloned());
    context
}

/// Tells the response that begins with this event.
async fn respond<P: ConversationPermission>(
    api: &Api,
    allowed: &Allowed<P>,
    (id, from): (&Scoped<ConversationId>, Seq),
    (streams, is_background, permit): (bool, bool, Option<StreamPermit>),
) -> Result<Response, Problem> {
    let segment = Segment::find(api, id, (from, None)).await?;
    let encoder = ResponseEncoder::new(segment.head.clone(), segment.is_primed);
    if streams {
        let stream = segment.open(api, allowed, permit).await?;
        return Ok(ResponseEvents(encoder).stream(stream));
    }
    if is_background {
        let mut response = encoder.response();
        response["status"] = json!("queued");
        response["background"] = json!(true);
        return Ok(Json(response).into_response());
    }
    let permit = api.waiting_requests.try_acquire();
    let stream = segment.open(api, allowed, None).await?;
    let body = TurnBody::new(stream, ResponseEvents(encoder), BytesMut::new());
    // Where too many wait, the client is told how far the response is, and polls.
    let ResponseEvents(encoder) =
        if permit.is_ok() { body.wait().await? } else { body.catch_up().await? };
    Ok(Json(encoder.response()).into_response())
}

/// The events of a response.
pub(super) struct ResponseEvents(pub(super) ResponseEncoder);

impl ResponseEvents {
    /// The response as a stream.
    pub(super) fn stream(mut self, stream: TurnStream) -> Response {
        let mut encoded = BytesMut::new();
        write(self.0.begin(), &mut encoded);
        TurnBody::new(stream, self, encoded).into_response()
    }
}

impl TurnEncoder for ResponseEvents {
    fn item(&mut self, placed: &PlacedItem, encoded: &mut BytesMut) {
        write(self.0.item(placed.seq, &placed.item), encoded);
    }

    fn is_over(&self) -> bool {
        self.0.is_over()
    }

    fn finish(&mut self, broken: Option<&str>, encoded: &mut BytesMut) {
        write(self.0.finish(broken), encoded);
    }

    fn end(&mut self, _: &mut BytesMut) {}
}

fn write(events: Vec<ResponseEvent>, encoded: &mut BytesMut) {
    for event in events {
        encoded.extend_from_slice(b"event: ");
        encoded.extend_from_slice(event.kind().as_bytes());
        encoded.extend_from_slice(b"\n");
        write_data(&event, encoded);
    }
}
