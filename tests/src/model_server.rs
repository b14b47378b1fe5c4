//! A chat-completions server that answers with the replies that a test has programmed.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;

use crate::request_log::RequestLog;

/// A part of a programmed reply.
#[derive(Clone, Debug)]
pub enum Piece {
    Text(&'static str),
    /// id, name, arguments
    Call(&'static str, &'static str, Value),
    /// The reply pauses here until the server is released.
    Hold,
    /// The connection breaks here.
    Die,
}

/// A model server on loopback. Each request is answered with the next programmed reply, or with
/// `Done.` when there is none.
pub struct ModelServer {
    pub requests: RequestLog,
    address: String,
    shared: Shared,
    server: tokio::task::JoinHandle<()>,
}

#[derive(Clone)]
struct Shared {
    requests: RequestLog,
    replies: Arc<Mutex<VecDeque<Vec<Piece>>>>,
    open: watch::Sender<bool>,
}

impl ModelServer {
    /// Serves on a free port, for as long as the value lives.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let open = watch::channel(false).0;
        let shared = Shared { requests: RequestLog::default(), replies: Arc::default(), open };
        let router = Router::new().fallback(serve).with_state(shared.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { requests: shared.requests.clone(), address, shared, server }
    }

    /// Programs the next reply.
    pub fn reply(&self, pieces: Vec<Piece>) {
        self.shared.replies.lock().unwrap().push_back(pieces);
    }

    /// Lets held replies go on, including later ones.
    pub fn release(&self) {
        self.shared.open.send_replace(true);
    }

    /// The `model` section of an agent that uses this server.
    pub fn model(&self) -> Value {
        let base_url = format!("http://{}/v1", self.address);
        json!({"provider": "openai", "name": "test", "base_url": base_url})
    }

    /// Fails if a request contained a call without its result, or a result without its call.
    pub fn assert_prompts_are_whole(&self) {
        for request in self.requests.all() {
            let messages = request.body["messages"].as_array().unwrap();
            let calls = messages.iter().flat_map(|message| message["tool_calls"].as_array());
            let call_ids: BTreeSet<_> =
                calls.flatten().map(|call| call["id"].to_string()).collect();
            let results = messages.iter().filter(|message| message["role"] == "tool");
            let result_ids: BTreeSet<_> =
                results.map(|message| message["tool_call_id"].to_string()).collect();
            assert_eq!(call_ids, result_ids, "calls and results in {:#}", request.body);
        }
    }
}

impl Drop for ModelServer {
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
    let next = shared.replies.lock().unwrap().pop_front();
    let pieces = next.unwrap_or_else(|| vec![Piece::Text("Done.")]);
    // More than the parts of any programmed reply.
    let (bytes, stream) = mpsc::channel(64);
    tokio::spawn(write(shared.open, pieces, bytes));
    let body = Body::from_stream(ReceiverStream::new(stream));
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}

type Chunk = Result<String, std::io::Error>;

async fn write(open: watch::Sender<bool>, pieces: Vec<Piece>, bytes: mpsc::Sender<Chunk>) {
    let chunk = |delta: Value, finish: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        Ok(format!("data: {}\n\n", json!({"id": "c", "choices": [choice]})))
    };
    let (mut calls, mut finish) = (0, "stop");
    for piece in pieces {
        let written = match piece {
            Piece::Text(text) => chunk(json!({"content": text}), Value::Null),
            Piece::Call(id, name, args) => {
                let function = json!({"name": name, "arguments": args.to_string()});
                let call =
                    json!({"index": calls, "id": id, "type": "function", "function": function});
                calls += 1;
                finish = "tool_calls";
                chunk(json!({"tool_calls": [call]}), Value::Null)
            }
            Piece::Hold => {
                tokio::select! {
                    () = wait_until_open(open.subscribe()) => continue,
                    () = bytes.closed() => return,
                }
            }
            Piece::Die => Err(std::io::Error::other("died")),
        };
        if bytes.send(written).await.is_err() {
            return;
        }
    }
    let _ = bytes.send(chunk(json!({}), json!(finish))).await;
    let _ = bytes.send(Ok("data: [DONE]\n\n".to_owned())).await;
}

async fn wait_until_open(mut gate: watch::Receiver<bool>) {
    // The sender is gone with its server: then nothing is left to wait for.
    let _ = gate.wait_for(|open| *open).await;
}
