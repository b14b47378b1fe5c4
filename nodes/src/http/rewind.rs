//! A conversation goes on from an earlier event, or begins its last turn anew.

use abide_actors::request::{IdempotencyKey, RegenerateRequest, Reply, Request, RewindRequest};
use abide_conversation::branch::{BranchTip, NewestFirst, RewindPoint};
use abide_conversation::event::{Event, EventData, Steered, UserMsg};
use abide_conversation::{ConversationId, Scoped, Seq, State as ConversationState, TurnId, replay};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Api;
use super::conversations::unexpected;
use super::extract::{self, Body, Idempotency, OptionalBody, Path};
use super::messages::{self, Sent};
use super::openapi::{ConversationPath, IdempotencyKeyHeader, PrincipalHeader};
use super::problem::{Kind, Problem};
use crate::access::Allowed;
use crate::access::permission::Send;

/// How many events are read from the store at a time.
const EVENTS_PER_READ: usize = 200;

/// The event after which the conversation goes on.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RewindRequest)]
pub(super) struct RewindBody {
    /// The seq of the last event that still counts: before a turn, or at its end.
    #[schema(value_type = u64, minimum = 1)]
    to_seq: Seq,
}

/// A conversation that goes on from an earlier event.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RewindReply {
    /// The seq of the event `rewound`.
    #[schema(value_type = u64)]
    seq: Seq,
}

/// Goes on from an earlier event: the events in between count no longer.
///
/// The journal keeps them. Prompts, lists of messages, todos, the phase and the key-value state are those
/// of the branch that counts from then on; usage goes on. What was approved in the conversation holds no
/// more. The problem `turn-in-flight` answers while anything is under way or waits.
#[utoipa::path(post, path = "/v1/conversations/{id}/rewind", operation_id = "rewind_conversation",
    tag = "conversations", params(ConversationPath, IdempotencyKeyHeader, PrincipalHeader),
    request_body(content = RewindBody, example = json!({"to_seq": 7})),
    responses((status = 200, description = "The conversation goes on from there.",
        body = RewindReply)))]
pub(super) async fn rewind(
    allowed: Allowed<Send>,
    State(api): State<Api>,
    Path(id): Path<String>,
    idempotency: Idempotency,
    body: Body<RewindBody>,
) -> Result<Json<RewindReply>, Problem> {
    let id = allowed.conversation(&id)?;
    let (RewindBody { to_seq }, fingerprint) = body.into_parts();
    let to_seq = extract::position("to_seq", to_seq)?;
    if to_seq == Seq::ZERO {
        return Err(Problem::field("to_seq", "must be at least 1"));
    }
    let state = api.conversations.state(&allowed, &id).await?;
    if to_seq > state.seq {
        return Err(Problem::field("to_seq", "is beyond the last event"));
    }
    let point = point_at(&api, &id, ("to_seq", to_seq)).await?;
    let request = RewindRequest { to_seq, point, by: allowed.principal() };
    let (request, keys) =
        (Request::Rewind(Box::new(request)), idempotency.keys(&allowed, fingerprint));
    match api.conversations.deliver(&allowed, &id, request, keys).await? {
        Reply::Rewound { seq } => Ok(Json(RewindReply { seq })),
        other => Err(unexpected(&other)),
    }
}

/// Which turn begins anew.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RegenerateRequest)]
pub(super) struct RegenerateBody {
    /// The last turn if absent. The turns after it count no longer, either.
    turn_id: Option<String>,
}

/// A turn that begins anew.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RegenerateReply {
    /// The new turn.
    turn_id: TurnId,
}

/// Begins the last turn anew, with its message, as a turn of the caller's.
///
/// The old turn counts no longer, as after a rewind to the event before it. Messages that have steered it
/// are repeated, and read with its first message. A body is optional.
#[utoipa::path(post, path = "/v1/conversations/{id}/regenerate", operation_id = "regenerate_turn",
    tag = "messages", params(ConversationPath, IdempotencyKeyHeader, PrincipalHeader),
    request_body = Option<RegenerateBody>,
    responses((status = 202, description = "The turn has begun anew.", body = RegenerateReply)))]
pub(super) async fn regenerate(
    allowed: Allowed<Send>,
    State(api): State<Api>,
    Path(id): Path<String>,
    idempotency: Idempotency,
    OptionalBody(RegenerateBody { turn_id }): OptionalBody<RegenerateBody>,
) -> Result<(StatusCode, Json<RegenerateReply>), Problem> {
    let id = allowed.conversation(&id)?;
    let which = turn_id.as_deref().unwrap_or_default();
    let fingerprint = extract::fingerprint(&["regenerate", id.as_str(), which]);
    let keys = idempotency.keys(&allowed, fingerprint);
    let which = turn_id.map(|id| ("turn_id", id));
    let Sent { turn_id, .. } = begin_anew(&api, &allowed, &id, which, keys).await?;
    Ok((StatusCode::ACCEPTED, Json(RegenerateReply { turn_id })))
}

/// Begins a turn anew: the last one, or the one with this id, which may also be the client's id of its
/// message, and is given in this field.
pub(super) async fn begin_anew(
    api: &Api,
    allowed: &Allowed<Send>,
    id: &Scoped<ConversationId>,
    which: Option<(&str, String)>,
    keys: Vec<IdempotencyKey>,
) -> Result<Sent, Problem> {
    let state = api.conversations.state(allowed, id).await?;
    let tip = BranchTip::of(&state);
    let field = which.as_ref().map_or("turn_id", |(field, _)| *field);
    let which = which.as_ref().map(|(_, id)| id.as_str());
    let found = Turn::find(api, id, state.seq, which).await?;
    let Turn { message_seq, started, message, steering } =
        found.ok_or_else(|| Problem::field(field, "names no turn that could begin anew"))?;
    // The message of a turn that was queued is part of a turn before it.
    let is_own = message_seq.next() == started;
    let before = if is_own { message_seq } else { started }.saturating_sub(1);
    let point = point_at(api, id, (field, before)).await?;
    api.access.admit_turn(&id.tenant()).await?;
    let rewind = RewindRequest { to_seq: before, point, by: allowed.principal() };
    let request = RegenerateRequest { rewind, tip, message, steering };
    let request = Request::Regenerate(Box::new(request));
    messages::sent(api.conversations.deliver(allowed, id, request, keys).await?)
}

/// A turn of the branch that counts.
struct Turn {
    started: Seq,
    message_seq: Seq,
    message: UserMsg,
    /// What was added to it, in its order.
    steering: Vec<Steered>,
}

impl Turn {
    /// The newest turn, or the one with this id.
    async fn find(
        api: &Api,
        id: &Scoped<ConversationId>,
        last: Seq,
        which: Option<&str>,
    ) -> Result<Option<Self>, Problem> {
        // The turns whose messages are further back.
        let mut starts: Vec<(TurnId, Seq)> = Vec::new();
        let mut steered: Vec<(TurnId, Steered)> = Vec::new();
        let (mut reader, mut before) = (NewestFirst::default(), last.next());
        loop {
            let events = api.store.events_before(id, before, EVENTS_PER_READ).await?;
            let Some(oldest) = events.last().map(|event| event.seq) else { return Ok(None) };
            for event in events {
                if !reader.counts(&event) {
                    continue;
                }
                let Event { seq, turn_id: Some(turn), data, .. } = event else { continue };
                match data {
                    EventData::TurnStarted(_) => starts.push((turn, seq)),
                    EventData::Steered(added) => steered.push((turn, added)),
                    EventData::UserMsg(message) => {
                        let Some(at) = starts.iter().position(|(started, _)| *started == turn)
                        else {
                            continue;
                        };
                        let (_, started) = starts.swap_remove(at);
                        let is_it = |which: &str| {
                            turn.as_str() == which
                                || message.message.id.as_str() == which
                                || message.message_id.as_deref() == Some(which)
                        };
                        let is_newest = starts.iter().all(|(_, other)| *other < started);
                        if which.map_or(is_newest, is_it) {
                            let own = steered.into_iter().rev().filter(|(of, _)| *of == turn);
                            let steering = own.map(|(_, steered)| steered).collect();
                            return Ok(Some(Self { started, message_seq: seq, message, steering }));
                        }
                        steered.retain(|(of, _)| *of != turn);
                    }
                    _ => {}
                }
            }
            before = reader.before(oldest);
        }
    }
}

/// What the journal results in up to an event, of which this field tells.
async fn point_at(
    api: &Api,
    id: &Scoped<ConversationId>,
    (field, to_seq): (&str, Seq),
) -> Result<RewindPoint, Problem> {
    let mut state = ConversationState::default();
    while state.seq < to_seq {
        let left = usize::try_from(to_seq.since(state.seq)).unwrap_or(usize::MAX);
        let events = api.store.events(id, state.seq, left.min(EVENTS_PER_READ)).await?;
        if events.is_empty() {
            return Err(Problem::not_found("conversation"));
        }
        state = replay(state, &events);
    }
    if state.has_unknown_events {
        let why = "the conversation has events of a newer version; try again at another node";
        return Err(Problem::new(Kind::Unavailable, why));
    }
    RewindPoint::at(&state).map_err(|error| Problem::field(field, error.to_string()))
}
