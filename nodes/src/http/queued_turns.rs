//! The turns that wait in a conversation's queue: which they are, and withdrawing one.

use abide_actors::request::{Reply, Request, WithdrawRequest};
use abide_conversation::event::{Event, EventData, UserMsg};
use abide_conversation::message::Message;
use abide_conversation::{ConversationId, Principal, Scoped, Seq, Timestamp, TurnId};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use futures::{StreamExt, TryStreamExt};
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;
use super::conversations::unexpected;
use super::extract;
use super::extract::{Idempotency, NoParameters, Path, Query};
use super::openapi::{ConversationPath, IdempotencyKeyHeader, QueuedTurnPath};
use super::problem::Problem;
use crate::access::Allowed;
use crate::access::permission::{Read, Send};

/// How many messages are read at the same time.
const CONCURRENT_READS: usize = 8;

/// The turns that wait.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct QueueList {
    queued: Vec<QueuedTurn>,
}

/// A turn that waits for the turns before it.
#[derive(Debug, Serialize, ToSchema)]
struct QueuedTurn {
    turn_id: TurnId,
    /// The seq of the `user_msg` event.
    #[schema(value_type = u64)]
    seq: Seq,
    /// When the message was sent.
    at: Timestamp,
    message: Message,
    /// The `message_id` that the client gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<String>,
    /// Who sent it.
    principal: Principal,
}

/// Lists the queued turns of a conversation, the next one first.
#[utoipa::path(get, path = "/v1/conversations/{id}/queue", operation_id = "list_queue",
    tag = "messages", params(ConversationPath),
    responses((status = 200, description = "The turns that wait.", body = QueueList)))]
pub(super) async fn list(
    allowed: Allowed<Read>,
    State(api): State<Api>,
    Path(id): Path<String>,
    _: Query<NoParameters>,
) -> Result<Json<QueueList>, Problem> {
    let id = allowed.conversation(&id)?;
    let state = api.conversations.state(&allowed, &id).await?;
    let places: Vec<Seq> = state.queued_messages().collect();
    let read = futures::stream::iter(places.into_iter().map(|seq| queued_turn(&api, &id, seq)));
    let turns = read.buffered(CONCURRENT_READS);
    let queued = turns.try_filter_map(|turn| std::future::ready(Ok(turn))).try_collect().await?;
    Ok(Json(QueueList { queued }))
}

/// The turn whose message is at this place; `None` if the conversation was deleted meanwhile.
async fn queued_turn(
    api: &Api,
    id: &Scoped<ConversationId>,
    seq: Seq,
) -> Result<Option<QueuedTurn>, Problem> {
    let event = api.store.events(id, seq.saturating_sub(1), 1).await?.pop();
    let Some(Event { seq, at, turn_id: Some(turn_id), data: EventData::UserMsg(user) }) = event
    else {
        return Ok(None);
    };
    let UserMsg { message, message_id, principal, .. } = user;
    Ok(Some(QueuedTurn { turn_id, seq, at, message, message_id, principal }))
}

/// Withdraws a queued turn, which then never starts.
///
/// The problem `turn-in-flight` answers for the turn that runs; a turn that has ended, or was withdrawn
/// before, is not found.
#[utoipa::path(delete, path = "/v1/conversations/{id}/queue/{turn_id}",
    operation_id = "withdraw_turn", tag = "messages",
    params(QueuedTurnPath, IdempotencyKeyHeader),
    responses((status = 204, description = "The turn will not start.")))]
pub(super) async fn withdraw(
    allowed: Allowed<Send>,
    State(api): State<Api>,
    Path((id, turn)): Path<(String, String)>,
    idempotency: Idempotency,
) -> Result<StatusCode, Problem> {
    let id = allowed.conversation(&id)?;
    let fingerprint = extract::fingerprint(&["withdraw", id.as_str(), &turn]);
    let (turn, by) = (TurnId::new(turn), allowed.principal());
    let request = Request::Withdraw(WithdrawRequest { turn, by });
    let keys = idempotency.keys(&allowed, fingerprint);
    match api.conversations.deliver(&allowed, &id, request, keys).await? {
        Reply::Withdrawn => Ok(StatusCode::NO_CONTENT),
        other => Err(unexpected(&other)),
    }
}
