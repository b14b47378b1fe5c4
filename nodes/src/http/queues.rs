//! Queues: a worker takes calls (`reference/queues.md`).

use std::time::Duration;

use abide_actors::agent;
use abide_actors::external::Work;
use abide_conversation::identity::Role;
use abide_conversation::ids::QueueName;
use abide_registry::queues::LeaseRequest;
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Api;
use super::extract::{Body, Path};
use super::openapi::QueuePath;
use super::problem::{Kind, Problem};
use crate::access::Allowed;
use crate::access::permission::WorkQueues;

/// The longest wait for a call, and the wait if the worker does not say.
const MAX_WAIT: Duration = Duration::from_secs(60);
const DEFAULT_WAIT: Duration = Duration::from_secs(30);
/// The bounds of a lease, and the lease if the worker does not say.
const MIN_LEASE: Duration = Duration::from_secs(1);
const MAX_LEASE: Duration = Duration::from_secs(3_600);
const DEFAULT_LEASE: Duration = Duration::from_secs(60);
/// How many calls one request takes at most.
const MAX_CALLS: u32 = 100;
const MAX_TOOLS: usize = 256;
const MAX_NAME_CHARS: usize = 128;
/// How many workers wait at one node; each has a connection.
pub(crate) const MAX_WAITING_WORKERS: usize = 2_048;

/// What a worker asks for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = LeaseRequest)]
pub(super) struct LeaseBody {
    /// Only calls of these tools; absent: of any.
    #[schema(min_items = 1, max_items = 256)]
    tools: Option<Vec<String>>,
    /// How many calls at most; there may be fewer, or none.
    #[schema(default = 1, minimum = 1, maximum = 100)]
    max: Option<u32>,
    /// A duration of at most 60 s: how long to wait for the first call.
    #[schema(default = "30s", example = "30s")]
    wait: Option<String>,
    /// A duration from 1 s to 1 h: how long the worker has each call, unless it extends the lease.
    #[schema(default = "60s", example = "60s")]
    lease: Option<String>,
    /// The worker's own name for itself, for people; the caller's subject if absent.
    #[schema(min_length = 1, max_length = 128, example = "mailer-1")]
    worker: Option<String>,
}

/// The calls that the worker has now.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Leased {
    work: Vec<Work>,
}

/// Takes calls from a queue, and waits for the first one.
///
/// Each call is the worker's until its lease runs out. It is then another worker's, as the next attempt
/// under the same idempotency key. A queue that nobody uses has no calls.
#[utoipa::path(post, path = "/v1/queues/{queue}/lease", operation_id = "lease_calls", tag = "queues",
    params(QueuePath),
    request_body(content = LeaseBody, example = json!({
        "tools": ["send_mail"], "max": 10, "wait": "30s", "lease": "60s", "worker": "mailer-1"})),
    responses((status = 200, description = "The calls; none if none came in time.", body = Leased)))]
pub(super) async fn lease(
    allowed: Allowed<WorkQueues>,
    State(api): State<Api>,
    Path(queue): Path<String>,
    body: Body<LeaseBody>,
) -> Result<Json<Leased>, Problem> {
    let (body, _) = body.into_parts();
    let queue = QueueName::parse(&queue).ok_or_else(|| Problem::not_found("queue"))?;
    check_queue(&allowed, &queue)?;
    let request = LeaseRequest {
        queue: allowed.scoped(&queue),
        tools: checked_tools(body.tools)?,
        max: checked_max(body.max)?,
        wait: duration("wait", body.wait, DEFAULT_WAIT, (Duration::ZERO, MAX_WAIT))?,
        lease: duration("lease", body.lease, DEFAULT_LEASE, (MIN_LEASE, MAX_LEASE))?,
        worker: checked_worker(&allowed, body.worker)?,
    };
    let Ok(_waiting) = api.waiting_workers.clone().try_acquire_owned() else {
        return Err(Problem::new(Kind::Overloaded, "too many workers wait at this node"));
    };
    Ok(Json(Leased { work: api.queues.lease(request).await? }))
}

/// A worker's key is for some queues; a backend takes from all.
fn check_queue(allowed: &Allowed<WorkQueues>, queue: &QueueName) -> Result<(), Problem> {
    let Some(session) = allowed.session() else { return Ok(()) };
    let is_own = session.credential().queues.contains(queue);
    if is_own || allowed.has_role(&[Role::Backend]) {
        Ok(())
    } else {
        Err(Problem::forbidden(&format!("queues: {queue}")))
    }
}

fn checked_tools(tools: Option<Vec<String>>) -> Result<Option<Vec<String>>, Problem> {
    let Some(tools) = tools else { return Ok(None) };
    if !(1..=MAX_TOOLS).contains(&tools.len()) {
        return Err(Problem::field("tools", format!("must be 1 to {MAX_TOOLS} names")));
    }
    let is_name = |name: &String| {
        let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        (1..=64).contains(&name.len()) && name.chars().all(legal)
    };
    match tools.iter().position(|name| !is_name(name)) {
        Some(at) => Err(Problem::field(&format!("tools[{at}]"), "must be [A-Za-z0-9_-]{1,64}")),
        None => Ok(Some(tools)),
    }
}

fn checked_max(max: Option<u32>) -> Result<usize, Problem> {
    let max = max.unwrap_or(1);
    if !(1..=MAX_CALLS).contains(&max) {
        return Err(Problem::field("max", format!("must be 1 to {MAX_CALLS}")));
    }
    Ok(usize::try_from(max).unwrap_or(usize::MAX))
}

fn checked_worker(
    allowed: &Allowed<WorkQueues>,
    worker: Option<String>,
) -> Result<String, Problem> {
    let worker = worker
        .unwrap_or_else(|| allowed.principal().as_str().chars().take(MAX_NAME_CHARS).collect());
    let length = worker.chars().count();
    if !(1..=MAX_NAME_CHARS).contains(&length) || worker.chars().any(char::is_control) {
        let rule = format!("must be 1 to {MAX_NAME_CHARS} characters without control characters");
        return Err(Problem::field("worker", rule));
    }
    Ok(worker)
}

/// A duration of a body within these bounds.
fn duration(
    field: &str,
    given: Option<String>,
    default: Duration,
    (least, most): (Duration, Duration),
) -> Result<Duration, Problem> {
    let Some(given) = given else { return Ok(default) };
    let wrong = || {
        let (least, most) = (least.as_secs(), most.as_secs());
        Problem::field(field, format!("must be a duration from {least}s to {most}s"))
    };
    // The parser of definitions refuses zero.
    if least.is_zero() && given.strip_suffix('s').is_some_and(|zero| zero == "0") {
        return Ok(Duration::ZERO);
    }
    let duration = agent::duration(&given).map_err(|_| wrong())?;
    if (least..=most).contains(&duration) { Ok(duration) } else { Err(wrong()) }
}

/// A lease of a body, as milliseconds.
pub(super) fn lease_ms(lease: Option<String>) -> Result<u64, Problem> {
    let lease = duration("lease", lease, DEFAULT_LEASE, (MIN_LEASE, MAX_LEASE))?;
    Ok(u64::try_from(lease.as_millis()).unwrap_or(u64::MAX))
}
