//! A log of the requests to a test server, and a way to wait for them.

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;

use crate::deadline::within;

/// One request as it was received.
#[derive(Clone, Debug)]
pub struct Request {
    pub path: String,
    /// The names are in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Value,
    pub at: Timestamp,
}

impl Request {
    /// The value of a header; empty when the request has no such header.
    pub fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).unwrap_or_default()
    }
}

impl Request {
    /// The call that a tool was asked to run: `CONVERSATION/CALL`.
    pub fn call(&self) -> String {
        let field = |name: &str| self.body[name].as_str().unwrap_or_default();
        format!("{}/{}", field("conversation_id"), field("call_id"))
    }

    /// Whether the idempotency key names the call, alone or with the turn.
    pub fn has_key_of_call(&self) -> bool {
        let turn = self.header("idempotency-key").strip_prefix(&self.call());
        turn.is_some_and(|turn| turn.is_empty() || turn.starts_with('/'))
    }
}

/// All requests that were received so far.
#[derive(Clone)]
pub struct RequestLog(watch::Sender<Vec<Request>>);

impl Default for RequestLog {
    fn default() -> Self {
        Self(watch::channel(Vec::new()).0)
    }
}

impl RequestLog {
    /// Every request, oldest first.
    pub fn all(&self) -> Vec<Request> {
        self.0.borrow().clone()
    }

    /// Waits for the request number `count`, counted from 1, and returns it.
    pub async fn nth(&self, count: usize) -> Request {
        let mut all = self.0.subscribe();
        let what = format!("request {count} to a server");
        let all = within(&what, all.wait_for(|all| all.len() >= count)).await.unwrap();
        all[count - 1].clone()
    }

    pub(crate) fn record(&self, path: &str, headers: &axum::http::HeaderMap, body: &[u8]) {
        let text = |value: &axum::http::HeaderValue| {
            String::from_utf8_lossy(value.as_bytes()).into_owned()
        };
        let headers = headers.iter().map(|(name, value)| (name.to_string(), text(value)));
        let request = Request {
            path: path.to_owned(),
            headers: headers.collect(),
            body: serde_json::from_slice(body).unwrap_or(Value::Null),
            at: Timestamp::now(),
        };
        self.0.send_modify(|all| all.push(request));
    }
}
