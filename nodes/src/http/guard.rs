//! Checks every request of both APIs before its handler, and answers for a handler that panics.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use abide_conversation::message::blocks::essence;
use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use futures::FutureExt;

use super::extract;
use super::host::AllowedHosts;
use super::problem::{Kind, Problem};
use super::transfer;

/// The largest sum of a request's URL and headers.
const MAX_HEADER_BYTES: usize = 32 << 10;

/// Adds the guard to a router that has all its paths.
pub(crate) fn guarded<S: Clone + Send + Sync + 'static>(
    router: Router<S>,
    allowed_hosts: AllowedHosts,
) -> Router<S> {
    router.layer(middleware::from_fn(move |request, next: Next| {
        let allowed_hosts = allowed_hosts.clone();
        async move { guard(&allowed_hosts, request, |request| next.run(request)).await }
    }))
}

/// Handles a request unless it is refused; a panic becomes a response.
pub(crate) async fn guard<F: Future<Output = Response>>(
    allowed_hosts: &AllowedHosts,
    request: Request,
    handle: impl FnOnce(Request) -> F,
) -> Response {
    if let Some(problem) = refusal(&request).or_else(|| allowed_hosts.refusal(&request)) {
        return problem.into_response();
    }
    // The state that a panic leaves half changed belongs to the request and is dropped with it.
    let handled = AssertUnwindSafe(async { handle(request).await }).catch_unwind().await;
    handled.unwrap_or_else(|panic| panicked(&*panic))
}

/// Why a request is refused: its headers are too large, or a page of another origin could have made a
/// browser send it without a preflight.
///
/// Such a request changes something, has an `Origin`, and is not declared as JSON or YAML; it need not
/// have a body. A blob may have any type: where a form could send that type, an `Idempotency-Key`
/// proves that there was a preflight. An import has the type of an export, which no form can send.
fn refusal(request: &Request) -> Option<Problem> {
    let (headers, uri) = (request.headers(), request.uri());
    let header_bytes = headers.iter().map(|(name, value)| name.as_str().len() + value.len());
    let host_bytes = uri.authority().map_or(0, |host| host.as_str().len());
    let path_bytes = uri.path_and_query().map_or(0, |path| path.as_str().len());
    if header_bytes.sum::<usize>() + host_bytes + path_bytes > MAX_HEADER_BYTES {
        return Some(Problem::headers_too_large());
    }
    if request.method().is_safe() || !headers.contains_key(header::ORIGIN) {
        return None;
    }
    if !headers.contains_key(header::CONTENT_TYPE) {
        let detail = "Content-Type: is required in a request with an Origin";
        return Some(Problem::unreadable(detail));
    }
    // Its form is of the page that the link itself leads to; who knows the link may answer.
    if uri.path().starts_with("/v1/replies/") {
        return None;
    }
    if uri.path() == "/v1/blobs" {
        return without_preflight(headers);
    }
    if uri.path() == "/v1/conversations/import" && media_type(headers) == transfer::MEDIA_TYPE {
        return None;
    }
    extract::is_yaml(headers).err()
}

/// The media type of a body, without parameters.
fn media_type(headers: &HeaderMap) -> String {
    let given = headers.get(header::CONTENT_TYPE).and_then(|given| given.to_str().ok());
    essence(given.unwrap_or_default())
}

/// Why the bytes of a blob may have been sent without a preflight.
fn without_preflight(headers: &HeaderMap) -> Option<Problem> {
    let given = media_type(headers);
    let form_types = ["", "text/plain", "multipart/form-data", "application/x-www-form-urlencoded"];
    let has_preflight = !form_types.contains(&&*given) || headers.contains_key("Idempotency-Key");
    let detail = "Content-Type: a form could send this type; add an Idempotency-Key";
    (!has_preflight).then(|| Problem::unreadable(detail))
}

fn panicked(panic: &(dyn Any + Send)) -> Response {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Problem::new(Kind::Internal, text.unwrap_or("a panic without a text")).into_response()
}
