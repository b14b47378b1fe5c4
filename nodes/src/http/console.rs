//! Serves the web console and `abide.js`, the module for any page, from files built into the program.

mod file;
mod settings;

use std::sync::LazyLock;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Redirect, Response};

use super::Api;
use super::extract::Path;
use super::problem::Problem;
use crate::access::permission::Anybody;
use crate::access::routes::{DeclaredRouter, GET};
use crate::access::{AccessControl, Allowed};
use file::ConsoleFile;
pub(crate) use settings::{Listener, settings};

/// The paths below `/console/` and the texts of files, each of which is named once.
macro_rules! files {
    ($($path:literal)*) => {
        [$(($path, include_str!(concat!("../../console/", $path)))),*]
    };
}

/// The page itself, which is at `/console/`.
const INDEX_PATH: &str = "index.html";
/// A new file of the console needs a line here, and nothing else.
const FILES: &[(&str, &str)] = &files![
    "index.html"
    "console.css"
    "views.css"
    "abide.js"
    "answer-card.js"
    "call-card.js"
    "calls.js"
    "console.js"
    "credential.js"
    "fields.js"
    "frames.js"
    "html.js"
    "journal.js"
    "lexer.js"
    "markdown.js"
    "notices.js"
    "parts.js"
    "poll.js"
    "router.js"
    "schema.js"
    "session.js"
    "sign-in.js"
    "start.js"
    "text.js"
    "views.js"
    "views/agents.js"
    "views/agents/revisions.js"
    "views/cluster.js"
    "views/conversation.js"
    "views/conversation/composer.js"
    "views/conversation/facts.js"
    "views/conversation/queue.js"
    "views/conversations.js"
    "views/erasures.js"
    "views/inbox.js"
    "views/inbox/recent.js"
    "views/inbox/rows.js"
    "views/queues.js"
    "views/schedules.js"
    "views/webhooks.js"
    "views/why.js"
    "views/why/timeline.js"
    "vendor/hooks.js"
    "vendor/htm.js"
    "vendor/preact.js"
];

/// Every file of the console by its path, with its text.
#[doc(hidden)]
pub fn files() -> &'static [(&'static str, &'static str)] {
    FILES
}

pub(super) fn router() -> DeclaredRouter<Api> {
    DeclaredRouter::new()
        .route(GET, "/console", redirect)
        .route(GET, "/console/", page)
        .route(GET, "/console/config.json", public_settings)
        .route(GET, "/console/{*file}", file_by_path)
}

async fn redirect(_: Allowed<Anybody>) -> Redirect {
    Redirect::permanent("/console/")
}

async fn page(
    _: Allowed<Anybody>,
    State(access): State<AccessControl>,
    headers: HeaderMap,
) -> Response {
    file(INDEX_PATH, &headers, &access)
}

async fn public_settings(
    _: Allowed<Anybody>,
    State(access): State<AccessControl>,
) -> impl IntoResponse {
    settings(&access, Listener::Public)
}

async fn file_by_path(
    _: Allowed<Anybody>,
    State(access): State<AccessControl>,
    Path(path): Path<String>,
    headers: HeaderMap,
) -> Response {
    // A page has one address.
    if path == INDEX_PATH {
        return Problem::not_found("path").into_response();
    }
    file(&path, &headers, &access)
}

/// Serves a file that a browser may cache but must revalidate.
fn file(path: &str, headers: &HeaderMap, access: &AccessControl) -> Response {
    static PREPARED: LazyLock<Vec<ConsoleFile>> =
        LazyLock::new(|| FILES.iter().map(|(path, text)| ConsoleFile::new(path, text)).collect());
    let Some(file) = PREPARED.iter().find(|known| known.path == path) else {
        return Problem::not_found("path").into_response();
    };
    let response_headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(media_type(path))),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::CONTENT_SECURITY_POLICY, content_security_policy(access)),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    (response_headers, file.respond(headers)).into_response()
}

fn media_type(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        _ => "text/javascript; charset=utf-8",
    }
}

/// The page loads only what this node serves, and no other page may frame it. It sends requests to this
/// node, and to the issuers of the auth file that people sign in with.
fn content_security_policy(access: &AccessControl) -> HeaderValue {
    let sign_ins = access.sign_ins().unwrap_or_default();
    let origins: Vec<String> = sign_ins.iter().flat_map(|it| it.origins()).collect();
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src {}; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        [vec!["'self'".to_owned()], origins].concat().join(" "),
    );
    HeaderValue::from_str(&policy).expect("origins are of visible characters")
}
