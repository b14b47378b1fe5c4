//! Serves the web console and `abide.js`, the module for any page, from files built into the program.

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};

use super::Api;
use super::extract;
use super::extract::Path;
use super::problem::Problem;
use crate::access::Allowed;
use crate::access::permission::Anybody;
use crate::access::routes::{DeclaredRouter, GET};

const HTML: &str = "text/html; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
/// The path below `/console/`, the media type and the text of each file.
const FILES: [(&str, &str, &str); 6] = [
    ("", HTML, include_str!("../../console/index.html")),
    ("console.css", CSS, include_str!("../../console/console.css")),
    ("console.js", JS, include_str!("../../console/console.js")),
    ("abide.js", JS, include_str!("../../console/abide.js")),
    ("credential.js", JS, include_str!("../../console/credential.js")),
    ("frames.js", JS, include_str!("../../console/frames.js")),
];
/// The page loads and requests only what this node serves, and no other page may frame it.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) fn router() -> DeclaredRouter<Api> {
    DeclaredRouter::new().route(GET, "/console", redirect).route(GET, "/console/", page).route(
        GET,
        "/console/{file}",
        file_by_name,
    )
}

async fn redirect(_: Allowed<Anybody>) -> Redirect {
    Redirect::permanent("/console/")
}

async fn page(_: Allowed<Anybody>, headers: HeaderMap) -> Response {
    file("", &headers)
}

async fn file_by_name(
    _: Allowed<Anybody>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    file(&name, &headers)
}

/// Serves a file that a browser may cache but must revalidate.
fn file(name: &str, headers: &HeaderMap) -> Response {
    let Some((_, media_type, text)) = FILES.iter().find(|(path, ..)| *path == name) else {
        return Problem::not_found("path").into_response();
    };
    let tag = format!("\"{}\"", extract::fingerprint(&[text]));
    let cached = headers.get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
    // A proxy may have marked the tag as weak.
    let is_current = |cached: &str| cached.trim().trim_start_matches("W/") == tag;
    let response_headers = [
        (header::CONTENT_TYPE, *media_type),
        (header::ETAG, &tag),
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    if cached.is_some_and(|tags| tags.split(',').any(is_current)) {
        (StatusCode::NOT_MODIFIED, response_headers).into_response()
    } else {
        (response_headers, *text).into_response()
    }
}
