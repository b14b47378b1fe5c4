//! Messages for later: when they are delivered, which wait, and withdrawing one.

use abide_actors::request::{IdempotencyKey, Reply, Request, ScheduleRequest, UnscheduleRequest};
use abide_conversation::command::IfBusy;
use abide_conversation::event::MessageScheduled;
use abide_conversation::message::Message;
use abide_conversation::{ConversationId, Principal, ScheduledId, Scoped, Timestamp};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use jiff::SignedDuration;
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;
use super::conversations::unexpected;
use super::extract;
use super::extract::{Idempotency, NoParameters, Path, Query};
use super::messages::{self, NewMessage, Sent};
use super::openapi::{ConversationPath, IdempotencyKeyHeader, ScheduledPath};
use super::problem::Problem;
use crate::access::Allowed;
use crate::access::permission::{Read, Send};

/// How far ahead a message may be scheduled: ten years.
const MAX_AHEAD: SignedDuration = SignedDuration::from_hours(24 * 3_652);

/// When a message is to be delivered, if not now. A time that has passed is now.
pub(super) fn delivery_time(
    deliver_in: Option<&str>,
    deliver_at: Option<Timestamp>,
    now: Timestamp,
) -> Result<Option<Timestamp>, Problem> {
    let (field, at) = match (deliver_in, deliver_at) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => {
            return Err(Problem::field("deliver_in", "must be absent beside deliver_at"));
        }
        (Some(text), None) => {
            let delay = abide_actors::agent::duration(text)
                .map_err(|why| Problem::field("deliver_in", why))?;
            ("deliver_in", now.checked_add(delay).unwrap_or(Timestamp::MAX))
        }
        (None, Some(at)) => ("deliver_at", at),
    };
    let is_near = now.checked_add(MAX_AHEAD).is_ok_and(|last| at <= last);
    if is_near { Ok(Some(at)) } else { Err(Problem::field(field, "must be within ten years")) }
}

/// A message that is to be delivered later.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ScheduledReply {
    conversation_id: ConversationId,
    scheduled_id: ScheduledId,
    deliver_at: Timestamp,
}

/// What became of a message. A repeat gets the first answer, whether or not both have a time.
pub(super) enum Accepted {
    Scheduled(ScheduledReply),
    Sent(Sent),
}

/// Sends a message to its conversation, or schedules it there if it has a time.
pub(super) async fn deliver(
    api: &Api,
    allowed: &Allowed<Send>,
    id: &Scoped<ConversationId>,
    (message, deliver_at): (NewMessage, Option<Timestamp>),
    mut keys: Vec<IdempotencyKey>,
) -> Result<Accepted, Problem> {
    let message = messages::compose(api, allowed, id, message, &mut keys).await?;
    let request = match deliver_at {
        None => Request::Send(message),
        Some(deliver_at) => Request::Schedule(Box::new(ScheduleRequest { deliver_at, message })),
    };
    match api.conversations.deliver(allowed, id, request, keys).await? {
        Reply::Scheduled { conversation_id, scheduled_id, deliver_at } => {
            let reply = ScheduledReply { conversation_id, scheduled_id, deliver_at };
            Ok(Accepted::Scheduled(reply))
        }
        other => messages::sent(other).map(Accepted::Sent),
    }
}

/// The messages that wait for their time.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ScheduledList {
    scheduled: Vec<ScheduledMessage>,
}

/// A message that waits for its time.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ScheduledMessage {
    scheduled_id: ScheduledId,
    deliver_at: Timestamp,
    message: Message,
    /// The `message_id` that the client gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<String>,
    /// Who scheduled it.
    principal: Principal,
    if_busy: messages::BusyPolicy,
}

impl From<&MessageScheduled> for ScheduledMessage {
    fn from(scheduled: &MessageScheduled) -> Self {
        let MessageScheduled { scheduled_id, deliver_at, user_msg, if_busy, .. } = scheduled;
        Self {
            scheduled_id: scheduled_id.clone(),
            deliver_at: *deliver_at,
            message: user_msg.message.clone(),
            message_id: user_msg.message_id.clone(),
            principal: user_msg.principal.clone(),
            if_busy: match if_busy {
                IfBusy::Reject => messages::BusyPolicy::Reject,
                IfBusy::Queue => messages::BusyPolicy::Queue,
                IfBusy::Interrupt => messages::BusyPolicy::Interrupt,
                IfBusy::Steer => messages::BusyPolicy::Steer,
            },
        }
    }
}

/// Lists the messages of a conversation that wait for their time, the earliest first.
#[utoipa::path(get, path = "/v1/conversations/{id}/scheduled", operation_id = "list_scheduled",
    tag = "messages", params(ConversationPath),
    responses((status = 200, description = "The messages that wait for their time.",
        body = ScheduledList)))]
pub(super) async fn list(
    allowed: Allowed<Read>,
    State(api): State<Api>,
    Path(id): Path<String>,
    _: Query<NoParameters>,
) -> Result<Json<ScheduledList>, Problem> {
    let id = allowed.conversation(&id)?;
    let state = api.conversations.state(&allowed, &id).await?;
    let waiting = state.scheduled.waiting();
    let scheduled = waiting.into_iter().map(|it| ScheduledMessage::from(&**it)).collect();
    Ok(Json(ScheduledList { scheduled }))
}

/// Withdraws a scheduled message.
///
/// The problem `already-delivered` answers if it is too late; a message that was withdrawn before, or
/// delivered before the last hundred, is not found.
#[utoipa::path(delete, path = "/v1/conversations/{id}/scheduled/{scheduled_id}",
    operation_id = "withdraw_scheduled", tag = "messages",
    params(ScheduledPath, IdempotencyKeyHeader),
    responses((status = 204, description = "The message will not be delivered.")))]
pub(super) async fn withdraw(
    allowed: Allowed<Send>,
    State(api): State<Api>,
    Path((id, scheduled)): Path<(String, String)>,
    idempotency: Idempotency,
) -> Result<StatusCode, Problem> {
    let id = allowed.conversation(&id)?;
    let fingerprint = extract::fingerprint(&["unschedule", id.as_str(), &scheduled]);
    let request = Request::Unschedule(UnscheduleRequest {
        scheduled_id: ScheduledId::new(scheduled),
        by: allowed.principal(),
    });
    let keys = idempotency.keys(&allowed, fingerprint);
    match api.conversations.deliver(&allowed, &id, request, keys).await? {
        Reply::Unscheduled => Ok(StatusCode::NO_CONTENT),
        other => Err(unexpected(&other)),
    }
}
