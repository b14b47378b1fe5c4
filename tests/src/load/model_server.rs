//! A model's provider under the load program's control: it notes when it is asked, and writes the
//! moment at which it speaks into what it says.

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

/// How often a token comes: a hundred a second.
pub(super) const TOKEN_INTERVAL: Duration = Duration::from_millis(10);

/// Speaks chat completions on a loopback port, until the program ends.
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
            .route("/{tokens}/chat/completions", post(speak))
            .with_state(model.clone());
        // A provider's byte counts from when it is on its way.
        let listener = listener.tap_io(|io| drop(io.set_nodelay(true)));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(model)
    }

    /// The `model` of an agent whose messages have so many tokens, one every [`TOKEN_INTERVAL`].
    pub(super) fn settings(&self, tokens: u32) -> Value {
        let base_url = format!("http://{}/{tokens}", self.address);
        json!({"provider": "openai", "name": "load", "base_url": base_url})
    }

    /// When it was asked since the last time.
    pub(super) fn take_request_times(&self) -> Vec<Instant> {
        std::mem::take(&mut *self.requested_at.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// How long ago a token was said, by its text.
    pub(super) fn age(&self, token: &str) -> Option<Duration> {
        let said = Duration::from_nanos(token.trim().parse().ok()?);
        Some(self.began.elapsed().saturating_sub(said))
    }
}

/// The request is read whole first: what is asked counts from its head.
async fn speak(State(model): State<Model>, Path(tokens): Path<u32>, body: Body) -> Response {
    model.requested_at.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
    if axum::body::to_bytes(body, usize::MAX).await.is_err() {
        return axum::http::StatusCode::BAD_REQUEST.into_response();
    }
    let paces = tokio_stream::wrappers::IntervalStream::new(tokio::time::interval(TOKEN_INTERVAL));
    let said = move |_| {
        let nanos = model.began.elapsed().as_nanos();
        chunk(json!({"content": format!("{nanos} ")}), Value::Null)
    };
    let end = [chunk(json!({}), json!("stop")), "data: [DONE]\n\n".to_owned()];
    let pieces = paces.take(tokens as usize).map(said).chain(tokio_stream::iter(end));
    let pieces = pieces.map(|piece| Ok::<_, std::convert::Infallible>(Bytes::from(piece)));
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(pieces)).into_response()
}

fn chunk(delta: Value, finish: Value) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    format!("data: {}\n\n", json!({"id": "c", "choices": [choice]}))
}
