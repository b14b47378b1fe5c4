//! One call of a tool: sent once, cancelled when nobody waits for it any more.

use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotificationParam, ClientRequest, MetaObject,
    RequestId, RequestMetaObject, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle, ServiceError};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::connection::Connection;
use super::link::Link;
use super::reach::Pick;
use super::result;
use crate::tools::bounds::{LONGEST_ERROR, SHOWN_TEXT, cut, one_line};
use crate::tools::native::Returned;
use crate::tools::run::Run;

/// Calls the tool. Takes as long as the server does; dropping the future cancels the request.
pub(super) async fn call(
    link: &Arc<Link>,
    pick: &Pick,
    run: &Run,
    report: &(impl Fn(Value) + Send + Sync),
) -> Returned {
    let server = &link.server.name;
    let Ok(connection) = link.connection().await else {
        return Returned::error(format!("the MCP server {server} cannot be reached"));
    };
    match exchange(&connection, params(pick, run), report).await {
        Ok(result) => returned(result, pick),
        Err(ServiceError::McpError(error)) => Returned::error(cut(&error.message, LONGEST_ERROR)),
        Err(error) => {
            // Sent or not: whether it ran is not known, so it is not sent again.
            link.forget(&connection).await;
            let why = one_line(&error.to_string(), SHOWN_TEXT);
            tracing::warn!(server, tool = pick.tool, why, "a call of an MCP server broke");
            Returned::error(format!("the connection to the MCP server {server} broke"))
        }
    }
}

fn params(pick: &Pick, run: &Run) -> CallToolRequestParams {
    let mut params = CallToolRequestParams::new(pick.tool.clone());
    params.arguments = run.grant.args().as_object().cloned();
    params.meta = Some(meta(run));
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

fn returned(result: ServerResult, pick: &Pick) -> Returned {
    match result {
        ServerResult::CallToolResult(result) => result::returned(result, pick.output.as_ref()),
        // Listed one by one they would be the library's next ones, too.
        _ => Returned::error("the MCP server answered with something that is no result"),
    }
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
