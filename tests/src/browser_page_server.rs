//! The server of a test's browser pages, which act by themselves, report what they do, and wait to
//! be released.

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
/// The directory of the modules under test, as they are in the tree now.
const MODULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../nodes/console");

/// A server of pages on loopback.
///
/// | path | what it does |
/// |---|---|
/// | `/` | a page that runs the test's module, `/page.js`, which imports `/abide.js` |
/// | `/report` | records a report of a page |
/// | `/hold` | records a report of a page, and answers once released |
/// | `/leave` | answers, once a page is dismissed, with its name |
pub struct PageServer {
    /// The pages' reports.
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
        let module = |name: &str| std::fs::read_to_string(format!("{MODULES}/{name}")).unwrap();
        let modules = ["abide.js", "credential.js", "frames.js"].map(|name| (name, module(name)));
        let file =
            |text: String| async move { ([(header::CONTENT_TYPE, "text/javascript")], text) };
        let of_modules = modules.into_iter().fold(Router::new(), |router, (name, text)| {
            router.route(&format!("/{name}"), get(move || file(text)))
        });
        let router = of_modules
            .route("/", get(async || ([(header::CONTENT_TYPE, "text/html")], HTML)))
            .route(
                "/page.js",
                get(move |State(shared): State<Shared>| file(shared.script.to_owned())),
            )
            .route("/report", post(report))
            .route("/hold", post(hold))
            .route("/leave", get(leave))
            .with_state(shared.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { requests: shared.requests.clone(), address, shared, server }
    }

    /// The origin of its pages, as a browser sends it.
    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Releases every held page, including later ones.
    pub fn release(&self) {
        self.shared.open.send_replace(true);
    }

    /// Dismisses the page of this name.
    pub fn dismiss(&self, name: &str) {
        self.shared.leaver.send_replace(name.to_owned());
    }

    /// The reports that have this key, in order.
    pub fn reports(&self, key: &str) -> Vec<Value> {
        let all = self.requests.all().into_iter().map(|request| request.body);
        all.filter(|body| body.get(key).is_some()).collect()
    }
}

impl Drop for PageServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn report(
    State(shared): State<Shared>,
    headers: HeaderMap,
    body: Bytes,
) -> impl IntoResponse {
    shared.requests.record("/report", &headers, &body);
}

async fn hold(State(shared): State<Shared>, headers: HeaderMap, body: Bytes) -> impl IntoResponse {
    shared.requests.record("/hold", &headers, &body);
    // The sender is part of the shared state: this cannot fail.
    let _ = shared.open.subscribe().wait_for(|open| *open).await;
}

async fn leave(State(shared): State<Shared>) -> impl IntoResponse {
    let mut leaver = shared.leaver.subscribe();
    let name = leaver.wait_for(|name| !name.is_empty()).await;
    name.map(|name| name.clone()).unwrap_or_default()
}
