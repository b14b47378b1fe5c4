//! A server of HTTP tools; the path selects a tool's behaviour.

use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Redirect, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::request_log::RequestLog;

/// How long `/slow` takes: long enough for a kill to hit it.
const SLOW_ANSWER_TIME: Duration = Duration::from_millis(40);
/// The upper bound of `/pause`.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// The pieces of `/endless`, the pause between those of `/trickle`, the depth of `/deep`.
const ENDLESS_CHUNK_BYTES: usize = 64 * 1024;
const TRICKLE_INTERVAL: Duration = Duration::from_millis(50);
const DEPTH: usize = 100_000;
/// No encoding of any text.
const GARBAGE: &[u8] = &[0xff, 0xfe, 0x00, b'{', 0x80, b'"', 0xc3];

/// A server of tools on loopback.
///
/// | path | what it does |
/// |---|---|
/// | `/answer` | answers at once with `{"did": args, "attempt": n}` |
/// | `/accept` | answers 202: it is to call back |
/// | `/echo` | answers at once with the args themselves |
/// | `/around` | redirects to itself |
/// | `/slow` | like `/answer`, after 40 ms |
/// | `/pause` | like `/answer`, after `args.pause_ms` milliseconds |
/// | `/hold` | like `/answer`, once released |
/// | `/hang` | never answers |
/// | `/fail` | answers 500 |
/// | `/busy` | like `/answer`, but 503 to the first attempt |
/// | `/stream` | two lines of progress, then like `/answer`, as ndjson |
/// | `/deny` | answers like a hook that denies |
/// | `/drop` | breaks the connection in the middle of the body |
/// | `/endless` | a JSON text that never ends, as fast as it is read |
/// | `/trickle` | the same, a byte at a time |
/// | `/garbage` | bytes that are neither JSON nor text |
/// | `/deep` | JSON, nested a hundred thousand times |
pub struct ToolServer {
    pub requests: RequestLog,
    address: String,
    open: watch::Sender<bool>,
    server: tokio::task::JoinHandle<()>,
}

#[derive(Clone)]
struct Shared {
    requests: RequestLog,
    open: watch::Sender<bool>,
}

impl ToolServer {
    /// Serves on a free port, for as long as the value lives.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Shared { requests: RequestLog::default(), open: watch::channel(false).0 };
        let (requests, open) = (shared.requests.clone(), shared.open.clone());
        let router = Router::new().fallback(serve).with_state(shared);
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { requests, address, open, server }
    }

    /// The URL of a behaviour, such as `/hold`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Releases every held request, including later ones.
    pub fn release(&self) {
        self.open.send_replace(true);
    }

    /// Holds later requests again.
    pub fn hold(&self) {
        self.open.send_replace(false);
    }
}

impl Drop for ToolServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(
    State(shared): State<Shared>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    shared.requests.record(uri.path(), &headers, &body);
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let answer = json!({"did": request["args"], "attempt": request["attempt"]});
    match uri.path() {
        "/answer" => axum::Json(answer).into_response(),
        "/accept" => StatusCode::ACCEPTED.into_response(),
        "/echo" => axum::Json(&request["args"]).into_response(),
        "/deny" => axum::Json(json!({"deny": "not today"})).into_response(),
        "/around" => Redirect::temporary("/around").into_response(),
        "/slow" => {
            tokio::time::sleep(SLOW_ANSWER_TIME).await;
            axum::Json(answer).into_response()
        }
        "/pause" => {
            let pause = request["args"]["pause_ms"].as_u64().unwrap_or_default();
            tokio::time::sleep(Duration::from_millis(pause).min(MAX_PAUSE)).await;
            axum::Json(answer).into_response()
        }
        "/hold" => {
            // The sender is part of the shared state: this cannot fail.
            let _ = shared.open.subscribe().wait_for(|open| *open).await;
            axum::Json(answer).into_response()
        }
        "/hang" => std::future::pending().await,
        "/busy" if request["attempt"] == 1 => {
            let busy = axum::Json(json!({"error": "busy"}));
            (StatusCode::SERVICE_UNAVAILABLE, busy).into_response()
        }
        "/busy" => axum::Json(answer).into_response(),
        "/fail" => (StatusCode::INTERNAL_SERVER_ERROR, "no").into_response(),
        "/stream" => {
            let lines = [json!({"progress": 1}), json!({"progress": 2}), json!({"result": answer})];
            let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
            ([(header::CONTENT_TYPE, "application/x-ndjson")], lines).into_response()
        }
        "/endless" => json_text(vec![b'a'; ENDLESS_CHUNK_BYTES], Duration::ZERO),
        "/trickle" => json_text(vec![b'a'], TRICKLE_INTERVAL),
        "/garbage" => ([(header::CONTENT_TYPE, "application/json")], GARBAGE).into_response(),
        "/deep" => {
            let deep = format!("{}{}", "[".repeat(DEPTH), "]".repeat(DEPTH));
            ([(header::CONTENT_TYPE, "application/json")], deep).into_response()
        }
        "/drop" => {
            let pieces = [Ok("{\"cut\":"), Err(std::io::Error::other("dropped"))];
            let body = Body::from_stream(futures::stream::iter(pieces));
            ([(header::CONTENT_TYPE, "application/json")], body).into_response()
        }
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

/// A JSON text of this piece, again and again, without an end.
fn json_text(piece: Vec<u8>, pause: Duration) -> Response {
    let pieces = futures::stream::unfold(b"\"".to_vec(), move |next| {
        let piece = piece.clone();
        async move {
            tokio::time::sleep(pause).await;
            Some((Ok::<_, std::io::Error>(next), piece))
        }
    });
    ([(header::CONTENT_TYPE, "application/json")], Body::from_stream(pieces)).into_response()
}
