//! A model provider of the load program, which records when requests arrive and writes into each
//! token the time at which it was sent.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::serve::ListenerExt;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_stream::StreamExt;

use super::{LoadError, load_error};

/// The interval between two tokens: a hundred per second.
pub(super) const TOKEN_INTERVAL: Duration = Duration::from_millis(10);

/// A chat-completions server on a loopback port, which runs until the program ends.
#[derive(Clone)]
pub(super) struct Model {
    address: String,
    began: Instant,
    requested_at: Arc<Mutex<Vec<Instant>>>,
}

impl Model {
    pub(super) async fn start() -> Result<Self, LoadError> {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.map_err(|error| load_error("the model's server", error))?;
        let address =
            listener.local_addr().map_err(|error| load_error("the model's server", error))?;
        let model = Self {
            address: address.to_string(),
            began: Instant::now(),
            requested_at: Arc::default(),
        };
        let router = Router::new()
            .route("/{tokens}/chat/completions", post(stream_reply))
            .with_state(model.clone());
        // Bytes are sent at once: their time is measured.
        let listener = listener.tap_io(|io| drop(io.set_nodelay(true)));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(model)
    }

    /// The `model` section of an agent whose messages have `tokens` tokens, one every
    /// [`TOKEN_INTERVAL`].
    pub(super) fn settings(&self, tokens: u32) -> Value {
        let base_url = format!("http://{}/{tokens}", self.address);
        json!({"provider": "openai", "name": "load", "base_url": base_url})
    }

    /// Takes the times of the requests since the last call.
    pub(super) fn take_request_times(&self) -> Vec<Instant> {
        std::mem::take(&mut *self.requested_at.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How long ago a token was sent, by its text.
    pub(super) fn age(&self, token: &str) -> Option<Duration> {
        let sent_at = Duration::from_nanos(token.trim().parse().ok()?);
        Some(self.began.elapsed().saturating_sub(sent_at))
    }
}

/// Streams the tokens. A request counts from its head; the rest is read before the answer begins.
async fn stream_reply(State(model): State<Model>, Path(tokens): Path<u32>, body: Body) -> Response {
    model.requested_at.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
    if axum::body::to_bytes(body, usize::MAX).await.is_err() {
        return axum::http::StatusCode::BAD_REQUEST.into_response();
    }
    let ticks = tokio_stream::wrappers::IntervalStream::new(tokio::time::interval(TOKEN_INTERVAL));
    let token = move |_| {
        let nanos = model.began.elapsed().as_nanos();
        chunk(json!({"content": format!("{nanos} ")}), Value::Null)
    };
    let end = [chunk(json!({}), json!("stop")), "data: [DONE]\n\n".to_owned()];
    let pieces = ticks.take(tokens as usize).map(token).chain(tokio_stream::iter(end));
    let pieces = pieces.map(|piece| Ok::<_, std::convert::Infallible>(Bytes::from(piece)));
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(pieces)).into_response()
}

fn chunk(delta: Value, finish: Value) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    format!("data: {}\n\n", json!({"id": "c", "choices": [choice]}))
}
