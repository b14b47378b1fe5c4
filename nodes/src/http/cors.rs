//! CORS: which other origins' pages a browser lets use the public API.

use std::time::Duration;

use axum::http::{HeaderName, Method};
use tower_http::cors::{AllowOrigin, CorsLayer};

use crate::config::Origin;

/// How long a browser may reuse the answer to a preflight; browsers cap it at about this much.
const PREFLIGHT_MAX_AGE: Duration = Duration::from_secs(3_600);

/// What pages may send: their own requests, and those of the protocols that existing clients speak.
const REQUEST_HEADERS: [&str; 9] = [
    "authorization",
    "content-type",
    "idempotency-key",
    "last-event-id",
    "abide-conversation",
    "mcp-protocol-version",
    "mcp-method",
    "mcp-name",
    "a2a-version",
];
/// What pages may read of a response, in addition to what browsers always show them.
const RESPONSE_HEADERS: [&str; 2] = ["abide-conversation", "retry-after"];

/// The layer that allows these origins; `None` when only the node's own pages may use the API.
pub(super) fn layer(allowed: &[Origin]) -> Option<CorsLayer> {
    let exact = |origin: &Origin| match origin {
        Origin::Any => None,
        Origin::Exact(origin) => Some(origin.clone()),
    };
    let origins = match allowed.iter().map(exact).collect::<Option<Vec<_>>>() {
        Some(origins) if origins.is_empty() => return None,
        Some(origins) => AllowOrigin::list(origins),
        None => AllowOrigin::any(),
    };
    let cors = CorsLayer::new()
        .allow_origin(origins)
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
        .allow_headers(REQUEST_HEADERS.map(HeaderName::from_static))
        .expose_headers(RESPONSE_HEADERS.map(HeaderName::from_static))
        .max_age(PREFLIGHT_MAX_AGE);
    Some(cors)
}
