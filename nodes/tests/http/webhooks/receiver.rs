//! A receiver of notices; the path selects how it behaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Redirect, Response};
use futures::stream;
use serde_json::Value;
use standardwebhooks::Webhook;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::api::DEADLINE;

const PIECE_BYTES: usize = 64 << 10;

#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
    bytes: Bytes,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }

    /// Fails unless the official library accepts it.
    pub(crate) fn verify(&self, secret: &str) {
        Webhook::new(secret).unwrap().verify(&self.bytes, &self.headers).unwrap();
    }
}

#[derive(Clone)]
struct Shared {
    received: watch::Sender<Vec<Received>>,
    endless_bytes: Arc<AtomicUsize>,
}

/// `/fail` answers 500, `/gone` 410, `/redirect` to `/metadata`, `/hang` never, `/drop` breaks the
/// connection, `/endless` never ends its 200; every other path answers 204.
pub(crate) struct Receiver {
    shared: Shared,
    address: String,
}

impl Receiver {
    pub(crate) async fn start() -> Self {
        let received = watch::Sender::new(Vec::new());
        let shared = Shared { received, endless_bytes: Arc::default() };
        let app = Router::new().fallback(receive).with_state(shared.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { shared, address }
    }

    pub(crate) fn host(&self) -> &str {
        &self.address
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn all(&self, path: &str) -> Vec<Received> {
        let received = self.shared.received.borrow();
        received.iter().filter(|it| it.path == path).cloned().collect()
    }

    /// The request of this number, from 0, to a path.
    pub(crate) async fn nth(&self, path: &str, number: usize) -> Received {
        let mut received = self.shared.received.subscribe();
        let is_there =
            |all: &Vec<Received>| all.iter().filter(|it| it.path == path).count() > number;
        tokio::time::timeout(DEADLINE, received.wait_for(is_there)).await.unwrap().unwrap();
        self.all(path)[number].clone()
    }

    /// How much of endless answers was taken.
    pub(crate) fn endless_bytes(&self) -> usize {
        self.shared.endless_bytes.load(Ordering::Relaxed)
    }
}

async fn receive(
    State(shared): State<Shared>,
    uri: Uri,
    headers: HeaderMap,
    bytes: Bytes,
) -> Response {
    let body = serde_json::from_slice(&bytes).unwrap_or_default();
    let path = uri.path().to_owned();
    let received = Received { path, headers, body, bytes };
    shared.received.send_modify(|all| all.push(received));
    match uri.path() {
        "/fail" => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        "/gone" => StatusCode::GONE.into_response(),
        "/redirect" => Redirect::temporary("/metadata").into_response(),
        "/hang" => std::future::pending().await,
        "/drop" => panic!("the connection breaks"),
        "/endless" => {
            let taken = shared.endless_bytes;
            let pieces = stream::repeat_with(move || {
                taken.fetch_add(PIECE_BYTES, Ordering::Relaxed);
                Ok::<_, std::io::Error>(vec![b'a'; PIECE_BYTES])
            });
            Body::from_stream(pieces).into_response()
        }
        _ => StatusCode::NO_CONTENT.into_response(),
    }
}
