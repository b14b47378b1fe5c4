//! Requests to nodes: the next node is asked when one is away, and nothing is done twice.

mod answer;
mod nodes;
mod request;
mod upload;

use std::time::{Duration, Instant};

use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use reqwest::redirect::Policy;
use serde_json::Value;

pub(crate) use answer::Answer;
pub(crate) use nodes::{Nodes, Port};
pub(crate) use request::Request;

use crate::error::CliError;
use crate::text;

/// How long a node may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer may take beyond what the request itself waits: a node gives up after 15 s.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a request is repeated that nodes are too busy for, or that was cut off.
const RETRY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait before all nodes are asked again.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// How much of a body `--verbose` shows.
const MAX_VERBOSE_CHARS: usize = 2_000;

/// Asks nodes over HTTP.
pub(crate) struct Http {
    client: reqwest::Client,
    nodes: Nodes,
    is_verbose: bool,
}

/// What became of one attempt.
enum Attempt {
    Answer(Answer),
    /// Nothing arrived at the node.
    NotSent(String),
    /// The node may or may not have done it.
    CutOff(String),
}

impl Http {
    pub(crate) fn new(nodes: Nodes, is_verbose: bool) -> Result<Self, CliError> {
        let mut builder = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .user_agent(concat!("abide/", env!("CARGO_PKG_VERSION")))
            // A credential follows nobody to another place.
            .redirect(Policy::none());
        if nodes.are_loopback() {
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|error| CliError::Failed(error.to_string()))?;
        Ok(Self { client, nodes, is_verbose })
    }

    /// The body of the answer of the first node that has one.
    pub(crate) async fn send(&self, request: &Request) -> Result<Value, CliError> {
        self.answer(request).await.map(|answer| answer.body)
    }

    /// The answer of the first node that has one. Whatever is sent again has the same
    /// `Idempotency-Key`.
    pub(crate) async fn answer(&self, request: &Request) -> Result<Answer, CliError> {
        let begun = Instant::now();
        let mut was_sent = false;
        loop {
            let mut reasons = Vec::new();
            for _ in 0..self.nodes.count(request.port) {
                match self.attempt(request).await? {
                    Attempt::Answer(answer) if answer.is_busy() && request.is_repeatable() => {
                        was_sent = true;
                        if begun.elapsed() >= request.patience.max(RETRY_TIMEOUT) {
                            return answer.accepted();
                        }
                        reasons.push("503".to_owned());
                    }
                    Attempt::Answer(answer) => return answer.accepted(),
                    Attempt::NotSent(reason) => reasons.push(reason),
                    Attempt::CutOff(reason) if request.is_repeatable() => {
                        was_sent = true;
                        reasons.push(reason);
                    }
                    Attempt::CutOff(reason) => return Err(CliError::Away(reason)),
                }
                self.nodes.turn(request.port);
            }
            // A node that was there a moment ago may be restarting.
            if !was_sent || begun.elapsed() >= request.patience.max(RETRY_TIMEOUT) {
                return Err(CliError::Away(reasons.join("; ")));
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    async fn attempt(&self, request: &Request) -> Result<Attempt, CliError> {
        let (node, token) = self.nodes.current(request.port);
        let url = request.url(node)?;
        let mut builder = self.client.request(request.method.clone(), url.clone());
        builder = builder.timeout(ANSWER_TIMEOUT + request.wait);
        if let Some(token) = token {
            builder = builder.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some(key) = &request.key {
            builder = builder.header("Idempotency-Key", key);
        }
        if let Some(body) = &request.body {
            builder = builder.header(CONTENT_TYPE, "application/json").body(body.to_string());
        }
        self.tell(|| format!("> {} {url} {}", request.method, request.shown_body()));
        let begun = Instant::now();
        let outcome = match builder.send().await {
            Ok(response) => Answer::read(response).await,
            Err(error) if error.is_connect() => {
                return Ok(Attempt::NotSent(format!("{node}: {}", reason(&error))));
            }
            Err(error) => Err(reason(&error)),
        };
        let took = begun.elapsed().as_millis();
        match outcome {
            Ok(answer) => {
                self.tell(|| format!("< {} after {took} ms", answer.status));
                Ok(Attempt::Answer(answer))
            }
            Err(reason) => {
                self.tell(|| format!("< {reason} after {took} ms"));
                Ok(Attempt::CutOff(format!("{node}: {reason}")))
            }
        }
    }

    /// Opens the stream of a conversation's events at one node; the next call tries the next one.
    pub(crate) async fn open_stream(
        &self,
        request: &Request,
        last_id: Option<&str>,
    ) -> Result<reqwest::Response, CliError> {
        let (node, token) = self.nodes.current(request.port);
        let url = request.url(node)?;
        let mut builder = self.client.get(url.clone()).header(ACCEPT, "text/event-stream");
        if let Some(token) = token {
            builder = builder.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some(id) = last_id {
            builder = builder.header("Last-Event-ID", id);
        }
        self.tell(|| format!("> GET {url}"));
        let opened = tokio::time::timeout(ANSWER_TIMEOUT, builder.send()).await;
        let response = match opened {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                self.nodes.turn(request.port);
                return Err(CliError::Away(format!("{node}: {}", reason(&error))));
            }
            Err(_) => {
                self.nodes.turn(request.port);
                return Err(CliError::Away(format!("{node}: timed out")));
            }
        };
        self.tell(|| format!("< {}", response.status()));
        if response.status().is_success() {
            return Ok(response);
        }
        let answer = Answer::read(response).await.map_err(CliError::Away)?;
        if answer.is_busy() {
            self.nodes.turn(request.port);
            return Err(CliError::Away(format!("{node}: 503")));
        }
        answer.accepted().map(|_| ()).and(Err(CliError::Failed("no stream came".to_owned())))
    }

    /// Asks the next node from now on.
    pub(crate) fn turn(&self, port: Port) {
        self.nodes.turn(port);
    }

    fn tell(&self, line: impl FnOnce() -> String) {
        use std::io::Write;
        if self.is_verbose {
            // A closed standard error keeps no request from being sent.
            let _ = writeln!(std::io::stderr(), "{}", text::one_line(&line(), MAX_VERBOSE_CHARS));
        }
    }
}

/// The innermost reason of a failure, without the URL.
fn reason(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "timed out".to_owned();
    }
    let mut inner: &dyn std::error::Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    text::one_line(&inner.to_string(), 200)
}
