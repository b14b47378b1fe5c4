//! One call of a tool: sent once, and cancelled at the server when the future is dropped.

use std::sync::Arc;
use std::time::Duration;

use abide_conversation::elicitation::InputRequest;
use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotificationParam,
    ClientRequest, MetaObject, RequestId, RequestMetaObject, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle, ServiceError};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::connection::Connection;
use super::elicitation;
use super::elicitation::NextStep;
use super::result;
use super::session::McpSession;
use crate::attempt_failure::FailureKind;
use crate::backoff;
use crate::definition::McpToolRef;
use crate::limits::{MAX_ERROR_BYTES, MAX_EXCERPT_BYTES, cut, one_line};
use crate::tools::Run;
use crate::tools::ToolReturn;

/// How often a server may request the same call again without a question to a person, as a busy
/// server does.
const MAX_ROUNDS: u32 = 8;
/// The delay before the first repeat; it doubles with each further one.
const REPEAT_DELAY: Duration = Duration::from_millis(100);

/// Calls the tool, without a time limit of its own; dropping the future cancels the request.
pub(super) async fn call(
    session: &Arc<McpSession>,
    tool_ref: &McpToolRef,
    run: &Run,
    report: &(impl Fn(Value) + Send + Sync),
) -> ToolReturn {
    let server = &session.server.name;
    let Ok(connection) = session.connection().await else {
        let message = format!("the MCP server {server} cannot be reached");
        return ToolReturn::failed_attempt(message, Some(FailureKind::NoConnection.into()));
    };
    match call_until_result(&connection, params(tool_ref, run), report).await {
        Ok(CallReply::Result(result)) => {
            result::to_tool_return(result, tool_ref.output.as_ref()).await
        }
        Ok(CallReply::InputRequired(request)) => ToolReturn::input_required(request),
        Ok(CallReply::Invalid(why)) => ToolReturn::error(why),
        Err(ServiceError::McpError(error)) => {
            ToolReturn::error(cut(&error.message, MAX_ERROR_BYTES))
        }
        Err(error) => {
            // Whether the call ran is unknown, so it is not sent again.
            session.discard(&connection).await;
            let why = one_line(&error.to_string(), MAX_EXCERPT_BYTES);
            tracing::warn!(
                server,
                tool = tool_ref.tool,
                content = why,
                "MCP call failed: connection broke"
            );
            let message = format!("the connection to the MCP server {server} broke");
            ToolReturn::failed_attempt(message, Some(FailureKind::ConnectionBroke.into()))
        }
    }
}

fn params(tool_ref: &McpToolRef, run: &Run) -> CallToolRequestParams {
    let mut params = CallToolRequestParams::new(tool_ref.tool.clone());
    params.arguments = run.grant.args().as_object().cloned();
    params.meta = Some(meta(run));
    if let Some((responses, state)) = run.input.as_ref().and_then(elicitation::responses) {
        params.input_responses = Some(responses);
        params.request_state = state;
    }
    params
}

/// The metadata with an idempotency key, which is the same for every attempt, as with HTTP tools.
fn meta(run: &Run) -> RequestMetaObject {
    let mut meta = MetaObject::new();
    meta.0.insert("abide/idempotency-key".to_owned(), run.idempotency_key().into());
    meta.0.insert("abide/attempt".to_owned(), json!(run.attempt));
    RequestMetaObject(meta)
}

/// Sends the call, and repeats it while the server requests only that.
async fn call_until_result(
    connection: &Connection,
    mut params: CallToolRequestParams,
    report: &(impl Fn(Value) + Send + Sync),
) -> Result<CallReply, ServiceError> {
    let wrong = |why: &str| Ok(CallReply::Invalid(why.to_owned()));
    for round in 0..MAX_ROUNDS {
        let required = match send(connection, params.clone(), report).await? {
            ServerResult::CallToolResult(result) => return Ok(CallReply::Result(result)),
            ServerResult::InputRequiredResult(required) => required,
            _ => return wrong("the MCP server's answer is not a tool result"),
        };
        // It compiles the schemas of forms, which may take long.
        let next = tokio::task::spawn_blocking(move || elicitation::next_step(required)).await;
        match next.unwrap_or_else(|_| Err("the MCP server's request is invalid".to_owned())) {
            Ok(NextStep::AskPerson(request)) => return Ok(CallReply::InputRequired(request)),
            Ok(NextStep::Repeat(state)) => {
                (params.input_responses, params.request_state) = (None, state);
                let wait = REPEAT_DELAY.saturating_mul(1 << round);
                backoff::wait("MCP server requested the call again", wait).await;
            }
            Err(why) => return Ok(CallReply::Invalid(why)),
        }
    }
    wrong("the MCP server requested the same call too often")
}

async fn send(
    connection: &Connection,
    params: CallToolRequestParams,
    report: &(impl Fn(Value) + Send + Sync),
) -> Result<ServerResult, ServiceError> {
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    let peer = connection.peer();
    let sent = peer.send_request_with_option(request, PeerRequestOptions::no_options()).await?;
    let mut abandoned = CancelOnDrop { peer, id: Some(sent.id.clone()) };
    let progress = connection.progress(sent.progress_token.clone());
    let answered = await_reply(sent, progress, report).await;
    abandoned.id = None;
    answered
}

async fn await_reply(
    mut sent: RequestHandle<RoleClient>,
    mut progress: mpsc::Receiver<Value>,
    report: &(impl Fn(Value) + Send + Sync),
) -> Result<ServerResult, ServiceError> {
    loop {
        tokio::select! {
            biased;
            Some(payload) = progress.recv() => report(payload),
            answer = &mut sent.rx => {
                return answer.unwrap_or(Err(ServiceError::TransportClosed));
            }
        }
    }
}

/// The server's reply to a call.
enum CallReply {
    Result(CallToolResult),
    InputRequired(InputRequest),
    /// Something else, which is an error.
    Invalid(String),
}

/// Cancels the request at the server when the call is dropped before its answer.
struct CancelOnDrop<'a> {
    peer: &'a Peer<RoleClient>,
    id: Option<RequestId>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let peer = self.peer.clone();
        // A drop cannot wait, and a closed connection needs no cancellation.
        tokio::spawn(async move {
            let reason = Some("the caller stopped waiting".to_owned());
            let _ = peer.notify_cancelled(CancelledNotificationParam::new(Some(id), reason)).await;
        });
    }
}
