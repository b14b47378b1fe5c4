//! Agents over A2A: `reference/a2a.md`.

mod answers;
pub(super) mod card;
mod sending;
mod task_response;
mod tasks;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::Api;
use super::conversations::agent_name;
use super::extract::{Body, Idempotency, Path};
use super::openapi::{AgentPath, IdempotencyKeyHeader, PrincipalHeader};
use super::problem::{self, Problem};
use crate::access::Allowed;
use crate::access::permission::Read;
use crate::headers::single_header;
use crate::protocols::a2a::rpc::{self, Call, Method, RpcError};

/// The header with the version of the protocol.
const VERSION_HEADER: &str = "A2A-Version";

/// Calls a method of A2A 1.0: `SendMessage`, `SendStreamingMessage`, `GetTask`, `CancelTask` or
/// `SubscribeToTask`.
///
/// A context is a conversation, and a task is a turn. The header `A2A-Version` must be 1.0. Errors that
/// the protocol has a code for have the status 200.
#[utoipa::path(post, path = "/a2a/{name}", operation_id = "a2a_call", tag = "protocols",
    params(AgentPath, IdempotencyKeyHeader, PrincipalHeader),
    request_body(content = Object, example = json!({"jsonrpc": "2.0", "id": 1,
        "method": "SendMessage", "params": {"message": {"messageId": "m-1",
            "role": "ROLE_USER", "parts": [{"text": "Hi"}]}}})),
    responses((status = 200, description =
        "A response of JSON-RPC, or a stream of them: <https://a2a-protocol.org/latest/specification/>.",
        content((Object = "application/json"), (String = "text/event-stream")))))]
pub(super) async fn call(
    allowed: Allowed<Read>,
    State(api): State<Api>,
    Path(agent): Path<String>,
    headers: HeaderMap,
    idempotency: Idempotency,
    body: Body<Value>,
) -> Response {
    let (body, fingerprint) = body.into_parts();
    let respond = async {
        check_version(&headers)?;
        let call = Call::parse(&body)?;
        let agent = agent_name(&agent)?;
        let request = Request {
            api: &api,
            allowed: &allowed,
            agent: agent.as_str(),
            call: &call,
            idempotency,
            fingerprint,
        };
        request.respond().await
    };
    let response = respond.await.unwrap_or_else(Problem::into_response);
    problem::a2a::translate(response, &rpc::call_id(&body))
}

/// Checks the version of a request. A header that names none is one of another version, too.
fn check_version(headers: &HeaderMap) -> Result<(), Problem> {
    let unsupported = |why: &str| Problem::a2a(RpcError::VersionNotSupported, why);
    let version = single_header(headers, VERSION_HEADER);
    let version = version.map_err(|wrong| unsupported(wrong.detail()))?;
    rpc::check_version(version.as_deref()).map_err(|wrong| unsupported(&wrong.text()))
}

/// A call, and who makes it.
struct Request<'a> {
    api: &'a Api,
    allowed: &'a Allowed<Read>,
    agent: &'a str,
    call: &'a Call,
    idempotency: Idempotency,
    fingerprint: String,
}

impl Request<'_> {
    async fn respond(self) -> Result<Response, Problem> {
        match self.call.method {
            Method::SendMessage => self.send(false).await,
            Method::SendStreamingMessage => self.send(true).await,
            Method::GetTask => self.get_task().await,
            Method::CancelTask => self.cancel_task().await,
            Method::SubscribeToTask => self.subscribe().await,
            Method::PushNotificationConfig => Err(push_not_supported()),
            Method::ListTasks => {
                let why = "ListTasks: is not supported";
                Err(Problem::a2a(RpcError::UnsupportedOperation, why))
            }
            Method::GetExtendedAgentCard => {
                let why = "the agent has one card";
                Err(Problem::a2a(RpcError::ExtendedCardNotConfigured, why))
            }
        }
    }
}

fn push_not_supported() -> Problem {
    let why = "push notifications are not supported: poll GetTask, or subscribe to the task";
    Problem::a2a(RpcError::PushNotificationNotSupported, why)
}
