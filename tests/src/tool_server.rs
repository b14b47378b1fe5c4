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

/// A server of tools on loopback.
///
/// | path | what it does |
/// |---|---|
/// | `/answer` | answers at once with `{"did": args, "attempt": n}` |
/// | `/echo` | answers at once with the args themselves |
/// | `/around` | redirects to itself |
/// | `/slow` | like `/answer`, after 40 ms |
/// | `/pause` | like `/answer`, after `args.pause_ms` milliseconds |
/// | `/hold` | like `/answer`, once released |
/// | `/hang` | never answers |
/// | `/fail` | answers 500 |
/// | `/stream` | two lines of progress, then like `/answer`, as ndjson |
/// | `/deny` | answers like a hook that denies |
/// | `/drop` | breaks the connection in the middle of the body |
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
        "/fail" => (StatusCode::INTERNAL_SERVER_ERROR, "no").into_response(),
        "/stream" => {
            let lines = [json!({"progress": 1}), json!({"progress": 2}), json!({"result": answer})];
            let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
            ([(header::CONTENT_TYPE, "application/x-ndjson")], lines).into_response()
        }
        "/drop" => {
            let pieces = [Ok("{\"cut\":"), Err(std::io::Error::other("dropped"))];
            let body = Body::from_stream(futures::stream::iter(pieces));
            ([(header::CONTENT_TYPE, "application/json")], body).into_response()
        }
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}
