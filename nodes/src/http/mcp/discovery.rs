//! Where an MCP client that has no token gets one: RFC 9728.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::{Value, json};

use crate::access::Allowed;
use crate::access::permission::Anybody;
use crate::access::routes::{DeclaredRouter, GET};
use crate::http::Api;
use crate::http::extract::Path;
use crate::problem::Problem;

/// The path of the document about a resource, before the resource's own path.
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";
/// The path of the server.
const SERVER: &str = "/mcp";
/// How a proxy says by which scheme it was reached.
const FORWARDED_PROTO: &str = "x-forwarded-proto";

pub(in crate::http) fn router() -> DeclaredRouter<Api> {
    DeclaredRouter::new()
        .route(GET, "/.well-known/oauth-protected-resource", of_node)
        .route(GET, "/.well-known/oauth-protected-resource/mcp", of_server)
        .route(GET, "/.well-known/oauth-protected-resource/mcp/{name}", of_agent)
}

async fn of_node(
    _: Allowed<Anybody>,
    State(api): State<Api>,
    headers: HeaderMap,
) -> Result<Json<Value>, Problem> {
    document(&api, &headers, "")
}

async fn of_server(
    _: Allowed<Anybody>,
    State(api): State<Api>,
    headers: HeaderMap,
) -> Result<Json<Value>, Problem> {
    document(&api, &headers, SERVER)
}

async fn of_agent(
    _: Allowed<Anybody>,
    State(api): State<Api>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Value>, Problem> {
    // Whether there is such an agent is for those who may know.
    let name = abide_conversation::AgentName::parse(&name);
    let name = name.ok_or_else(|| Problem::not_found("path"))?;
    document(&api, &headers, &format!("{SERVER}/{name}"))
}

/// The document about a resource of this path. A node that authenticates nobody has none.
fn document(api: &Api, headers: &HeaderMap, path: &str) -> Result<Json<Value>, Problem> {
    let missing = || Problem::not_found("path");
    let issuers = api.access.issuers().ok_or_else(missing)?;
    let origin = origin(headers).ok_or_else(missing)?;
    Ok(Json(json!({"resource": format!("{origin}{path}"), "authorization_servers": issuers,
        "bearer_methods_supported": ["header"], "resource_name": "Abide"})))
}

/// Where clients reach the node, as this request says it.
fn origin(headers: &HeaderMap) -> Option<String> {
    let host = headers.get(header::HOST)?.to_str().ok()?;
    let forwarded = headers.get(FORWARDED_PROTO).and_then(|value| value.to_str().ok());
    let scheme = if forwarded == Some("https") { "https" } else { "http" };
    Some(format!("{scheme}://{host}"))
}

/// What a client of the MCP server is told if it lacks a credential; `None` for any other request.
pub(in crate::http) fn challenge(request: &Request) -> Option<HeaderValue> {
    let path = request.uri().path();
    let rest = path.strip_prefix(SERVER)?;
    if !rest.is_empty() && !rest.starts_with('/') {
        return None;
    }
    let origin = origin(request.headers())?;
    let metadata = format!("{origin}{WELL_KNOWN}{path}");
    let text = format!("Bearer error=\"invalid_token\", resource_metadata=\"{metadata}\"");
    // A quote would end the parameter.
    if metadata.contains(['"', '\\']) { None } else { HeaderValue::from_str(&text).ok() }
}

/// Tells a client that was refused where the metadata is.
pub(in crate::http) fn point_out(response: &mut Response, challenge: Option<HeaderValue>) {
    if let (Some(challenge), StatusCode::UNAUTHORIZED) = (challenge, response.status()) {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
}
