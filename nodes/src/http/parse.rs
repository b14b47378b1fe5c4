//! Requests are parsed here, at the border; what is inside may trust them.

use std::time::Duration;

use abide_actors::request::IdempotencyKey;
use abide_conversation::{ConversationId, Principal};
use axum::body::HttpBody;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::problem::{Kind, Problem};

/// The largest body that is read.
pub const BODY_BYTES: usize = 1 << 20;
/// How long a client may take to send its body. Each that is on its way holds a place among the
/// requests under way.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest `assigns`, `metadata` or `schema`: they are journalled and travel with every call.
const MAP_BYTES: usize = 64 << 10;
/// The longest name that a client may give a request.
const KEY_CHARS: usize = 255;

/// The header that makes a request repeatable.
const IDEMPOTENCY_KEY: &str = "Idempotency-Key";

/// A body that was read whole: its value, and a fingerprint of the request if it has an
/// `Idempotency-Key`, for which alone it is asked for.
pub struct Body<T> {
    pub value: T,
    pub fingerprint: String,
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let target = format!("{} {}", request.method(), request.uri().path());
        let yaml = media(request.headers())?;
        let may_repeat = request.headers().contains_key(IDEMPOTENCY_KEY);
        let read = axum::body::to_bytes(request.into_body(), BODY_BYTES);
        let bytes = tokio::time::timeout(BODY_TIMEOUT, read).await;
        let bytes = bytes.map_err(|_| Problem::unreadable("the body took too long to come"))?;
        let bytes = bytes.map_err(|error| too_large(&error))?;
        let value = match yaml {
            true => {
                let text = std::str::from_utf8(&bytes);
                let text = text.map_err(|_| Problem::unreadable("the body is not UTF-8"))?;
                abide_actors::agent::from_text(text, abide_actors::agent::Format::Yaml)
                    .map_err(|error| Problem::unreadable(error.to_string()))?
            }
            false => serde_json::from_slice(&bytes)
                .map_err(|error| Problem::unreadable(format!("the body is not JSON: {error}")))?,
        };
        let fingerprint = match may_repeat {
            true => fingerprint(&[&target, &canonical(&value)]),
            false => String::new(),
        };
        let value = shape(value)?;
        Ok(Self { value, fingerprint })
    }
}

/// A body that may be left out: then nothing is wished for.
pub struct OptionalBody<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for OptionalBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        match request.body().is_end_stream() {
            true => Ok(Self(T::default())),
            false => Body::from_request(request, state).await.map(|body| Self(body.value)),
        }
    }
}

/// Whether a body is YAML. A form or plain text is refused: a page of another origin may send
/// those. What it sends without a type is refused at the border.
pub(super) fn media(headers: &HeaderMap) -> Result<bool, Problem> {
    let Some(given) = headers.get(header::CONTENT_TYPE) else { return Ok(false) };
    let given = given.to_str().unwrap_or_default();
    let essence = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        "application/json" => Ok(false),
        "application/yaml" | "application/x-yaml" | "text/yaml" => Ok(true),
        other if other.ends_with("+json") => Ok(false),
        _ => Err(Problem::unreadable("Content-Type: must be application/json")),
    }
}

fn too_large(error: &axum::Error) -> Problem {
    match is_too_long(error) {
        true => {
            let detail = format!("the body is larger than {BODY_BYTES} bytes");
            Problem::new(Kind::PayloadTooLarge, detail)
        }
        false => Problem::unreadable("the body could not be read"),
    }
}

/// Whether a body was not read since it is longer than it may be.
pub(super) fn is_too_long(error: &axum::Error) -> bool {
    let mut source: Option<&dyn std::error::Error> = Some(error);
    while let Some(cause) = source {
        if cause.to_string().contains("length limit") {
            return true;
        }
        source = cause.source();
    }
    false
}

fn shape<T: DeserializeOwned>(value: Value) -> Result<T, Problem> {
    if !value.is_object() {
        return Err(Problem::new(Kind::InvalidRequest, "the body must be an object"));
    }
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        match path.as_str() {
            "." => Problem::new(Kind::InvalidRequest, error.inner().to_string()),
            path => Problem::field(path, error.inner()),
        }
    })
}

/// The parameters of a path; a path that does not decode to UTF-8 cannot be read.
pub struct Path<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        path.map(|path| Self(path.0))
            .map_err(|_| Problem::unreadable("the path is not percent-encoded UTF-8"))
    }
}

/// A query string; unknown parameters are an error.
pub struct Query<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let query = axum::extract::Query::<T>::try_from_uri(&parts.uri);
        let query = query.map_err(|error| Problem::new(Kind::InvalidRequest, reason(&error)))?;
        Ok(Self(query.0))
    }
}

/// What is wrong, with the parameter's name first, in its own words.
fn reason(error: &QueryRejection) -> String {
    match std::error::Error::source(error) {
        Some(reason) => reason.to_string(),
        None => error.body_text(),
    }
}

/// On whose behalf a request is made: the `Abide-Principal` header that a gateway sets.
pub struct Caller(pub Principal);

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        principal(&parts.headers, "anonymous").map(Self)
    }
}

/// Which operator asks: the same header, else "operator".
pub struct Operator(pub Principal);

impl<S: Send + Sync> FromRequestParts<S> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        principal(&parts.headers, "operator").map(Self)
    }
}

fn principal(headers: &HeaderMap, otherwise: &str) -> Result<Principal, Problem> {
    let given = named(headers, "Abide-Principal")?;
    match given.unwrap_or_else(|| otherwise.to_owned()) {
        given if given == Principal::system().as_str() => {
            Err(Problem::field("Abide-Principal", "nobody may be \"system\""))
        }
        given => Ok(Principal::new(given)),
    }
}

/// The `Idempotency-Key` of a request.
pub struct Idempotency(Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for Idempotency {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Self(named(&parts.headers, IDEMPOTENCY_KEY)?))
    }
}

impl Idempotency {
    /// What makes a request with this body a repeat.
    pub fn repeats(&self, fingerprint: String) -> Vec<IdempotencyKey> {
        let key = self.0.as_ref().map(|key| format!("key:{key}"));
        let repeat = |key| IdempotencyKey { key, fingerprint, field: IDEMPOTENCY_KEY.into() };
        key.map(repeat).into_iter().collect()
    }
}

fn named(headers: &HeaderMap, name: &str) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::field(name, "was given twice"));
    }
    let text = value.to_str().unwrap_or_default();
    let legal = (1..=KEY_CHARS).contains(&text.len());
    match legal {
        true => Ok(Some(text.to_owned())),
        false => Err(Problem::field(name, format!("must be 1 to {KEY_CHARS} visible characters"))),
    }
}

/// A conversation's id in a path. One that cannot exist does not.
pub fn conversation(id: &str) -> Result<ConversationId, Problem> {
    ConversationId::parse(id).ok_or_else(|| Problem::not_found("such conversation"))
}

/// A conversation's id that a client chose.
pub fn new_conversation(id: &str) -> Result<ConversationId, Problem> {
    let legal = "must be 1 to 128 of A-Z a-z 0-9 _ . : -";
    ConversationId::parse(id).ok_or_else(|| Problem::field("id", legal))
}

/// `assigns` or `metadata`, within their bound.
pub fn bounded(field: &str, map: Map<String, Value>) -> Result<Map<String, Value>, Problem> {
    match serde_json::to_string(&map).is_ok_and(|text| text.len() <= MAP_BYTES) {
        true => Ok(map),
        false => Err(Problem::field(field, format!("is larger than {MAP_BYTES} bytes"))),
    }
}

/// A JSON value, within the same bound.
pub fn bounded_value(field: &str, value: Value) -> Result<Value, Problem> {
    match value.to_string().len() <= MAP_BYTES {
        true => Ok(value),
        false => Err(Problem::field(field, format!("is larger than {MAP_BYTES} bytes"))),
    }
}

/// Checks something of a client's that takes long to compile, on a thread where that blocks nobody.
pub async fn compiled<T: Send + 'static>(
    compile: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let compiled = tokio::task::spawn_blocking(compile).await;
    compiled.map_err(|error| Problem::new(Kind::Internal, error.to_string()))
}

/// A page's size.
pub fn limit(given: Option<usize>, default: usize, most: usize) -> Result<usize, Problem> {
    match given.unwrap_or(default) {
        limit if (1..=most).contains(&limit) => Ok(limit),
        _ => Err(Problem::field("limit", format!("must be 1 to {most}"))),
    }
}

/// The same for the same parts, and for nothing else.
pub fn fingerprint(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// A value's text that does not depend on the order of its keys.
pub fn canonical(value: &Value) -> String {
    serde_json_canonicalizer::to_string(value).unwrap_or_else(|_| value.to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use axum::response::IntoResponse;
    use futures::StreamExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_come_is_not_waited_for() {
        let trickle = futures::stream::once(async { Ok::<_, std::io::Error>("{") });
        let body = axum::body::Body::from_stream(trickle.chain(futures::stream::pending()));
        let request = Request::post("/v1/conversations").body(body).unwrap();
        let started = tokio::time::Instant::now();
        let refused = Body::<Value>::from_request(request, &()).await.err().unwrap();
        assert_eq!(refused.into_response().status(), 400);
        assert_eq!(started.elapsed(), BODY_TIMEOUT);
    }

    #[test]
    fn parts_that_are_cut_elsewhere_have_another_fingerprint() {
        assert_ne!(fingerprint(&["ab", "c"]), fingerprint(&["a", "bc"]));
        assert_ne!(fingerprint(&["a", ""]), fingerprint(&["a"]));
        assert_eq!(fingerprint(&["a"]), fingerprint(&["a"]));
    }
}
