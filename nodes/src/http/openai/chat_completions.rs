//! Chat completions: the last message, or the results of a client's tools, and what follows.

use std::collections::BTreeSet;

use abide_actors::request::Reply;
use abide_conversation::{AgentName, ConversationId, Scoped, Seq};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use serde::Deserialize;
use serde_json::{Value, json};

use super::input::{self, Input};
use super::models;
use super::segment::Segment;
use super::sending::{AbideOptions, OnWait, Target, Turn, conversation_name, superseding};
use crate::access::permission::{CreateConversations, Read, Send};
use crate::access::{Allowed, StreamPermit};
use crate::ephemeral;
use crate::headers::{origin, single_header};
use crate::http::Api;
use crate::http::conversations::unexpected;
use crate::http::event_stream::write_data;
use crate::http::extract::{self, Body, Idempotency};
use crate::http::openapi::{IdempotencyKeyHeader, PrincipalHeader};
use crate::http::turn_body::{TurnBody, TurnEncoder};
use crate::http::turn_stream::PlacedItem;
use crate::problem::{Kind, Problem};
use crate::protocols::openai::chat::{ChatEncoder, ChatEnd, ChatHead};

/// The header that names the conversation.
const CONVERSATION_HEADER: HeaderName = HeaderName::from_static("abide-conversation");
/// Tells OpenAI's clients not to send a request again that has failed for good.
const NO_RETRY: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-should-retry"), HeaderValue::from_static("false"));

/// The body of a request. Whatever the definition of the agent rules is ignored.
#[derive(Debug, Deserialize)]
struct ChatRequest {
    model: String,
    messages: Vec<Value>,
    #[serde(default)]
    conversation: Value,
    #[serde(default)]
    metadata: Value,
    tools: Option<Vec<Value>>,
    #[serde(default)]
    response_format: Value,
    stream: Option<bool>,
    #[serde(default)]
    stream_options: Value,
    abide: Option<AbideOptions>,
}

impl ChatRequest {
    /// The conversation that the request names.
    fn conversation(&self, headers: &HeaderMap) -> Result<Option<String>, Problem> {
        let in_header = single_header(headers, CONVERSATION_HEADER.as_str())?;
        let in_body = conversation_name(&self.conversation)?;
        let in_metadata = self.metadata["conversation_id"].as_str().map(str::to_owned);
        Ok(in_header.or(in_body).or(in_metadata))
    }

    /// The schema of the answer.
    fn schema(&self) -> Option<Value> {
        let format = &self.response_format;
        (format["type"] == "json_schema").then(|| format["json_schema"]["schema"].clone())
    }
}

/// Sends the last message of a chat, or the results of the client's tools, and responds with what follows.
///
/// The header `abide-conversation`, `conversation` or `metadata.conversation_id` names the conversation,
/// which may be new. Without it, the request begins one, and earlier messages are background.
#[utoipa::path(post, path = "/openai/v1/chat/completions",
    operation_id = "openai_create_chat_completion", tag = "protocols",
    params(IdempotencyKeyHeader, PrincipalHeader),
    request_body(content = Object, example = json!({"model": "demo", "messages": [
        {"role": "user", "content": "hello"}]})),
    responses((status = 200, description =
        "A completion, or its chunks: <https://platform.openai.com/docs/api-reference/chat>.",
        content((Object = "application/json"), (String = "text/event-stream")))))]
pub(in crate::http) async fn create(
    allowed: Allowed<Send>,
    State(api): State<Api>,
    headers: HeaderMap,
    idempotency: Idempotency,
    body: Body<Value>,
) -> Result<Response, Problem> {
    let (body, fingerprint) = body.into_parts();
    let request: ChatRequest = extract::deserialize(body.clone())?;
    // Nothing is done for a caller whom its outcome cannot be told.
    allowed.with::<Read>().map_err(|_| Problem::forbidden("read"))?;
    let input = input::input("messages", &request.messages)?;
    let named = named_conversation(&allowed, request.conversation(&headers)?, &input)?;
    let model = models::find(&api, &allowed, &request.model).await?;
    let tools = request.tools.as_deref().unwrap_or_default();
    let declared = input::client_tools(tools, &model.tools)?;
    let mut context = input::instructions(&request.messages);
    let target = match named {
        Some(id) => Target::named(&api, &allowed, id, (&idempotency, fingerprint, &body)).await?,
        None => {
            context.extend(input.background().cloned());
            let keys = (&idempotency, fingerprint);
            let target = Target::new(&api, &allowed, ephemeral::PREFIX, keys).await?;
            create_ephemeral(&api, &allowed, &target, model.name.clone()).await?;
            target
        }
    };
    let options = request.abide.unwrap_or_default();
    let if_busy = match options.if_busy {
        Some(if_busy) => if_busy,
        None => superseding(&api, &target.id).await?,
    };
    let turn = Turn { if_busy, schema: request.schema(), tools: declared, context };
    let id = target.id.clone();
    let streams = request.stream == Some(true);
    let permit = if streams { api.access.open_stream(&id.tenant())? } else { None };
    let from = target.send(&api, &allowed, (model, input, turn)).await?;
    let form = ChatForm {
        tools: input::tool_names(tools).collect(),
        inbox: inbox(&headers),
        waits: options.on_wait.unwrap_or_default() == OnWait::Wait,
        with_usage: request.stream_options["include_usage"] == true,
        streams,
    };
    let mut response = respond(&api, &allowed, (&id, from), (form, permit)).await?;
    if let Ok(name) = HeaderValue::from_str(id.local().as_str()) {
        response.headers_mut().insert(CONVERSATION_HEADER, name);
    }
    Ok(response)
}

/// The conversation of this name, if the request has one.
fn named_conversation(
    allowed: &Allowed<Send>,
    name: Option<String>,
    input: &Input,
) -> Result<Option<Scoped<ConversationId>>, Problem> {
    match name {
        Some(name) if allowed.named_conversation(&name).is_none() => {
            Err(Problem::field("conversation", "must be [A-Za-z0-9_.:-]{1,128}"))
        }
        Some(name) => allowed.new_conversation(&name).map(Some),
        None if matches!(input, Input::Answers(_)) => {
            let why = "is missing: results of tools belong to a conversation";
            Err(Problem::field("conversation", why))
        }
        None => Ok(None),
    }
}

/// Creates the conversation of a chat that names none.
async fn create_ephemeral(
    api: &Api,
    allowed: &Allowed<Send>,
    target: &Target,
    agent: AgentName,
) -> Result<(), Problem> {
    let creator: Allowed<CreateConversations> = allowed.with()?;
    let Value::Object(metadata) = json!({ephemeral::MARK: true}) else { return Ok(()) };
    let request = super::conversations::new(&creator, agent, metadata)?;
    api.access.admit_conversation(&target.id).await?;
    if api.store.summary(&target.id).await?.is_some() {
        return Ok(());
    }
    match api.conversations.create(&creator, &target.id, request, Vec::new()).await? {
        Reply::Created { .. } => Ok(()),
        other => Err(unexpected(&other)),
    }
}

/// Where people answer what the protocol cannot ask.
fn inbox(headers: &HeaderMap) -> String {
    format!("{}/console/", origin(headers))
}

/// What a client wants of its completion.
struct ChatForm {
    tools: BTreeSet<String>,
    inbox: String,
    waits: bool,
    with_usage: bool,
    streams: bool,
}

async fn respond(
    api: &Api,
    allowed: &Allowed<Send>,
    (id, from): (&Scoped<ConversationId>, Seq),
    (form, permit): (ChatForm, Option<StreamPermit>),
) -> Result<Response, Problem> {
    let segment = Segment::find(api, id, (from, None)).await?;
    let ChatForm { tools, inbox, waits, with_usage, streams } = form;
    let head = ChatHead {
        turn: segment.head.id.turn.clone(),
        from,
        model: segment.head.model.clone(),
        created_at: segment.head.created_at,
        tools,
        inbox,
        waits,
        with_usage,
        streams,
    };
    let encoder = ChatChunks::new(ChatEncoder::new(head, segment.is_primed));
    if streams {
        let stream = segment.open(api, allowed, permit).await?;
        let mut encoded = BytesMut::new();
        write_data(&encoder.encoder.begin(), &mut encoded);
        return Ok(TurnBody::new(stream, encoder, encoded).into_response());
    }
    let Ok(_permit) = api.waiting_requests.try_acquire() else {
        let detail = "too many requests wait";
        return Err(Problem::new(Kind::Overloaded, detail));
    };
    let stream = segment.open(api, allowed, None).await?;
    let chunks = TurnBody::new(stream, encoder, BytesMut::new()).wait().await?;
    match chunks.failure() {
        Some(error) => Ok((StatusCode::BAD_GATEWAY, [NO_RETRY], Json(error)).into_response()),
        None => Ok(Json(chunks.encoder.completion()).into_response()),
    }
}

/// The chunks of a completion.
struct ChatChunks {
    encoder: ChatEncoder,
    /// Why the completion ends before its turn.
    broken: Option<String>,
}

impl ChatChunks {
    fn new(encoder: ChatEncoder) -> Self {
        Self { encoder, broken: None }
    }

    /// The error that the completion ends with.
    fn failure(&self) -> Option<Value> {
        let (code, message) = match (&self.broken, self.encoder.end()) {
            (Some(why), _) => ("unavailable", why.as_str()),
            (None, Some(ChatEnd::Failed { code, reason })) => (*code, reason.as_str()),
            (None, Some(ChatEnd::Finished)) => return None,
            (None, None) => ("timeout", "the turn takes longer than a request may wait"),
        };
        Some(json!({"error": {"message": message, "type": "server_error", "param": null,
            "code": code}}))
    }
}

impl TurnEncoder for ChatChunks {
    fn item(&mut self, placed: &PlacedItem, encoded: &mut BytesMut) {
        for chunk in self.encoder.item(placed.seq, &placed.item) {
            write_data(&chunk, encoded);
        }
    }

    fn is_over(&self) -> bool {
        self.broken.is_some() || self.encoder.end().is_some()
    }

    fn finish(&mut self, broken: Option<&str>, _: &mut BytesMut) {
        let why = broken.unwrap_or("nobody has answered what the turn waits for");
        self.broken = Some(why.to_owned());
    }

    fn end(&mut self, encoded: &mut BytesMut) {
        match self.failure() {
            Some(error) => write_data(&error, encoded),
            None => self.encoder.finish().iter().for_each(|chunk| write_data(chunk, encoded)),
        }
        encoded.extend_from_slice(b"data: [DONE]\n\n");
    }
}
