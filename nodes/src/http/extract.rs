//! Extractors: requests are parsed and checked here, so that handlers can trust their values.

use std::time::Duration;

use abide_actors::agent::{self, Format};
use abide_actors::model::big_numbers::{OVER_64_BITS, find_rounded};
use abide_actors::request::{IdempotencyKey, MAX_MAP_BYTES};
use abide_conversation::Seq;
use abide_conversation::limits::check_map;
use axum::body::HttpBody;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRef, FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use data_encoding::HEXLOWER;
use futures::StreamExt;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::body_budget::{BodyBudget, BodyMemory};
use super::problem::{Kind, Problem};
use crate::access::permission::Permission;
use crate::access::{Allowed, BodyShare};
use crate::headers::single_header;

/// The largest body in JSON or YAML.
pub const MAX_BODY_BYTES: usize = 1 << 20;
/// How long a client may take to send its body; meanwhile it counts as a request in flight.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest seq: clients and stores count in 64 bits with a sign.
const MAX_SEQ: u64 = i64::MAX.unsigned_abs();

/// The header that makes a request safe to repeat.
const IDEMPOTENCY_KEY_HEADER: &str = "Idempotency-Key";

/// A body: its value, and a fingerprint of the request, empty without an `Idempotency-Key`, the only
/// thing that it is for.
pub struct Body<T> {
    pub value: T,
    pub fingerprint: String,
    /// Counts against the budget until the handler ends, or takes the body apart.
    _memory: BodyMemory,
}

impl<T> Body<T> {
    /// The value and the fingerprint, which no longer count against the budget.
    pub fn into_parts(self) -> (T, String) {
        (self.value, self.fingerprint)
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T>
where
    BodyBudget: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let Body { value, fingerprint, _memory } = receive(request, state, None).await?;
        Ok(Self { value: deserialize(value)?, fingerprint, _memory })
    }
}

/// A body that is any JSON, where all other bodies are objects.
pub struct AnyBody(pub Body<Value>);

impl<S: Send + Sync> FromRequest<S> for AnyBody
where
    BodyBudget: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        receive(request, state, Some("value")).await.map(Self)
    }
}

/// Reads a body as JSON. A mistake in it is named by its path, which begins with `root` if there is one.
async fn receive<S: Send + Sync>(
    request: Request,
    state: &S,
    root: Option<&str>,
) -> Result<Body<Value>, Problem>
where
    BodyBudget: FromRef<S>,
{
    let target = format!("{} {}", request.method(), request.uri().path());
    let is_yaml = is_yaml(request.headers())?;
    let has_key = request.headers().contains_key(IDEMPOTENCY_KEY_HEADER);
    let share = request.extensions().get::<BodyShare>().cloned();
    let mut memory = BodyBudget::from_ref(state).begin(share);
    let read = read(request.into_body(), &mut memory);
    let bytes = tokio::time::timeout(BODY_TIMEOUT, read).await;
    let bytes = bytes.map_err(|_| Problem::unreadable("the body did not arrive in time"))??;
    let text = std::str::from_utf8(&bytes);
    let text = text.map_err(|_| Problem::unreadable("the body is not UTF-8"))?;
    memory.grow_to_parse(text, is_yaml)?;
    let value = parse(text, is_yaml, root)?;
    memory.shrink(bytes.len());
    drop(bytes);
    let fingerprint =
        if has_key { fingerprint(&[&target, &canonical(&value)]) } else { String::new() };
    Ok(Body { value, fingerprint, _memory: memory })
}

/// A body that may be absent; every field then has its default.
pub struct OptionalBody<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for OptionalBody<T>
where
    BodyBudget: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        if request.body().is_end_stream() {
            return Ok(Self(T::default()));
        }
        Body::from_request(request, state).await.map(|body| Self(body.value))
    }
}

/// Whether the body is YAML, and not JSON. A form or plain text is refused: a page of another origin
/// could send these without a preflight. The guard refuses such a page's body without a type.
pub(super) fn is_yaml(headers: &HeaderMap) -> Result<bool, Problem> {
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

/// Reads a whole body; a body that arrives in one piece is not copied.
async fn read(body: axum::body::Body, memory: &mut BodyMemory) -> Result<Bytes, Problem> {
    // A buffer that grows piece by piece would take twice what is counted.
    let declared_bytes = body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
    let capacity = declared_bytes.unwrap_or_default().min(MAX_BODY_BYTES);
    let mut pieces = body.into_data_stream();
    let mut received_bytes = 0;
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|_| Problem::unreadable("the body could not be read"))?;
        received_bytes += piece.len();
        if received_bytes > MAX_BODY_BYTES {
            let detail = format!("the body is larger than {MAX_BODY_BYTES} bytes");
            return Err(Problem::new(Kind::PayloadTooLarge, detail));
        }
        memory.grow(piece.len())?;
        if first.is_empty() {
            first = piece;
            continue;
        }
        if whole.is_empty() {
            whole.reserve(capacity);
            whole.extend_from_slice(&first);
        }
        whole.extend_from_slice(&piece);
    }
    Ok(if whole.is_empty() { first } else { whole.freeze() })
}

/// The value of a body. A whole number that a value would round is refused, with its field.
fn parse(text: &str, is_yaml: bool, root: Option<&str>) -> Result<Value, Problem> {
    let rounded = |path: &str| match (root, path) {
        (None, "") => Problem::field("body", OVER_64_BITS),
        (None, path) => Problem::field(path, OVER_64_BITS),
        (Some(root), "") => Problem::field(root, OVER_64_BITS),
        (Some(root), path) => Problem::field(&format!("{root}.{path}"), OVER_64_BITS),
    };
    if is_yaml {
        return agent::from_text(text, Format::Yaml).map_err(|error| {
            if error.message == OVER_64_BITS {
                return rounded(&error.field);
            }
            Problem::unreadable(format!("the body is not YAML: {}", error.message))
        });
    }
    if let Some(path) = find_rounded(text) {
        return Err(rounded(&path));
    }
    serde_json::from_str(text)
        .map_err(|error| Problem::unreadable(format!("the body is not JSON: {error}")))
}

/// Whether a body could not be read because it is larger than its limit.
pub(super) fn is_over_limit(error: &axum::Error) -> bool {
    let mut source: Option<&dyn std::error::Error> = Some(error);
    while let Some(cause) = source {
        if cause.to_string().contains("length limit") {
            return true;
        }
        source = cause.source();
    }
    false
}

/// The value as a type. What does not fit is refused with its field.
pub(super) fn deserialize<T: DeserializeOwned>(value: Value) -> Result<T, Problem> {
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

/// The parameters of a path; a path that does not decode to UTF-8 is refused.
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

/// The query string of a listing without parameters: any parameter is refused.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoParameters {}

/// The innermost error, which begins with the parameter's name.
fn reason(error: &QueryRejection) -> String {
    match std::error::Error::source(error) {
        Some(reason) => reason.to_string(),
        None => error.body_text(),
    }
}

/// The `Idempotency-Key` of a request.
#[derive(Clone)]
pub struct Idempotency(Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for Idempotency {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Self(single_header(&parts.headers, IDEMPOTENCY_KEY_HEADER)?))
    }
}

impl Idempotency {
    /// Whether the request has a key.
    pub fn is_given(&self) -> bool {
        self.0.is_some()
    }

    /// The keys by which a repeat of a request with this fingerprint is recognised.
    ///
    /// Where callers are authenticated, each has keys of their own: nobody gets the reply to another.
    pub fn keys<P: Permission>(
        &self,
        allowed: &Allowed<P>,
        fingerprint: String,
    ) -> Vec<IdempotencyKey> {
        let key = self.0.as_ref().map(|key| match allowed.subject() {
            Some(sub) => format!("key:{}", self::fingerprint(&[sub, key])),
            None => format!("key:{key}"),
        });
        let idempotency_key =
            |key| IdempotencyKey { key, fingerprint, field: IDEMPOTENCY_KEY_HEADER.into() };
        key.map(idempotency_key).into_iter().collect()
    }
}

/// Refuses `assigns` or `metadata` that are too large.
pub fn bounded(field: &str, map: Map<String, Value>) -> Result<Map<String, Value>, Problem> {
    check_map(field, &map)?;
    Ok(map)
}

/// Refuses a JSON value that is larger than `assigns` may be.
pub fn bounded_value(field: &str, value: Value) -> Result<Value, Problem> {
    if value.to_string().len() <= MAX_MAP_BYTES {
        Ok(value)
    } else {
        Err(Problem::field(field, format!("is larger than {MAX_MAP_BYTES} bytes")))
    }
}

/// Compiles what a client sent, which may take long, on a thread for blocking work.
pub async fn compiled<T: Send + 'static>(
    compile: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let compiled = tokio::task::spawn_blocking(compile).await;
    compiled.map_err(|error| Problem::new(Kind::Internal, error.to_string()))
}

/// A position in a journal, at most the largest that the document and the stores know.
pub fn position(field: &str, seq: Seq) -> Result<Seq, Problem> {
    if seq.get() <= MAX_SEQ {
        Ok(seq)
    } else {
        Err(Problem::field(field, format!("must be at most {MAX_SEQ}")))
    }
}

/// The size of a page.
pub fn limit(given: Option<usize>, default: usize, max: usize) -> Result<usize, Problem> {
    match given.unwrap_or(default) {
        limit if (1..=max).contains(&limit) => Ok(limit),
        _ => Err(Problem::field("limit", format!("must be 1 to {max}"))),
    }
}

/// A digest of these parts and of where they begin and end.
pub fn fingerprint(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    HEXLOWER.encode(&hash.finalize()[..16])
}

/// A value's canonical text: it does not depend on the order of keys.
pub fn canonical(value: &Value) -> String {
    serde_json_canonicalizer::to_string(value).unwrap_or_else(|_| value.to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use axum::response::IntoResponse;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_arrive_is_refused_in_time() {
        let trickle = futures::stream::once(async { Ok::<_, std::io::Error>("{") });
        let body = axum::body::Body::from_stream(trickle.chain(futures::stream::pending()));
        let request = Request::post("/v1/conversations").body(body).unwrap();
        let started = tokio::time::Instant::now();
        let problem =
            Body::<Value>::from_request(request, &BodyBudget::default()).await.err().unwrap();
        assert_eq!(problem.into_response().status(), 400);
        assert_eq!(started.elapsed(), BODY_TIMEOUT);
    }

    #[test]
    fn parts_that_are_cut_elsewhere_have_another_fingerprint() {
        assert_ne!(fingerprint(&["ab", "c"]), fingerprint(&["a", "bc"]));
        assert_ne!(fingerprint(&["a", ""]), fingerprint(&["a"]));
        assert_eq!(fingerprint(&["a"]), fingerprint(&["a"]));
    }
}
