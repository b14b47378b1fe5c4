//! Callbacks: a tool that answered 202 sends its result (`reference/http-tools.md`).

use abide_actors::external::{CallbackClaims, ExternalRequest};
use abide_actors::request::{Reply, Request, RequestError};
use abide_conversation::command::Proof;
use abide_conversation::message::Ui;
use abide_conversation::{ConversationId, Rejection, Scoped, keep_null};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::Api;
use super::conversations::unexpected;
use super::extract::{Body, Path};
use super::leases::{CallProof, CompleteBody, Completed};
use super::openapi::CallbackPath;
use super::problem::Problem;
use crate::access::Allowed;
use crate::access::permission::Anybody;
use crate::callbacks::CALLBACK_TOKEN;

/// Progress, or the end of the call: exactly one of `progress`, `result` and `error`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Callback)]
pub(super) struct CallbackBody {
    /// Any JSON, for user interfaces; any number of times.
    #[serde(default, deserialize_with = "keep_null")]
    progress: Option<Value>,
    /// The result: any JSON.
    #[serde(default, deserialize_with = "keep_null")]
    result: Option<Value>,
    /// The error that the model reads; what is longer than 8 kB is cut.
    error: Option<String>,
    /// A payload for user interfaces, which the model never sees.
    ui: Option<Ui>,
    /// Ends the turn as halted, with this reason.
    halt: Option<String>,
}

/// Takes the progress or the result of a tool that answered 202.
///
/// The token in the path is all that is needed. The result counts once; a second one, and one after the
/// call's time, is 409 `call-not-open`. One that comes before the answer 202 counts.
#[utoipa::path(post, path = "/v1/callbacks/{token}", operation_id = "call_back", tag = "queues",
    params(CallbackPath),
    request_body(content = CallbackBody, example = json!({"result": {"paid": true}})),
    responses(
        (status = 200, description = "The result is journalled.", body = Completed),
        (status = 204, description = "The progress was published.")))]
pub(super) async fn call_back(
    _: Allowed<Anybody>,
    State(api): State<Api>,
    Path(token): Path<String>,
    body: Body<CallbackBody>,
) -> Result<Response, Problem> {
    let (body, _) = body.into_parts();
    let unknown = || Problem::not_found("callback");
    let claims: Option<CallbackClaims> = api.client_state.verify(CALLBACK_TOKEN, &token).await?;
    let claims = claims.ok_or_else(unknown)?;
    let id: Scoped<ConversationId> = Scoped::new(&claims.tenant, &claims.conversation);
    let proof = Proof::Callback { turn: claims.turn, attempt: claims.attempt };
    let token = CallProof { call: claims.call, proof };
    let CallbackBody { progress, result, error, ui, halt } = body;
    let request = match progress {
        Some(progress) if result.is_none() && error.is_none() => {
            ExternalRequest::Progress { call: token.call, proof: token.proof, progress }
        }
        Some(_) => {
            return Err(Problem::field("progress", "stands beside a result: give one of them"));
        }
        None => {
            let body = CompleteBody { result, error, ui, halt };
            ExternalRequest::Complete(Box::new(body.complete(&token)?))
        }
    };
    let request = Request::External(request);
    match api.conversations.unscoped().deliver(&id, request, Vec::new()).await {
        Ok(Reply::Noted) => Ok(StatusCode::NO_CONTENT.into_response()),
        Ok(Reply::Resolved { seq }) => Ok(Json(Completed::new(seq)).into_response()),
        Ok(other) => Err(unexpected(&other)),
        Err(RequestError::Rejected(Rejection::NotFound)) => {
            Err(Rejection::CallNotOpen("the conversation was deleted".into()).into())
        }
        Err(error) => Err(error.into()),
    }
}
