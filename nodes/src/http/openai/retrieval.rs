//! Responses that exist: read, followed, cancelled.

use abide_conversation::event::{Event, EventData, Executor, Resolution, SuspensionKind};
use abide_conversation::message::Outcome;
use abide_conversation::{CallId, ConversationId, Scoped};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;

use super::list::{ItemQuery, List};
use super::responses::ResponseEvents;
use super::segment::Segment;
use crate::access::Allowed;
use crate::access::permission::{Cancel, ConversationPermission, Read};
use crate::http::Api;
use crate::http::extract::{self, Idempotency, Path, Query};
use crate::http::openapi::IdempotencyKeyHeader;
use crate::http::protocol_requests::cancel_turn;
use crate::http::turn_body::TurnBody;
use crate::problem::Problem;
use crate::protocols::openai::encoder::ResponseEncoder;
use crate::protocols::openai::items;
use crate::protocols::openai::response::ResponseId;

/// The most events of one commit that a response's input is made of.
const MAX_INPUT_EVENTS: usize = 400;

/// The path of a response.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct ResponsePath {
    /// The response's id.
    #[param(example = "resp_2.k_0198aa.conv_1")]
    response_id: String,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(in crate::http) struct ResponseQuery {
    /// Whether to stream the response, from its first event.
    stream: Option<bool>,
    /// With `stream`: the `sequence_number` of the last event that the client has.
    starting_after: Option<u64>,
}

/// The response with this id.
async fn find<P: ConversationPermission>(
    api: &Api,
    allowed: &Allowed<P>,
    id: &str,
) -> Result<Segment, Problem> {
    let response = ResponseId::parse(id).ok_or_else(|| Problem::not_found("response"))?;
    let id = allowed.conversation(response.conversation.as_str())?;
    api.conversations.summary(allowed, &*api.store, &id).await?;
    Segment::find(api, &id, (response.from, Some(&response.turn))).await
}

/// The response as it is now.
async fn current<P: ConversationPermission>(
    api: &Api,
    allowed: &Allowed<P>,
    segment: &Segment,
) -> Result<Value, Problem> {
    let encoder = ResponseEncoder::new(segment.head.clone(), segment.is_primed);
    let stream = segment.open(api, allowed, None).await?;
    let body = TurnBody::new(stream, ResponseEvents(encoder), BytesMut::new());
    Ok(body.catch_up().await?.0.response())
}

/// Reads a response, which may still go on, or streams it.
#[utoipa::path(get, path = "/openai/v1/responses/{response_id}",
    operation_id = "openai_get_response", tag = "protocols", params(ResponsePath, ResponseQuery),
    responses((status = 200, description =
        "A response, or its events: <https://platform.openai.com/docs/api-reference/responses>.",
        content((Object = "application/json"), (String = "text/event-stream")))))]
pub(in crate::http) async fn get(
    allowed: Allowed<Read>,
    State(api): State<Api>,
    Path(response_id): Path<String>,
    Query(query): Query<ResponseQuery>,
) -> Result<Response, Problem> {
    let streams = query.stream == Some(true);
    if query.starting_after.is_some() && !streams {
        return Err(Problem::field("starting_after", "is for a stream"));
    }
    let segment = find(&api, &allowed, &response_id).await?;
    if !streams {
        return Ok(Json(current(&api, &allowed, &segment).await?).into_response());
    }
    let permit = api.access.open_stream(&segment.id.tenant())?;
    let encoder = ResponseEncoder::new(segment.head.clone(), segment.is_primed);
    let encoder = match query.starting_after {
        Some(number) => encoder.after(number),
        None => encoder,
    };
    let stream = segment.open(&api, &allowed, permit).await?;
    Ok(ResponseEvents(encoder).stream(stream))
}

/// Cancels the turn of a response, if it is not over.
#[utoipa::path(post, path = "/openai/v1/responses/{response_id}/cancel",
    operation_id = "openai_cancel_response", tag = "protocols",
    params(ResponsePath, IdempotencyKeyHeader),
    responses((status = 200, body = Object, description =
        "The response: <https://platform.openai.com/docs/api-reference/responses/cancel>.")))]
pub(in crate::http) async fn cancel(
    allowed: Allowed<Cancel>,
    State(api): State<Api>,
    Path(response_id): Path<String>,
    idempotency: Idempotency,
) -> Result<Json<Value>, Problem> {
    // Nothing is done for a caller whom its outcome cannot be told.
    let reader = allowed.with::<Read>().map_err(|_| Problem::forbidden("read"))?;
    let segment = find(&api, &allowed, &response_id).await?;
    let fingerprint = extract::fingerprint(&["cancel", &response_id]);
    let keys = idempotency.keys(&allowed, fingerprint);
    cancel_turn(&api, &allowed, (&segment.id, &segment.head.id.turn), keys).await?;
    current(&api, &reader, &segment).await.map(Json)
}

/// Lists the message or the answers that a response began with.
#[utoipa::path(get, path = "/openai/v1/responses/{response_id}/input_items",
    operation_id = "openai_list_input_items", tag = "protocols",
    params(ResponsePath, ItemQuery),
    responses((status = 200, body = Object, description =
        "A list: <https://platform.openai.com/docs/api-reference/responses/input-items>.")))]
pub(in crate::http) async fn input_items(
    allowed: Allowed<Read>,
    State(api): State<Api>,
    Path(response_id): Path<String>,
    Query(query): Query<ItemQuery>,
) -> Result<Json<Value>, Problem> {
    let mut list = List::new(&query)?;
    let segment = find(&api, &allowed, &response_id).await?;
    for item in input_of(&api, &segment.id, &segment).await? {
        list.take(item);
    }
    Ok(Json(list.into_page()))
}

/// The items of the commit that a response begins with.
async fn input_of(
    api: &Api,
    id: &Scoped<ConversationId>,
    segment: &Segment,
) -> Result<Vec<Value>, Problem> {
    let from = segment.head.id.from;
    let events = api.store.events(id, from.saturating_sub(1), MAX_INPUT_EVENTS).await?;
    let at = segment.head.created_at;
    let of_commit: Vec<Event> = events.into_iter().take_while(|event| event.at == at).collect();
    let item = |event: &Event| match &event.data {
        EventData::UserMsg(user) if event.seq == from => {
            Some(items::user_message(user.message.id.as_str(), &user.message.content))
        }
        EventData::Resolution(resolution) => Some(answer(resolution, &of_commit)),
        _ => None,
    };
    Ok(of_commit.iter().filter_map(item).collect())
}

fn answer(resolution: &Resolution, commit: &[Event]) -> Value {
    let Resolution { call_id, suspension, kind, .. } = resolution;
    match kind {
        SuspensionKind::Approval => {
            let id = items::approval_id(call_id, *suspension);
            json!({"id": format!("mcpar_{call_id}.{suspension}"), "type": "mcp_approval_response",
                "approval_request_id": id, "approve": resolution.approved == Some(true),
                "reason": resolution.reason})
        }
        SuspensionKind::Elicitation | SuspensionKind::ClientExec | SuspensionKind::InDoubt => {
            let executor =
                if resolution.input.is_some() { Executor::Server } else { Executor::Client };
            let id = items::answer_id(call_id, *suspension, executor);
            json!({"id": format!("fco_{id}"), "type": "function_call_output", "call_id": id,
                "status": "completed", "output": output(call_id, commit)})
        }
    }
}

/// The result that an answer gave its call, in the same commit.
fn output(call: &CallId, commit: &[Event]) -> Value {
    let outcome = commit.iter().find_map(|event| match &event.data {
        EventData::ToolResult(result) if result.call_id == *call => Some(&result.outcome),
        _ => None,
    });
    match outcome {
        Some(Outcome::Ok(result)) => items::function_output(result),
        Some(Outcome::Err(error, _)) => json!(error),
        None => json!(""),
    }
}
