//! A node on its own ports, and a client that checks every response against the document.

use std::time::Duration;

use abide::Node;
use abide::config::Cli;
use clap::Parser;
use reqwest::header::HeaderMap;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::spec::Spec;
use crate::stream::Stream;

/// Longer than anything here takes.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) struct Api {
    pub(crate) node: Node,
    pub(crate) spec: Spec,
    base: String,
    client: reqwest::Client,
}

#[derive(Debug)]
pub(crate) struct ApiResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Api {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// A node with these flags in addition.
    pub(crate) async fn start_with(flags: &[&str]) -> Self {
        let arguments = ["abide", "--store", "memory", "--node", "n1"];
        let ports = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
        let cli = Cli::parse_from(arguments.iter().chain(&ports).chain(flags));
        let node = Node::builder(cli.serve).start().await.unwrap();
        let base = format!("http://{}", node.public);
        let client = reqwest::Client::builder().timeout(DEADLINE).build().unwrap();
        Self { node, spec: Spec::new(), base, client }
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        self.client.request(method, format!("{}{path}", self.base))
    }

    /// Sends a request and checks the response against the document.
    pub(crate) async fn send(&self, request: RequestBuilder) -> ApiResponse {
        let request = request.build().unwrap();
        let (method, path) = (request.method().to_string(), request.url().path().to_owned());
        let received = self.client.execute(request).await.unwrap();
        let (status, headers) = (received.status().as_u16(), received.headers().clone());
        let bytes = received.bytes().await.unwrap();
        let body =
            if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).unwrap() };
        let response = ApiResponse { status, headers, body };
        self.spec.check_response((&method, &path), status, response.media(), &response.body);
        response
    }

    pub(crate) async fn get(&self, path: &str) -> ApiResponse {
        self.send(self.request("GET", path)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> ApiResponse {
        self.send(self.request("DELETE", path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> ApiResponse {
        self.with_body("POST", path, body).await
    }

    pub(crate) async fn patch(&self, path: &str, body: Value) -> ApiResponse {
        self.with_body("PATCH", path, body).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> ApiResponse {
        self.with_body("PUT", path, body).await
    }

    async fn with_body(&self, method: &str, path: &str, body: Value) -> ApiResponse {
        let response = self.send(self.request(method, path).json(&body)).await;
        if response.status < 300 {
            self.spec.accepts((method, path), &body);
        }
        response
    }

    /// Sends a request with an `Idempotency-Key`.
    pub(crate) async fn keyed(
        &self,
        key: &str,
        method: &str,
        path: &str,
        body: Value,
    ) -> ApiResponse {
        let request = self.request(method, path).header("Idempotency-Key", key);
        if body.is_null() { self.send(request).await } else { self.send(request.json(&body)).await }
    }

    pub(crate) async fn stream(&self, path: &str) -> Stream {
        Stream::open(self.request("GET", path)).await
    }

    /// Sends a text to the demo agent, in a conversation that may be new.
    pub(crate) async fn say(&self, id: &str, text: &str) -> ApiResponse {
        let path = format!("/v1/conversations/{id}/messages");
        self.post(&path, json!({"agent": "demo", "text": text})).await
    }

    /// Sends a text to the demo agent and returns the data of the first frame of this name.
    pub(crate) async fn say_until(&self, id: &str, text: &str, frame: &str) -> Value {
        assert_eq!(self.say(id, text).await.status, 202);
        let mut stream = self.stream(&format!("/v1/conversations/{id}/events?after=0")).await;
        stream.until(frame).await.data
    }

    /// Sends raw bytes on a new connection and returns all that comes back until it is closed.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> String {
        let mut socket = TcpStream::connect(self.node.public).await.unwrap();
        let (mut read, mut write) = socket.split();
        let mut bytes_read = Vec::new();
        let sent = async {
            // The node may close the connection before it has read everything.
            let _ = write.write_all(bytes).await;
        };
        let received = async {
            let _ = read.read_to_end(&mut bytes_read).await;
        };
        tokio::time::timeout(DEADLINE, async { tokio::join!(sent, received) }).await.unwrap();
        String::from_utf8_lossy(&bytes_read).into_owned()
    }
}

impl ApiResponse {
    pub(crate) fn media(&self) -> &str {
        self.headers.get("content-type").map_or("", |media| media.to_str().unwrap())
    }

    /// The detail of this problem; panics if the response is another, or lacks a member.
    pub(crate) fn is_problem(&self, status: u16, name: &str) -> &str {
        assert_eq!((self.status, self.media()), (status, "application/problem+json"), "{self:?}");
        assert_eq!(self.body["type"], format!("/problems/{name}"), "{self:?}");
        assert_eq!(self.body["status"], status, "{self:?}");
        for member in ["title", "detail", "instance"] {
            assert!(self.body[member].as_str().is_some_and(|text| !text.is_empty()), "{self:?}");
        }
        self.body["detail"].as_str().unwrap()
    }

    /// Panics unless the response is a 422 that names this field.
    pub(crate) fn names(&self, field: &str) {
        let detail = self.is_problem(422, "invalid-request");
        assert!(detail.contains(field), "{field} is not named: {detail}");
    }
}
