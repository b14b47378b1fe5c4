//! A suspension is to wait longer.

use abide_actors::request::{ExtendRequest, Reply, Request};
use abide_conversation::command::Extension;
use abide_conversation::{CallId, Seq, Timestamp};
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Api;
use super::conversations::unexpected;
use super::extract::{Body, Idempotency, Path};
use super::openapi::{CallPath, IdempotencyKeyHeader, PrincipalHeader};
use super::problem::Problem;
use crate::access::Allowed;
use crate::access::permission::Answer;

/// How long a suspension is to wait: exactly one of `for` and `until`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ExtendRequest)]
pub(super) struct ExtendBody {
    /// A duration, counted from the present expiry.
    #[schema(example = "1h")]
    r#for: Option<String>,
    /// The new expiry, after the present one.
    until: Option<Timestamp>,
    /// The number of the suspension, from 1; the open one if absent.
    #[schema(minimum = 1)]
    suspension: Option<u32>,
}

impl ExtendBody {
    fn extension(&self) -> Result<Extension, Problem> {
        match (&self.r#for, self.until) {
            (Some(text), None) => {
                let duration = abide_actors::agent::duration(text);
                let duration = duration.map_err(|why| Problem::field("for", why))?;
                Ok(Extension::For(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
            }
            (None, Some(until)) => Ok(Extension::Until(until)),
            (None, None) | (Some(_), Some(_)) => {
                Err(Problem::field("for", "exactly one of for and until is required"))
            }
        }
    }
}

/// The expiry of a suspension from now on.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Extended {
    expires_at: Timestamp,
    /// The seq of the event `suspension_extended`.
    #[schema(value_type = u64)]
    seq: Seq,
}

/// Lets a call that waits for an answer wait longer, at most 365 days in all.
///
/// Whoever may answer a call may do so. The problem `call-not-open` answers for one that is not open, also
/// if it has just expired.
#[utoipa::path(post, path = "/v1/conversations/{id}/calls/{call_id}/extend",
    operation_id = "extend_call", tag = "calls",
    params(CallPath, IdempotencyKeyHeader, PrincipalHeader),
    request_body(content = ExtendBody, example = json!({"for": "1h"})),
    responses((status = 200, description = "The call waits longer.", body = Extended)))]
pub(super) async fn extend(
    allowed: Allowed<Answer>,
    State(api): State<Api>,
    Path((id, call)): Path<(String, String)>,
    idempotency: Idempotency,
    body: Body<ExtendBody>,
) -> Result<Json<Extended>, Problem> {
    let id = allowed.conversation(&id)?;
    let (body, fingerprint) = body.into_parts();
    let request = Request::Extend(ExtendRequest {
        call: CallId::new(call),
        suspension: body.suspension,
        extension: body.extension()?,
        by: allowed.principal(),
    });
    let keys = idempotency.keys(&allowed, fingerprint);
    match api.conversations.deliver(&allowed, &id, request, keys).await? {
        Reply::Extended { expires_at, seq } => Ok(Json(Extended { expires_at, seq })),
        other => Err(unexpected(&other)),
    }
}
