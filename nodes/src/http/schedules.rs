//! Schedules: put, read, list, delete, pause, resume and trigger them.

mod document;
mod outcome;

use abide_actors::request::IdempotencyKey;
use abide_conversation::{ConversationId, ScheduleName, Scoped, TurnId};
use abide_registry::schedule_changes;
use abide_registry::schedules::{LastTick, Schedule, SentTick};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use self::document::{NewSchedule, ScheduleDocument};
use super::Api;
use super::creation::reserved;
use super::extract::{self, Body, Idempotency, Path, Query};
use super::openapi::{IdempotencyKeyHeader, SchedulePath};
use super::problem::{Kind, Problem};
use super::repeats::Repeats;
use crate::access::Allowed;
use crate::access::permission::{ManageSchedules, Permission, ReadSchedules};
use crate::schedule_sender::ScheduleSender;

/// How many schedules a tenant may have.
const MAX_SCHEDULES: u64 = 20_000;
/// How often a change is tried that others come before: each of them made progress.
const MAX_ATTEMPTS: usize = 8;

/// Puts a schedule: the first of its name, or in place of the one before.
///
/// Whoever puts it sends its messages. The ticks are counted anew from now.
#[utoipa::path(put, path = "/v1/schedules/{name}", operation_id = "put_schedule",
    tag = "schedules", params(SchedulePath, IdempotencyKeyHeader),
    request_body(content = NewSchedule, example = json!({"agent": "demo", "cron": "0 7 * * mon-fri",
        "timezone": "Europe/Berlin", "text": "What is on today?"})),
    responses((status = 201, description = "The schedule is new.", body = ScheduleDocument),
        (status = 200, description = "The schedule existed.", body = ScheduleDocument)))]
pub(super) async fn put(
    allowed: Allowed<ManageSchedules>,
    State(api): State<Api>,
    Path(name): Path<String>,
    idempotency: Idempotency,
    body: Body<NewSchedule>,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let name = new_name(&allowed, &name)?;
    let (wanted, fingerprint) = body.into_parts();
    let keys = idempotency.keys(&allowed, fingerprint);
    let repeats = repeats_of(&api, &name);
    if let Some(first) = repeats.first::<Value>(&keys).await? {
        return Ok((status_of(&first), Json(first["schedule"].clone())));
    }
    let wanted = wanted.schedule(&api, &allowed, &name).await?;
    match write(&api, &allowed, &name, &wanted).await? {
        Written::Done { schedule, is_new } => {
            let document = json!(ScheduleDocument::from(*schedule));
            let done = json!({"created": is_new, "schedule": document});
            let status = status_of(&done);
            repeats.keep(keys, &done).await?;
            Ok((status, Json(document)))
        }
        Written::Refused(problem) => {
            let (holder, blobs) = (wanted.blob_holder(), wanted.named_blobs());
            schedule_changes::release(&*api.store, &name, &holder, blobs, api.clock.now()).await;
            Err(problem)
        }
    }
}

/// What became of a schedule that was to be written.
enum Written {
    Done { schedule: Box<Schedule>, is_new: bool },
    Refused(Problem),
}

/// Writes a schedule that holds its blobs already. `Err` if nobody knows whether it is written.
async fn write(
    api: &Api,
    allowed: &Allowed<ManageSchedules>,
    name: &Scoped<ScheduleName>,
    wanted: &Schedule,
) -> Result<Written, Problem> {
    for _ in 0..MAX_ATTEMPTS {
        let before = api.store.schedule(name).await?;
        let next = match &before {
            Some(before) => match require_own(allowed, before) {
                Ok(()) => wanted.clone().in_place_of(before),
                Err(refusal) => return Ok(Written::Refused(refusal)),
            },
            None if api.store.schedule_count(&allowed.tenant()).await? >= MAX_SCHEDULES => {
                let rule = format!("the tenant has {MAX_SCHEDULES} schedules");
                return Ok(Written::Refused(Problem::new(Kind::Overloaded, rule)));
            }
            None => wanted.clone(),
        };
        let (store, now) = (&*api.store, api.clock.now());
        if schedule_changes::replace(store, name, before.as_ref(), Some(&next), now).await? {
            let is_new = before.is_none();
            return Ok(Written::Done { schedule: Box::new(next), is_new });
        }
    }
    Ok(Written::Refused(contended()))
}

fn status_of(done: &Value) -> StatusCode {
    if done["created"] == true { StatusCode::CREATED } else { StatusCode::OK }
}

/// Reads a schedule, with its next tick and what became of the last one.
#[utoipa::path(get, path = "/v1/schedules/{name}", operation_id = "get_schedule",
    tag = "schedules", params(SchedulePath),
    responses((status = 200, description = "The schedule.", body = ScheduleDocument)))]
pub(super) async fn get(
    allowed: Allowed<ReadSchedules>,
    State(api): State<Api>,
    Path(name): Path<String>,
) -> Result<Json<ScheduleDocument>, Problem> {
    let (id, schedule) = existing(&api, &allowed, &name).await?;
    let outcome = outcome::of_last(&api, &id, &schedule).await?;
    Ok(Json(ScheduleDocument::from(schedule).with_outcome(outcome)))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// The size of the page.
    #[param(default = 50, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The cursor of the previous page.
    cursor: Option<String>,
}

/// A page of schedules, in the order of their names.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SchedulePage {
    schedules: Vec<ScheduleDocument>,
    /// The cursor of the next page; null at the end. A page before the end may be short.
    #[schema(required)]
    cursor: Option<String>,
}

/// Lists the schedules that the caller may see, without the outcomes of their last ticks.
#[utoipa::path(get, path = "/v1/schedules", operation_id = "list_schedules", tag = "schedules",
    params(ListQuery),
    responses((status = 200, description = "A page of schedules.", body = SchedulePage)))]
pub(super) async fn list(
    allowed: Allowed<ReadSchedules>,
    State(api): State<Api>,
    Query(query): Query<ListQuery>,
) -> Result<Json<SchedulePage>, Problem> {
    let limit = extract::limit(query.limit, 50, 1_000)?;
    let page = api.store.schedules(&allowed.tenant(), query.cursor.as_deref(), limit).await?;
    let visible = page.items.into_iter().filter(|schedule| may_see(&allowed, schedule));
    let schedules = visible.map(ScheduleDocument::from).collect();
    Ok(Json(SchedulePage { schedules, cursor: page.cursor }))
}

/// Deletes a schedule. The conversations of its ticks stay.
#[utoipa::path(delete, path = "/v1/schedules/{name}", operation_id = "delete_schedule",
    tag = "schedules", params(SchedulePath, IdempotencyKeyHeader),
    responses((status = 204, description = "The schedule is gone.")))]
pub(super) async fn delete(
    allowed: Allowed<ManageSchedules>,
    State(api): State<Api>,
    Path(name): Path<String>,
    idempotency: Idempotency,
) -> Result<StatusCode, Problem> {
    let keys = idempotency.keys(&allowed, extract::fingerprint(&["delete", &name]));
    if let Some(name) = ScheduleName::parse(&name)
        && repeats_of(&api, &allowed.scoped(&name)).first::<Value>(&keys).await?.is_some()
    {
        return Ok(StatusCode::NO_CONTENT);
    }
    for _ in 0..MAX_ATTEMPTS {
        let (id, schedule) = existing(&api, &allowed, &name).await?;
        let (store, now) = (&*api.store, api.clock.now());
        if schedule_changes::replace(store, &id, Some(&schedule), None, now).await? {
            repeats_of(&api, &id).keep(keys, &Value::Null).await?;
            return Ok(StatusCode::NO_CONTENT);
        }
    }
    Err(contended())
}

/// The repeats of requests about a schedule.
fn repeats_of<'a>(api: &'a Api, id: &Scoped<ScheduleName>) -> Repeats<'a> {
    Repeats::new(api, id.tenant(), format!("schedule:{}", id.local()))
}

/// Pauses a schedule: it has no ticks until it is resumed.
#[utoipa::path(post, path = "/v1/schedules/{name}/pause", operation_id = "pause_schedule",
    tag = "schedules", params(SchedulePath, IdempotencyKeyHeader),
    responses((status = 200, description = "The schedule.", body = ScheduleDocument)))]
pub(super) async fn pause(
    allowed: Allowed<ManageSchedules>,
    State(api): State<Api>,
    Path(name): Path<String>,
) -> Result<Json<ScheduleDocument>, Problem> {
    change(&api, &allowed, &name, |schedule| schedule.paused = true).await
}

/// Resumes a schedule with the first tick after now: those of the pause do not happen.
#[utoipa::path(post, path = "/v1/schedules/{name}/resume", operation_id = "resume_schedule",
    tag = "schedules", params(SchedulePath, IdempotencyKeyHeader),
    responses((status = 200, description = "The schedule.", body = ScheduleDocument)))]
pub(super) async fn resume(
    allowed: Allowed<ManageSchedules>,
    State(api): State<Api>,
    Path(name): Path<String>,
) -> Result<Json<ScheduleDocument>, Problem> {
    let now = api.clock.now();
    let begin = |schedule: &mut Schedule| {
        if schedule.paused {
            schedule.paused = false;
            schedule.next_at = schedule.tick_after(now);
        }
    };
    change(&api, &allowed, &name, begin).await
}

/// The turn that a schedule was triggered to begin.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Triggered {
    conversation_id: ConversationId,
    turn_id: TurnId,
}

/// Sends the message of a schedule at once, whatever its ticks are, and also while it is paused.
#[utoipa::path(post, path = "/v1/schedules/{name}/trigger", operation_id = "trigger_schedule",
    tag = "schedules", params(SchedulePath, IdempotencyKeyHeader),
    responses((status = 202, description = "The message is journalled.", body = Triggered)))]
pub(super) async fn trigger(
    allowed: Allowed<ManageSchedules>,
    State(api): State<Api>,
    Path(name): Path<String>,
    idempotency: Idempotency,
) -> Result<(StatusCode, Json<Triggered>), Problem> {
    let fingerprint = extract::fingerprint(&["trigger", &name]);
    let keys = idempotency.keys(&allowed, fingerprint);
    let (id, schedule) = existing(&api, &allowed, &name).await?;
    let tick = first_tick(&api, &id, &keys).await?;
    let sent = sender(&api).deliver(&id, &schedule, &tick).await?;
    note_trigger(&api, &id, tick, sent.clone()).await;
    let triggered = Triggered { conversation_id: sent.conversation_id, turn_id: sent.turn_id };
    Ok((StatusCode::ACCEPTED, Json(triggered)))
}

/// Notes in the schedule that its message was sent. The message counts without it, too: a schedule
/// that has gone, or a store that is away, is no error.
async fn note_trigger(api: &Api, id: &Scoped<ScheduleName>, tick: String, sent: SentTick) {
    let last = LastTick { at: api.clock.now(), tick, sent: Some(sent), error: None };
    for _ in 0..MAX_ATTEMPTS {
        let Ok(Some(schedule)) = api.store.schedule(id).await else { return };
        let known = schedule.version;
        let version = known.saturating_add(1);
        let noted = Schedule { version, last: Some(last.clone()), ..schedule };
        match api.store.replace_schedule(id, Some(known), Some(&noted)).await {
            Ok(false) => {}
            Ok(true) | Err(_) => return,
        }
    }
}

fn sender(api: &Api) -> ScheduleSender {
    let conversations = api.conversations.unscoped().clone();
    ScheduleSender { conversations, access: api.access.clone() }
}

/// The tick of the first request with these keys.
///
/// It has an id instead of a number: a schedule that is put under the name of one that was deleted
/// knows nothing of its ticks, and must not take its own for theirs.
async fn first_tick(
    api: &Api,
    id: &Scoped<ScheduleName>,
    keys: &[IdempotencyKey],
) -> Result<String, Problem> {
    let tick = api.clock.id("manual");
    let reserved = reserved(api, id.sibling(&ConversationId::new(tick)), keys).await?;
    Ok(reserved.local().as_str().to_owned())
}

async fn change(
    api: &Api,
    allowed: &Allowed<ManageSchedules>,
    name: &str,
    change: impl Fn(&mut Schedule),
) -> Result<Json<ScheduleDocument>, Problem> {
    for _ in 0..MAX_ATTEMPTS {
        let (id, mut schedule) = existing(api, allowed, name).await?;
        let known = schedule.version;
        change(&mut schedule);
        schedule.version = known.saturating_add(1);
        if api.store.replace_schedule(&id, Some(known), Some(&schedule)).await? {
            return Ok(Json(ScheduleDocument::from(schedule)));
        }
    }
    Err(contended())
}

/// A schedule that the caller may see.
async fn existing<P: Permission>(
    api: &Api,
    allowed: &Allowed<P>,
    name: &str,
) -> Result<(Scoped<ScheduleName>, Schedule), Problem> {
    let missing = || Problem::not_found("schedule");
    let name = ScheduleName::parse(name).ok_or_else(missing)?;
    let id = allowed.scoped(&name);
    let schedule = api.store.schedule(&id).await?;
    let visible = schedule.filter(|schedule| may_see(allowed, schedule));
    visible.map(|schedule| (id, schedule)).ok_or_else(missing)
}

fn new_name(
    allowed: &Allowed<ManageSchedules>,
    name: &str,
) -> Result<Scoped<ScheduleName>, Problem> {
    let rule = "must be 1 to 64 of a-z 0-9 _ -, beginning with a letter or a digit";
    let name = ScheduleName::parse(name).ok_or_else(|| Problem::field("name", rule))?;
    Ok(allowed.scoped(&name))
}

/// A schedule belongs to whoever put it, and to the tenant's backends.
fn may_see<P: Permission>(allowed: &Allowed<P>, schedule: &Schedule) -> bool {
    use abide_conversation::identity::Role::{Auditor, Backend};
    let owner = schedule.identity.as_ref().map(|identity| identity.acting().sub.as_str());
    let is_own = owner.is_some() && owner == allowed.subject();
    is_own || allowed.has_role(&[Backend, Auditor])
}

/// Another's schedule is not replaced.
fn require_own(allowed: &Allowed<ManageSchedules>, before: &Schedule) -> Result<(), Problem> {
    if may_see(allowed, before) { Ok(()) } else { Err(Problem::forbidden(ManageSchedules::NEEDS)) }
}

fn contended() -> Problem {
    Problem::new(Kind::Unavailable, "the schedule keeps changing; try again")
}
