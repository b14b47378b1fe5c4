//! Leases: what a worker does with a call that it has (`reference/queues.md`).

use abide_actors::external::{ExternalRequest, LeaseToken};
use abide_actors::request::{IdempotencyKey, Reply, Request, RequestError};
use abide_conversation::command::{CompleteCall, ExtendLease, Proof};
use abide_conversation::message::{ErrorType, Outcome, Ui};
use abide_conversation::{Rejection, Seq, Timestamp, keep_null};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::Api;
use super::conversations::unexpected;
use super::extract::{Body, Idempotency, Path};
use super::openapi::{IdempotencyKeyHeader, LeasePath};
use super::problem::Problem;
use super::queues::lease_ms;
use crate::access::Allowed;
use crate::access::permission::WorkQueues;

/// For how long a worker needs a call.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = LeaseExtension)]
pub(super) struct ExtendBody {
    /// A duration from 1 s to 1 h, counted from now.
    #[schema(default = "60s", example = "60s")]
    lease: Option<String>,
}

/// Until when the worker has the call.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LeaseExtended)]
pub(super) struct Extended {
    lease_until: Timestamp,
}

/// How far a call is.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CallProgress)]
pub(super) struct ProgressBody {
    /// Any JSON, for user interfaces.
    progress: Value,
}

/// The end of a call; exactly one of `result` and `error`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CallCompletion)]
pub(super) struct CompleteBody {
    /// The result: any JSON, which satisfies the tool's `result_schema`.
    #[serde(default, deserialize_with = "keep_null")]
    pub(super) result: Option<Value>,
    /// The error that the model reads; what is longer than 8 kB is cut.
    pub(super) error: Option<String>,
    /// A payload for user interfaces, which the model never sees.
    pub(super) ui: Option<Ui>,
    /// Ends the turn as halted, with this reason.
    pub(super) halt: Option<String>,
}

/// The result is journalled.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Completed {
    /// The event that has the result.
    #[schema(value_type = u64)]
    seq: Seq,
}

impl CompleteBody {
    /// The outcome, and what comes with it.
    pub(super) fn complete(self, token: &CallProof) -> Result<CompleteCall, Problem> {
        let Self { result, error, ui, halt } = self;
        let outcome = match (result, error) {
            (Some(result), None) => Outcome::Ok(result),
            (None, Some(error)) if error.trim().is_empty() => {
                return Err(Problem::field("error", "is empty"));
            }
            (None, Some(error)) => Outcome::Err(error, ErrorType::ToolError),
            (Some(_), Some(_)) => {
                return Err(Problem::field("error", "stands beside result: give one of them"));
            }
            (None, None) => return Err(Problem::field("result", "or error is missing")),
        };
        let CallProof { call, proof } = token.clone();
        Ok(CompleteCall { call, proof, outcome, ui, halt })
    }
}

/// A call, and why a program may complete it.
#[derive(Clone, Debug)]
pub(super) struct CallProof {
    pub(super) call: abide_conversation::CallId,
    pub(super) proof: Proof,
}

/// Keeps a call for longer.
#[utoipa::path(post, path = "/v1/leases/{lease_id}/extend", operation_id = "extend_lease",
    tag = "queues", params(LeasePath),
    request_body(content = ExtendBody, example = json!({"lease": "60s"})),
    responses((status = 200, description = "Until when the worker has the call.", body = Extended)))]
pub(super) async fn extend(
    allowed: Allowed<WorkQueues>,
    State(api): State<Api>,
    Path(lease): Path<String>,
    body: Body<ExtendBody>,
) -> Result<Json<Extended>, Problem> {
    let (body, _) = body.into_parts();
    let token = token(&lease)?;
    let (call, for_ms) = (token.call.clone(), lease_ms(body.lease)?);
    let extend = ExternalRequest::Extend(ExtendLease { call, lease: token.lease.clone(), for_ms });
    match deliver(&api, &allowed, &token, extend, Vec::new()).await? {
        Reply::LeaseExtended { until, queue, worker } => {
            api.queues.note_worker(allowed.scoped(&queue), worker);
            Ok(Json(Extended { lease_until: until }))
        }
        other => Err(unexpected(&other)),
    }
}

/// Tells those who watch the conversation how far the call is. It is not journalled.
#[utoipa::path(post, path = "/v1/leases/{lease_id}/progress", operation_id = "report_progress",
    tag = "queues", params(LeasePath),
    request_body(content = ProgressBody, example = json!({"progress": {"sent": 3, "of": 10}})),
    responses((status = 204, description = "The progress was published.")))]
pub(super) async fn progress(
    allowed: Allowed<WorkQueues>,
    State(api): State<Api>,
    Path(lease): Path<String>,
    body: Body<ProgressBody>,
) -> Result<StatusCode, Problem> {
    let (ProgressBody { progress }, _) = body.into_parts();
    let token = token(&lease)?;
    let (call, proof) = (token.call.clone(), Proof::Lease(token.lease.clone()));
    let request = ExternalRequest::Progress { call, proof, progress };
    match deliver(&api, &allowed, &token, request, Vec::new()).await? {
        Reply::Noted => Ok(StatusCode::NO_CONTENT),
        other => Err(unexpected(&other)),
    }
}

/// Ends a call with its one result.
///
/// A result that does not fit is refused, and the worker keeps the call. A lease that ran out, and a
/// second completion, are 409 `lease-lost`; a repeat with the same `Idempotency-Key` gets the first
/// answer.
#[utoipa::path(post, path = "/v1/leases/{lease_id}/complete", operation_id = "complete_call",
    tag = "queues", params(LeasePath, IdempotencyKeyHeader),
    request_body(content = CompleteBody, example = json!({"result": {"sent": true}})),
    responses((status = 200, description = "The result is journalled.", body = Completed)))]
pub(super) async fn complete(
    allowed: Allowed<WorkQueues>,
    State(api): State<Api>,
    Path(lease): Path<String>,
    idempotency: Idempotency,
    body: Body<CompleteBody>,
) -> Result<Json<Completed>, Problem> {
    let keys = idempotency.keys(&allowed, body.fingerprint.clone());
    let (body, _) = body.into_parts();
    let token = token(&lease)?;
    let proof = Proof::Lease(token.lease.clone());
    let complete = body.complete(&CallProof { call: token.call.clone(), proof })?;
    let request = ExternalRequest::Complete(Box::new(complete));
    match deliver(&api, &allowed, &token, request, keys).await? {
        Reply::Resolved { seq } => Ok(Json(Completed { seq })),
        other => Err(unexpected(&other)),
    }
}

impl Completed {
    pub(super) fn new(seq: Seq) -> Self {
        Self { seq }
    }
}

fn token(lease: &str) -> Result<LeaseToken, Problem> {
    LeaseToken::decode(lease).ok_or_else(lost)
}

/// Asks the conversation of a lease, of the caller's own tenant: the lease is the proof.
async fn deliver(
    api: &Api,
    allowed: &Allowed<WorkQueues>,
    token: &LeaseToken,
    request: ExternalRequest,
    keys: Vec<IdempotencyKey>,
) -> Result<Reply, Problem> {
    let id = allowed.scoped(&token.conversation);
    let request = Request::External(request);
    match api.conversations.unscoped().deliver(&id, request, keys).await {
        Err(RequestError::Rejected(Rejection::NotFound)) => Err(lost()),
        outcome => Ok(outcome?),
    }
}

fn lost() -> Problem {
    Rejection::LeaseLost("the worker does not have the call, or not any more".into()).into()
}
