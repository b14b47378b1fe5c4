//! CORS: which other origins' pages a browser lets use the public API.

use std::time::Duration;

use axum::http::{HeaderName, Method, header};
use tower_http::cors::{AllowOrigin, CorsLayer};

use crate::config::Origin;

/// How long a browser may reuse the answer to a preflight; browsers cap it at about this much.
const PREFLIGHT_MAX_AGE: Duration = Duration::from_secs(3_600);

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
    let headers = [
        header::CONTENT_TYPE,
        header::AUTHORIZATION,
        HeaderName::from_static("idempotency-key"),
        HeaderName::from_static("last-event-id"),
    ];
    let cors = CorsLayer::new()
        .allow_origin(origins)
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
        .allow_headers(headers)
        .expose_headers([header::RETRY_AFTER])
        .max_age(PREFLIGHT_MAX_AGE);
    Some(cors)
}
