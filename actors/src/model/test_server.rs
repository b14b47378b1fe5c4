//! A real HTTP server on the loopback interface that speaks chat completions, well or badly, and
//! its client.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide_conversation::message::{Message, MessageRole};
use abide_conversation::{MessageId, Timestamp};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Response, StatusCode, Uri};
use axum::serve::ListenerExt;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::{Model, ModelError, ModelRequest, ModelSettings, Provider, ReplyChunk};
use crate::clock::Clock;

/// What the server does with one request.
#[derive(Clone, Debug)]
pub(super) struct TestResponse {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) pieces: Vec<Bytes>,
    pub(super) end: TestEnd,
}

/// How a response ends after its pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TestEnd {
    /// As it should.
    Whole,
    /// The connection breaks.
    Breaks,
    /// Never.
    Hangs,
    /// With an endless sequence of comments.
    CommentsForever,
    /// Before its head, which never arrives.
    NoHeader,
}

impl TestResponse {
    /// A stream of these pieces, each written separately.
    pub(super) fn stream(pieces: impl IntoIterator<Item = impl Into<Bytes>>) -> Self {
        let headers = vec![("content-type", "text/event-stream".to_owned())];
        let pieces = pieces.into_iter().map(Into::into).collect();
        Self { status: 200, headers, pieces, end: TestEnd::Whole }
    }

    /// An error in the provider's usual format.
    pub(super) fn error(status: u16, message: &str) -> Self {
        let body = json!({"error": {"message": message}}).to_string();
        let headers = vec![("content-type", "application/json".to_owned())];
        Self { status, headers, pieces: vec![body.into()], end: TestEnd::Whole }
    }

    pub(super) fn ending_with(self, end: TestEnd) -> Self {
        Self { end, ..self }
    }

    pub(super) fn with_header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }
}

/// A chunk with this delta, as an event.
pub(super) fn delta(delta: Value) -> String {
    event(json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]}))
}

/// The end of a message for this reason, as an event.
pub(super) fn finish(reason: &str) -> String {
    event(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}))
}

/// Any chunk as an event.
pub(super) fn event(chunk: Value) -> String {
    format!("data: {chunk}\n\n")
}

pub(super) const DONE: &str = "data: [DONE]\n\n";

/// A request that the server received.
#[derive(Clone, Debug)]
pub(super) struct RecordedRequest {
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Value,
}

/// A running server; every request takes the next response, and the last one is repeated.
pub(super) struct TestServer {
    pub(super) url: String,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
    /// How many responses have been dropped, because they ended or because the client disconnected.
    pub(super) dropped: watch::Receiver<usize>,
}

#[derive(Clone)]
struct TestServerState {
    answers: Arc<Vec<TestResponse>>,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
    dropped: Arc<watch::Sender<usize>>,
}

impl TestServer {
    pub(super) async fn start(answers: impl IntoIterator<Item = TestResponse>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (dropped, receiver) = watch::channel(0);
        let requests = Arc::default();
        let answers = Arc::new(answers.into_iter().collect());
        let state = TestServerState {
            answers,
            requests: Arc::clone(&requests),
            dropped: Arc::new(dropped),
        };
        let router = Router::new().fallback(respond).with_state(state);
        // Without this, every second piece would wait for the acknowledgement of the first.
        let listener = listener.tap_io(|stream| stream.set_nodelay(true).unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, requests, dropped: receiver }
    }

    pub(super) fn requests(&self) -> Vec<RecordedRequest> {
        self.requests.lock().unwrap().clone()
    }
}

async fn respond(
    State(state): State<TestServerState>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let body = serde_json::from_slice(&body).unwrap();
    let path = uri.to_string();
    let at = {
        let mut requests = state.requests.lock().unwrap();
        requests.push(RecordedRequest { path, headers, body });
        requests.len() - 1
    };
    let dropped = Dropped(state.dropped);
    let answer = &state.answers[at.min(state.answers.len() - 1)];
    if answer.end == TestEnd::NoHeader {
        let _dropped = dropped;
        return std::future::pending().await;
    }
    let mut response = Response::builder().status(StatusCode::from_u16(answer.status).unwrap());
    for (name, value) in &answer.headers {
        response = response.header(*name, value);
    }
    response.body(Body::from_stream(response_stream(answer.clone(), dropped))).unwrap()
}

/// Yields after every piece, so that it is written before whatever follows.
fn response_stream(
    answer: TestResponse,
    dropped: Dropped,
) -> BoxStream<'static, Result<Bytes, &'static str>> {
    let piece = |piece| async {
        tokio::task::yield_now().await;
        Ok(piece)
    };
    let pieces = stream::iter(answer.pieces).then(piece);
    let end = async move {
        tokio::task::yield_now().await;
        match answer.end {
            TestEnd::Whole => None,
            TestEnd::Breaks => Some(Err("dies")),
            TestEnd::Hangs | TestEnd::CommentsForever | TestEnd::NoHeader => {
                std::future::pending().await
            }
        }
    };
    let end = stream::once(end).filter_map(std::future::ready);
    let comments = stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        Some((Ok(Bytes::from_static(b": still here\n\n")), ()))
    });
    let comment_count = if answer.end == TestEnd::CommentsForever { usize::MAX } else { 0 };
    let guarded = pieces.chain(comments.take(comment_count)).chain(end).map(move |piece| {
        let _ = &dropped;
        piece
    });
    guarded.boxed()
}

struct Dropped(Arc<watch::Sender<usize>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count += 1);
    }
}

/// A clock that stands still, with a chance of always one half.
pub(super) struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        "2026-11-21T08:00:00Z".parse().unwrap()
    }

    fn id(&self, prefix: &str) -> String {
        format!("{prefix}_1")
    }

    fn chance(&self) -> f64 {
        0.5
    }
}

pub(super) fn settings(provider: Provider) -> ModelSettings {
    ModelSettings {
        fallback: Vec::new(),
        provider,
        name: String::new(),
        base_url: None,
        api_key_env: None,
        temperature: None,
        max_tokens: None,
        window: None,
        options: Default::default(),
        prices: Default::default(),
        script: None,
        outbound: Default::default(),
    }
}

pub(super) fn message(id: &str, role: MessageRole, content: Vec<Value>) -> Message {
    Message::new(MessageId::new(id), role, content)
}

pub(super) fn request(settings: ModelSettings) -> ModelRequest {
    ModelRequest {
        settings,
        system: String::new(),
        messages: Vec::new(),
        stable_messages: 0,
        verbatim: Default::default(),
        cache_key: "conv_1".to_owned(),
        purpose: Default::default(),
        tools: Vec::new(),
        schema: None,
        call_pieces: Default::default(),
    }
}

/// All chunks of a model's reply; an error is last.
pub(super) async fn collect_reply(
    model: &impl Model,
    request: ModelRequest,
) -> Vec<Result<ReplyChunk, ModelError>> {
    match model.call(&request).await {
        Ok(chunks) => chunks.collect().await,
        Err(error) => vec![Err(error)],
    }
}

/// The chunks of a reply that did not fail.
pub(super) fn all_ok(chunks: Vec<Result<ReplyChunk, ModelError>>) -> Vec<ReplyChunk> {
    chunks.into_iter().collect::<Result<_, _>>().unwrap()
}
