//! A node on ports of its own, and a client that believes nothing.

use std::time::Duration;

use abide::config::Cli;
use abide::node::Node;
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
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Api {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// The same, with more flags.
    pub(crate) async fn start_with(flags: &[&str]) -> Self {
        let arguments = ["abide", "--store", "memory", "--node", "n1"];
        let ports = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
        let cli = Cli::parse_from(arguments.iter().chain(&ports).chain(flags));
        let node = Node::start(cli.serve, None).await.unwrap();
        let base = format!("http://{}", node.public);
        let client = reqwest::Client::builder().timeout(DEADLINE).build().unwrap();
        Self { node, spec: Spec::new(), base, client }
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        self.client.request(method, format!("{}{path}", self.base))
    }

    /// Sends a request and holds the answer against the document.
    pub(crate) async fn send(&self, request: RequestBuilder) -> Answer {
        let request = request.build().unwrap();
        let (method, path) = (request.method().to_string(), request.url().path().to_owned());
        let response = self.client.execute(request).await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let bytes = response.bytes().await.unwrap();
        let body = match bytes.is_empty() {
            true => Value::Null,
            false => serde_json::from_slice(&bytes).unwrap(),
        };
        let answer = Answer { status, headers, body };
        self.spec.judge((&method, &path), status, answer.media(), &answer.body);
        answer
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(self.request("GET", path)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send(self.request("DELETE", path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.with_body("POST", path, body).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Answer {
        self.with_body("PUT", path, body).await
    }

    async fn with_body(&self, method: &str, path: &str, body: Value) -> Answer {
        let answer = self.send(self.request(method, path).json(&body)).await;
        if answer.status < 300 {
            self.spec.accepts((method, path), &body);
        }
        answer
    }

    /// The same, under a key.
    pub(crate) async fn keyed(&self, key: &str, method: &str, path: &str, body: Value) -> Answer {
        let request = self.request(method, path).header("Idempotency-Key", key);
        match body.is_null() {
            true => self.send(request).await,
            false => self.send(request.json(&body)).await,
        }
    }

    pub(crate) async fn stream(&self, path: &str) -> Stream {
        Stream::open(self.request("GET", path)).await
    }

    /// Says something to the demo agent, in a conversation that may be new.
    pub(crate) async fn say(&self, id: &str, text: &str) -> Answer {
        let path = format!("/v1/conversations/{id}/messages");
        self.post(&path, json!({"agent": "demo", "text": text})).await
    }

    /// Says something, and waits until a frame of that name comes; returns its data.
    pub(crate) async fn say_until(&self, id: &str, text: &str, frame: &str) -> Value {
        assert_eq!(self.say(id, text).await.status, 202);
        let mut stream = self.stream(&format!("/v1/conversations/{id}/events?after=0")).await;
        stream.until(frame).await.data
    }

    /// Bytes as they are, on a connection of their own; what came back until it was closed.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> String {
        let mut socket = TcpStream::connect(self.node.public).await.unwrap();
        let (mut read, mut write) = socket.split();
        let mut answer = Vec::new();
        let sent = async {
            // A node that has heard enough may close.
            let _ = write.write_all(bytes).await;
        };
        let heard = async {
            let _ = read.read_to_end(&mut answer).await;
        };
        tokio::time::timeout(DEADLINE, async { tokio::join!(sent, heard) }).await.unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }
}

impl Answer {
    pub(crate) fn media(&self) -> &str {
        self.headers.get("content-type").map_or("", |media| media.to_str().unwrap())
    }

    /// Panics unless it is this problem, with all its members.
    pub(crate) fn is_problem(&self, status: u16, name: &str) -> &str {
        assert_eq!((self.status, self.media()), (status, "application/problem+json"), "{self:?}");
        assert_eq!(self.body["type"], format!("/problems/{name}"), "{self:?}");
        assert_eq!(self.body["status"], status, "{self:?}");
        for member in ["title", "detail", "instance"] {
            assert!(self.body[member].as_str().is_some_and(|said| !said.is_empty()), "{self:?}");
        }
        self.body["detail"].as_str().unwrap()
    }

    /// Panics unless it says that this field is wrong.
    pub(crate) fn names(&self, field: &str) {
        let detail = self.is_problem(422, "invalid-request");
        assert!(detail.contains(field), "{field} is not named: {detail}");
    }
}
