//! One call of a tool: sent once, cancelled when nobody waits for it any more.

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
use super::elicitation::Wanted;
use super::result;
use super::server::McpToolRef;
use super::session::McpSession;
use crate::backoff;
use crate::tools::limits::{LONGEST_ERROR, SHOWN_TEXT, cut, one_line};
use crate::tools::native::ToolReturn;
use crate::tools::runner::Run;

/// How often a server may want a call again without asking anybody, as one does that is busy.
const MOST_ROUNDS: u32 = 8;
/// How long it is given before the first repeat; twice as long before each further one.
const AGAIN: Duration = Duration::from_millis(100);

/// Calls the tool. Takes as long as the server does; dropping the future cancels the request.
pub(super) async fn call(
    link: &Arc<McpSession>,
    pick: &McpToolRef,
    run: &Run,
    report: &(impl Fn(Value) + Send + Sync),
) -> ToolReturn {
    let server = &link.server.name;
    let Ok(connection) = link.connection().await else {
        return ToolReturn::error(format!("the MCP server {server} cannot be reached"));
    };
    match rounds(&connection, params(pick, run), report).await {
        Ok(Answered::Result(result)) => result::returned(result, pick.output.as_ref()),
        Ok(Answered::Asks(asks)) => ToolReturn::asking(asks),
        Ok(Answered::Wrong(why)) => ToolReturn::error(why),
        Err(ServiceError::McpError(error)) => ToolReturn::error(cut(&error.message, LONGEST_ERROR)),
        Err(error) => {
            // Sent or not: whether it ran is not known, so it is not sent again.
            link.forget(&connection).await;
            let why = one_line(&error.to_string(), SHOWN_TEXT);
            tracing::warn!(server, tool = pick.tool, said = why, "a call of an MCP server broke");
            ToolReturn::error(format!("the connection to the MCP server {server} broke"))
        }
    }
}

fn params(pick: &McpToolRef, run: &Run) -> CallToolRequestParams {
    let mut params = CallToolRequestParams::new(pick.tool.clone());
    params.arguments = run.grant.args().as_object().cloned();
    params.meta = Some(meta(run));
    if let Some((responses, state)) = run.input.as_ref().and_then(elicitation::responses) {
        params.input_responses = Some(responses);
        params.request_state = state;
    }
    params
}

/// The same key for every attempt, as HTTP tools have it.
fn meta(run: &Run) -> RequestMetaObject {
    let mut meta = MetaObject::new();
    let key = format!("{}/{}", run.conversation, run.call);
    meta.0.insert("abide/idempotency-key".to_owned(), key.into());
    meta.0.insert("abide/attempt".to_owned(), json!(run.attempt));
    RequestMetaObject(meta)
}

/// Repeats the call for as long as the server wants nothing but that.
async fn rounds(
    connection: &Connection,
    mut params: CallToolRequestParams,
    report: &(impl Fn(Value) + Send + Sync),
) -> Result<Answered, ServiceError> {
    let wrong = |why: &str| Ok(Answered::Wrong(why.to_owned()));
    for round in 0..MOST_ROUNDS {
        let asked = match exchange(connection, params.clone(), report).await? {
            ServerResult::CallToolResult(result) => return Ok(Answered::Result(result)),
            ServerResult::InputRequiredResult(asked) => asked,
            _ => return wrong("the MCP server's answer is no result"),
        };
        match elicitation::wanted(asked) {
            Ok(Wanted::Person(asks)) => return Ok(Answered::Asks(asks)),
            Ok(Wanted::Again(state)) => {
                (params.input_responses, params.request_state) = (None, state);
                let wait = AGAIN.saturating_mul(1 << round);
                backoff::wait("the MCP server wants the call again", wait).await;
            }
            Err(why) => return Ok(Answered::Wrong(why)),
        }
    }
    wrong("the MCP server wanted the same call again and again")
}

async fn exchange(
    connection: &Connection,
    params: CallToolRequestParams,
    report: &(impl Fn(Value) + Send + Sync),
) -> Result<ServerResult, ServiceError> {
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
    let peer = connection.peer();
    let sent = peer.send_request_with_option(request, PeerRequestOptions::no_options()).await?;
    let mut abandoned = Abandoned { peer, id: Some(sent.id.clone()) };
    let progress = connection.progress(sent.progress_token.clone());
    let answered = answered(sent, progress, report).await;
    abandoned.id = None;
    answered
}

async fn answered(
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

/// What a call came to.
enum Answered {
    Result(CallToolResult),
    Asks(InputRequest),
    /// With something that is neither.
    Wrong(String),
}

/// Tells the server when the call is dropped before its answer came.
struct Abandoned<'a> {
    peer: &'a Peer<RoleClient>,
    id: Option<RequestId>,
}

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        let peer = self.peer.clone();
        // Whoever drops it cannot wait; a connection that is gone needs no telling.
        tokio::spawn(async move {
            let reason = Some("nobody waits for it any more".to_owned());
            let _ = peer.notify_cancelled(CancelledNotificationParam::new(Some(id), reason)).await;
        });
    }
}
