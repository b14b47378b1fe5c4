//! An MCP server whose tools are the agents: `reference/mcp-server.md`.

mod agent_call;
mod answers;
mod call_state;
mod call_turn;
mod caller;
pub(super) mod discovery;
mod follow;
mod reading;
mod server;
mod tasks;

use std::sync::Arc;
use std::time::Duration;

use abide_conversation::AgentName;
use axum::body::{self, Body as ResponseBody};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::Value;

use super::Api;
use super::extract::{Body, Idempotency, Path};
use super::openapi::{AgentPath, IdempotencyKeyHeader, PrincipalHeader};
use super::problem::{Kind, Problem};
use crate::access::Allowed;
use crate::access::permission::{CallTools, Send};
use caller::{Caller, Tools};
use server::McpServer;

/// What the headers of the protocol begin with.
const HEADER_PREFIX: &str = "mcp-";
/// After this long without a message, a comment line keeps proxies from closing the connection.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// The longest text of the protocol's library about a message that it cannot read.
const MAX_REFUSAL_BYTES: usize = 16 << 10;

/// Takes a message of an MCP client: all agents are tools.
///
/// Each request stands for itself; there are no sessions. `tools/call` answers with events when the
/// client asked for progress.
#[utoipa::path(post, path = "/mcp", operation_id = "mcp_call_tool", tag = "protocols",
    params(IdempotencyKeyHeader, PrincipalHeader),
    request_body(content = Object, example = json!({"jsonrpc": "2.0", "id": 1,
        "method": "tools/call", "params": {"name": "demo", "arguments": {"message": "hello"}}})),
    responses(
        (status = 200, description = "A message: <https://modelcontextprotocol.io/specification>.",
            content((Object = "application/json"), (String = "text/event-stream"))),
        (status = 202, description = "A notification was taken.")))]
pub(super) async fn call_tool(
    allowed: Allowed<CallTools>,
    State(api): State<Api>,
    idempotency: Idempotency,
    headers: HeaderMap,
    body: Body<Value>,
) -> Result<Response, Problem> {
    serve(Caller { api, allowed, tools: Tools::All, idempotency }, &headers, body).await
}

/// Takes a message of an MCP client: this agent is a tool.
#[utoipa::path(post, path = "/mcp/{name}", operation_id = "mcp_call_agent", tag = "protocols",
    params(AgentPath, IdempotencyKeyHeader, PrincipalHeader),
    request_body(content = Object, example = json!({"jsonrpc": "2.0", "id": 1,
        "method": "tools/call", "params": {"name": "demo", "arguments": {"message": "hello"}}})),
    responses(
        (status = 200, description = "A message: <https://modelcontextprotocol.io/specification>.",
            content((Object = "application/json"), (String = "text/event-stream"))),
        (status = 202, description = "A notification was taken.")))]
pub(super) async fn call_agent(
    allowed: Allowed<CallTools>,
    State(api): State<Api>,
    Path(name): Path<String>,
    idempotency: Idempotency,
    headers: HeaderMap,
    body: Body<Value>,
) -> Result<Response, Problem> {
    let missing = || Problem::not_found("agent");
    let agent = AgentName::parse(&name).ok_or_else(missing)?;
    // Whoever may not call it learns nothing of it.
    if allowed.with::<Send>().is_ok() {
        api.store.agent(&allowed.scoped(&agent)).await?.ok_or_else(missing)?;
    }
    serve(Caller { api, allowed, tools: Tools::Of(agent), idempotency }, &headers, body).await
}

/// Answers one message, by the protocol's library.
async fn serve(
    caller: Caller,
    headers: &HeaderMap,
    body: Body<Value>,
) -> Result<Response, Problem> {
    let (message, _) = body.into_parts();
    let is_call = message["method"] == "tools/call";
    let config = StreamableHttpServerConfig::default()
        // The guard has looked at the host and the origin.
        .disable_allowed_hosts()
        // A session would be the state of one node.
        .with_legacy_session_mode(false)
        .with_json_response(!is_call)
        .with_sse_retry(None)
        .with_sse_keep_alive(Some(KEEP_ALIVE_INTERVAL));
    let sessions = Arc::new(NeverSessionManager::default());
    let server = McpServer::new(caller);
    let service = StreamableHttpService::new(move || Ok(server.clone()), sessions, config);
    let mut request = Request::new(ResponseBody::from(message.to_string()));
    *request.method_mut() = axum::http::Method::POST;
    let own = headers.iter().filter(|(name, _)| name.as_str().starts_with(HEADER_PREFIX));
    for (name, value) in own {
        request.headers_mut().append(name, value.clone());
    }
    for (name, value) in [
        // The library demands one, and need not know which.
        (header::HOST, "localhost"),
        (header::CONTENT_TYPE, "application/json"),
        (header::ACCEPT, "application/json, text/event-stream"),
    ] {
        request.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    readable(service.handle(request).await.map(ResponseBody::new)).await
}

/// The response, unless it is a refusal without the form of the protocol.
async fn readable(response: Response) -> Result<Response, Problem> {
    let status = response.status();
    let json = HeaderValue::from_static("application/json");
    let is_message = response.headers().get(header::CONTENT_TYPE) == Some(&json);
    if is_message || !(status.is_client_error() || status.is_server_error()) {
        return Ok(response);
    }
    let text = body::to_bytes(response.into_body(), MAX_REFUSAL_BYTES).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    Err(if status.is_server_error() {
        Problem::new(Kind::Internal, text)
    } else {
        Problem::unreadable(text)
    })
}
