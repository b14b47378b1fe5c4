//! The origin of a test's pages: they act by themselves, tell what they do, and wait to be let go.

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::request_log::RequestLog;

const HTML: &str = "<!doctype html><meta charset=\"utf-8\"><script type=\"module\" src=\"/page.js\">\
    </script>";
/// The module under test, as it is in the tree now.
const ABIDE_JS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../nodes/console/abide.js");

/// A server of pages on loopback.
///
/// | path | what it does |
/// |---|---|
/// | `/` | a page that runs the test's module, `/page.js`; `/abide.js` is beside it |
/// | `/told` | notes what a page tells |
/// | `/held` | the same, and answers once released |
/// | `/leave` | answers with the name of who is to leave, once somebody is |
pub struct PageServer {
    /// What pages told.
    pub requests: RequestLog,
    address: String,
    shared: Shared,
    server: tokio::task::JoinHandle<()>,
}

#[derive(Clone)]
struct Shared {
    requests: RequestLog,
    script: &'static str,
    open: watch::Sender<bool>,
    leaver: watch::Sender<String>,
}

impl PageServer {
    /// Serves pages with this module on a free port, for as long as the value lives.
    pub async fn start(script: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (open, leaver) = (watch::channel(false).0, watch::channel(String::new()).0);
        let shared = Shared { requests: RequestLog::default(), script, open, leaver };
        let module = std::fs::read_to_string(ABIDE_JS).unwrap();
        let file =
            |text: String| async move { ([(header::CONTENT_TYPE, "text/javascript")], text) };
        let router = Router::new()
            .route("/", get(async || ([(header::CONTENT_TYPE, "text/html")], HTML)))
            .route("/abide.js", get(move || file(module)))
            .route(
                "/page.js",
                get(move |State(shared): State<Shared>| file(shared.script.to_owned())),
            )
            .route("/told", post(told))
            .route("/held", post(held))
            .route("/leave", get(leave))
            .with_state(shared.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { requests: shared.requests.clone(), address, shared, server }
    }

    /// Where its pages are from, as a browser says it.
    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Lets every held page go on, those to come included.
    pub fn release(&self) {
        self.shared.open.send_replace(true);
    }

    /// Tells this page to leave.
    pub fn dismiss(&self, name: &str) {
        self.shared.leaver.send_replace(name.to_owned());
    }

    /// What pages told under this key, in order.
    pub fn told(&self, key: &str) -> Vec<Value> {
        let all = self.requests.all().into_iter().map(|request| request.body);
        all.filter(|body| body.get(key).is_some()).collect()
    }
}

impl Drop for PageServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn told(State(shared): State<Shared>, headers: HeaderMap, body: Bytes) -> impl IntoResponse {
    shared.requests.record("/told", &headers, &body);
}

async fn held(State(shared): State<Shared>, headers: HeaderMap, body: Bytes) -> impl IntoResponse {
    shared.requests.record("/held", &headers, &body);
    // The sender lives in the shared: this cannot fail.
    let _ = shared.open.subscribe().wait_for(|open| *open).await;
}

async fn leave(State(shared): State<Shared>) -> impl IntoResponse {
    let mut leaver = shared.leaver.subscribe();
    let named = leaver.wait_for(|name| !name.is_empty()).await;
    named.map(|name| name.clone()).unwrap_or_default()
}
