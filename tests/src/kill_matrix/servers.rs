//! The servers that a turn awaits: a model, a tool and a hook, each with its points at the gate.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::gate::{Gate, Side};

/// The servers on one address. Dropping the value ends them.
pub(super) struct Servers {
    address: String,
    shared: Shared,
    server: JoinHandle<()>,
}

#[derive(Clone)]
struct Shared {
    gate: Gate,
    /// How often each was asked.
    counts: Arc<Mutex<BTreeMap<String, u64>>>,
    /// Counts up; each increment breaks the answers that are being written.
    cuts: watch::Sender<u64>,
}

impl Servers {
    pub(super) async fn start(gate: &Gate) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let cuts = watch::Sender::new(0);
        let shared = Shared { gate: gate.clone(), counts: Arc::default(), cuts };
        let router = Router::new().fallback(serve).with_state(shared.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, shared, server }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// How often the model, the tool and the hook were asked.
    pub(super) fn counts(&self) -> BTreeMap<String, u64> {
        self.shared.counts.lock().unwrap().clone()
    }

    /// Breaks every answer that has not been written.
    pub(super) fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(State(shared): State<Shared>, uri: Uri, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (name, kind, whole) = match uri.path() {
        "/tool" => ("tool", "application/json", json!({"paid": true}).to_string()),
        "/hook" => ("hook", "application/json", json!({}).to_string()),
        _ if has_result(&request) => ("model with results", "text/event-stream", reply(&request)),
        _ => ("model", "text/event-stream", reply(&request)),
    };
    *shared.counts.lock().unwrap().entry(name.to_owned()).or_default() += 1;
    let mut cuts = shared.cuts.subscribe();
    let gate = shared.gate.clone();
    let half = whole.len() / 2;
    // The request is there, and nothing is done; then half of the answer has been sent.
    let first = whole[..half].to_owned();
    let second = whole[half..].to_owned();
    let (before, after) = (gate.clone(), gate);
    let mut cuts_of_second = cuts.clone();
    let broken = || std::io::Error::other("the link is cut");
    tokio::select! {
        () = before.pass(name, Side::Before) => {}
        _ = cuts.changed() => {}
    }
    if cuts_of_second.has_changed().unwrap_or(true) {
        let pieces = futures::stream::iter([Err::<String, _>(broken())]);
        return ([(header::CONTENT_TYPE, kind)], Body::from_stream(pieces)).into_response();
    }
    let rest = async move {
        tokio::select! {
            () = after.pass(name, Side::After) => {}
            _ = cuts_of_second.changed() => return Err(broken()),
        }
        Ok(second)
    };
    let pieces = futures::stream::iter([Ok(first)]);
    let pieces = futures::StreamExt::chain(pieces, futures::stream::once(rest));
    ([(header::CONTENT_TYPE, kind)], Body::from_stream(pieces)).into_response()
}

/// The model calls the tool and the sub-agent once, and then ends the turn.
fn reply(request: &Value) -> String {
    let has_result = has_result(request);
    let call = |index: u64, name: &str, args: Value| {
        json!({"index": index, "id": name,
            "function": {"name": name, "arguments": args.to_string()}})
    };
    let delta = if has_result {
        json!({"content": "All is done."})
    } else {
        let calls =
            [call(0, "pay", json!({"to": "ada"})), call(1, "ask_kid", json!({"prompt": "7"}))];
        json!({"content": "I pay.", "tool_calls": calls})
    };
    let finish = if has_result { "stop" } else { "tool_calls" };
    let chunk = |delta: Value, finish: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        format!("data: {}\n\n", json!({"id": "c", "choices": [choice]}))
    };
    format!("{}{}data: [DONE]\n\n", chunk(delta, Value::Null), chunk(json!({}), json!(finish)))
}

fn has_result(request: &Value) -> bool {
    let messages = request["messages"].as_array();
    messages.into_iter().flatten().any(|message| message["role"] == "tool")
}
