//! Recognises a server that speaks only HTTP+SSE, the transport of MCP before 2025-03-26, which the
//! node does not speak.

use std::time::Duration;

use reqwest::Client;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use tokio::time::timeout;

pub(super) const SSE_ONLY: &str = "it speaks only HTTP+SSE, the transport of MCP before 2025-03-26; \
                                   this node speaks Streamable HTTP";
/// Such a server names its endpoint at once. The question is asked only after a connection failed.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// The beginning of the stream that is read.
const MAX_PROBE_BYTES: usize = 1_024;

/// Whether a GET is answered with a stream of events whose first names an endpoint, as the
/// specification tells clients to find out.
pub(super) async fn is_sse_only(client: &Client, url: &str, headers: HeaderMap) -> bool {
    timeout(PROBE_TIMEOUT, names_endpoint(client, url, headers)).await.unwrap_or(false)
}

async fn names_endpoint(client: &Client, url: &str, headers: HeaderMap) -> bool {
    let request = client.get(url).headers(headers).header(ACCEPT, "text/event-stream");
    let Ok(mut response) = request.send().await else { return false };
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_stream = kind.is_some_and(|kind| kind.starts_with("text/event-stream"));
    if !response.status().is_success() || !is_stream {
        return false;
    }
    let mut beginning = Vec::new();
    while beginning.len() < MAX_PROBE_BYTES {
        let Ok(Some(chunk)) = response.chunk().await else { return false };
        beginning.extend_from_slice(&chunk);
        let text = String::from_utf8_lossy(&beginning);
        let event = text.lines().find_map(|line| line.strip_prefix("event:"));
        if let Some(event) = event.filter(|_| text.contains("\ndata:")) {
            return event.trim() == "endpoint";
        }
    }
    false
}
