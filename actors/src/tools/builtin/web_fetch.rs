//! `web_fetch`: fetches a page from the public web.

use std::time::Duration;

use serde_json::{Value, json};

use crate::tools::{ToolEnvironment, ToolReturn};
use crate::web_fetch::Fetcher;

pub(super) const DESCRIPTION: &str = "Fetches a page of the public web by HTTP GET and returns its \
    body; HTML is turned into text, with the address of each link in parentheses after it. \
    Follows up to 5 redirects. Hosts with private addresses are refused unless they were allowed.";

const DEFAULT_TIMEOUT_MS: u64 = 10_000;
const MAX_TIMEOUT_MS: u64 = 60_000;
const DEFAULT_CHARS: u64 = 20_000;
const MAX_CHARS: u64 = 100_000;
const TRUNCATION_MARK: &str = "[...truncated...]";

pub(super) fn parameters() -> Value {
    json!({
        "type": "object",
        "properties": {
            "url": {"type": "string", "description": "An absolute http or https URL."},
            "timeout_ms": {
                "type": "integer", "minimum": 1, "maximum": MAX_TIMEOUT_MS,
                "default": DEFAULT_TIMEOUT_MS,
                "description": "The time for all of it, redirects included.",
            },
            "max_chars": {
                "type": "integer", "minimum": 1, "maximum": MAX_CHARS, "default": DEFAULT_CHARS,
                "description": "Longer text is cut here.",
            },
        },
        "required": ["url"],
        "additionalProperties": false,
    })
}

/// Fetches the page. The text is cut after `max_chars` characters. A mark shows that it was cut, or
/// that the page was not read to its end.
pub(super) async fn run(
    args: &Value,
    ToolEnvironment { allowed_hosts, outbound, .. }: &ToolEnvironment,
    fetcher: &Fetcher,
) -> ToolReturn {
    let Some(url) = args["url"].as_str().filter(|url| !url.trim().is_empty()) else {
        return ToolReturn::builtin_error("missing_url", "");
    };
    let timeout_ms = args["timeout_ms"].as_u64().unwrap_or(DEFAULT_TIMEOUT_MS).min(MAX_TIMEOUT_MS);
    let max_chars = args["max_chars"].as_u64().unwrap_or(DEFAULT_CHARS).min(MAX_CHARS);
    let timeout = Duration::from_millis(timeout_ms);
    let page = match fetcher.fetch(url, allowed_hosts, outbound, timeout).await {
        Ok(page) => page,
        // An error's text begins with its code.
        Err(error) => return ToolReturn::error(error.to_string()),
    };
    let mut text = page.text;
    let end = text.char_indices().nth(max_chars as usize).map(|(end, _)| end);
    let truncated = page.truncated || end.is_some();
    let payload = json!({"url": page.url, "status": page.status, "truncated": truncated});
    if truncated {
        text.truncate(end.unwrap_or(text.len()));
        text.push_str(TRUNCATION_MARK);
    }
    ToolReturn::ok(text).with_ui("webpage", payload)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use abide_conversation::message::{ErrorType, Outcome};
    use axum::Router;
    use axum::http::StatusCode;
    use axum::response::{Html, Redirect};
    use axum::routing::get;
    use tokio::net::TcpListener;

    use super::*;

    /// Serves a site until the test's runtime ends.
    async fn site() -> String {
        let app = Router::new()
            .route("/old", get(|| async { Redirect::permanent("/page") }))
            .route("/page", get(|| async { Html("<h1>Größe</h1><p>and weight") }))
            .route("/big", get(|| async { Html("ab".to_owned() + &"<p></p>".repeat(200_000)) }))
            .route("/gone", get(|| async { StatusCode::GONE }))
            .route("/never", get(std::future::pending::<()>));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let site = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        site
    }

    async fn fetch_page(args: Value) -> ToolReturn {
        let allowed_hosts = vec!["127.0.0.1".to_owned()];
        let environment = ToolEnvironment { allowed_hosts, ..Default::default() };
        run(&args, &environment, &Fetcher::new().unwrap()).await
    }

    #[tokio::test]
    async fn a_page_returns_its_text_and_its_final_url() {
        let site = site().await;
        let expected = ToolReturn::ok("# Größe\n\nand weight").with_ui(
            "webpage",
            json!({"url": format!("{site}/page"), "status": 200, "truncated": false}),
        );
        assert_eq!(fetch_page(json!({"url": format!("{site}/old")})).await, expected);
    }

    #[tokio::test]
    async fn a_long_page_is_cut_between_characters_and_says_so() {
        let site = site().await;
        let url = format!("{site}/page");
        let ui = json!({"url": url, "status": 200, "truncated": true});
        let expected = ToolReturn::ok("# Grö[...truncated...]").with_ui("webpage", ui);
        assert_eq!(fetch_page(json!({"url": url, "max_chars": 5})).await, expected);
        let whole = fetch_page(json!({"url": url, "max_chars": 19})).await;
        assert_eq!(whole.outcome, Outcome::Ok("# Größe\n\nand weight".into()));

        let url = format!("{site}/big");
        let ui = json!({"url": url, "status": 200, "truncated": true});
        let expected = ToolReturn::ok("ab[...truncated...]").with_ui("webpage", ui);
        assert_eq!(fetch_page(json!({"url": url})).await, expected);
    }

    #[tokio::test]
    async fn each_failure_has_its_code() {
        let site = site().await;
        for (args, expected) in [
            (json!({}), "missing_url"),
            (json!({"url": null}), "missing_url"),
            (json!({"url": " "}), "missing_url"),
            (json!({"url": "ftp://example.com/x"}), "invalid_scheme: ftp"),
            (json!({"url": "http://"}), "missing_host"),
            (json!({"url": "http://127.0.0.2/"}), "blocked_host: 127.0.0.2"),
            (json!({"url": format!("{site}/gone")}), "http_error: 410"),
            (
                json!({"url": format!("{site}/never"), "timeout_ms": 50}),
                "fetch_failed: timed out after 50 ms",
            ),
        ] {
            let Outcome::Err(message, error_type) = fetch_page(args).await.outcome else {
                unreachable!("{expected}")
            };
            assert_eq!((message.as_str(), error_type), (expected, ErrorType::ToolError));
        }
    }
}
