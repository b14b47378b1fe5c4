//! The web console and `abide.js`, the module that any page may use: files built into the program.

use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;

use super::Api;
use super::extract;
use super::extract::Path;
use super::problem::Problem;

const HTML: &str = "text/html; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
/// Path below `/console/`, media type, text.
const FILES: [(&str, &str, &str); 4] = [
    ("", HTML, include_str!("../../console/index.html")),
    ("console.css", CSS, include_str!("../../console/console.css")),
    ("console.js", JS, include_str!("../../console/console.js")),
    ("abide.js", JS, include_str!("../../console/abide.js")),
];
/// The page loads and asks what comes from here, and nobody shows it in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) fn router() -> Router<Api> {
    Router::new()
        .route("/console", get(async || Redirect::permanent("/console/")))
        .route("/console/", get(async |headers: HeaderMap| file("", &headers)))
        .route("/console/{file}", get(named))
}

async fn named(Path(name): Path<String>, headers: HeaderMap) -> Response {
    file(&name, &headers)
}

/// A browser may keep a file, and asks each time whether it is still the same.
fn file(name: &str, asked: &HeaderMap) -> Response {
    let found = FILES.iter().find(|(path, ..)| *path == name);
    let Some((_, media, text)) = found else {
        return Problem::not_found("such path").into_response();
    };
    let tag = format!("\"{}\"", extract::fingerprint(&[text]));
    let known = asked.get(header::IF_NONE_MATCH).and_then(|known| known.to_str().ok());
    // What stands in between may have marked a tag as weak.
    let is_known = |known: &str| known.trim().trim_start_matches("W/") == tag;
    let headers = [
        (header::CONTENT_TYPE, *media),
        (header::ETAG, &tag),
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    match known.is_some_and(|known| known.split(',').any(is_known)) {
        true => (StatusCode::NOT_MODIFIED, headers).into_response(),
        false => (headers, *text).into_response(),
    }
}
