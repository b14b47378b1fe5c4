//! What every request meets before its handler, on both ports, and what a handler's panic becomes.

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
use super::problem::{Kind, Problem};

/// The largest sum of a request's headers.
const HEADER_BYTES: usize = 32 << 10;

/// Adds the border to a router whose paths are all there.
pub(crate) fn guarded<S: Clone + Send + Sync + 'static>(router: Router<S>) -> Router<S> {
    router.layer(middleware::from_fn(async |request, next: Next| {
        guard(request, |request| next.run(request)).await
    }))
}

/// Lets a request be answered, unless the border refuses it; a panic becomes an answer, too.
pub(crate) async fn guard<F: Future<Output = Response>>(
    request: Request,
    answer: impl FnOnce(Request) -> F,
) -> Response {
    if let Some(problem) = refused(&request) {
        return problem.into_response();
    }
    // What a panic left half done goes with the request.
    let answered = AssertUnwindSafe(async { answer(request).await }).catch_unwind().await;
    answered.unwrap_or_else(|panic| panicked(&*panic))
}

/// Refuses headers past their bound, and whatever a page of another origin can make a browser send
/// without asking first: a request that changes something, has an `Origin`, and does not say that
/// it is JSON or YAML. That holds also for calls without a body. The bytes of a blob may be of any
/// type: of those that a form could send, `Idempotency-Key` proves that the browser has asked.
fn refused(request: &Request) -> Option<Problem> {
    let (headers, uri) = (request.headers(), request.uri());
    let sizes = headers.iter().map(|(name, value)| name.as_str().len() + value.len());
    let host = uri.authority().map_or(0, |host| host.as_str().len());
    let path = uri.path_and_query().map_or(0, |path| path.as_str().len());
    if sizes.sum::<usize>() + host + path > HEADER_BYTES {
        return Some(Problem::headers());
    }
    if request.method().is_safe() || !headers.contains_key(header::ORIGIN) {
        return None;
    }
    match headers.contains_key(header::CONTENT_TYPE) {
        true if uri.path() == "/v1/blobs" => unasked(headers),
        true => extract::media(headers).err(),
        false => Some(Problem::unreadable("Content-Type: is missing, and there is an Origin")),
    }
}

/// Why bytes may have been sent without asking.
fn unasked(headers: &HeaderMap) -> Option<Problem> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|given| given.to_str().ok());
    let given = essence(given.unwrap_or_default());
    let simple = ["", "text/plain", "multipart/form-data", "application/x-www-form-urlencoded"];
    let asked = !simple.contains(&&*given) || headers.contains_key("Idempotency-Key");
    let why = "Content-Type: a form could send it; give an Idempotency-Key, too";
    (!asked).then(|| Problem::unreadable(why))
}

fn panicked(panic: &(dyn Any + Send)) -> Response {
    let said = panic.downcast_ref::<&str>().copied();
    let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Problem::new(Kind::Internal, said.unwrap_or("a panic without words")).into_response()
}
