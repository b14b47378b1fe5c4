//! An OTLP collector that records the spans that it receives.

use std::collections::BTreeMap;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1 as wire;
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::deadline::within;

/// A span as it was exported.
#[derive(Clone, Debug)]
pub struct Span {
    pub trace: String,
    pub id: String,
    /// Empty for a root span.
    pub parent: String,
    pub name: String,
    pub kind: i32,
    /// The duration in nanoseconds.
    pub took: u64,
    pub failed: bool,
    /// The trace and the id of each span that it is linked to.
    pub links: Vec<(String, String)>,
    pub attributes: BTreeMap<String, String>,
    /// The attributes of the process that sent it.
    pub resource: BTreeMap<String, String>,
}

impl Span {
    /// The value of an attribute; empty if the span has no such attribute.
    pub fn get(&self, name: &str) -> &str {
        self.attributes.get(name).map(String::as_str).unwrap_or_default()
    }
}

/// A collector on loopback, for as long as the value lives.
pub struct Collector {
    address: String,
    received: ReceivedSpans,
    server: tokio::task::JoinHandle<()>,
}

/// The spans, and all bytes that were received.
#[derive(Clone)]
struct ReceivedSpans(watch::Sender<(Vec<Span>, Vec<u8>)>);

impl Collector {
    /// Serves on a free port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let received = ReceivedSpans(watch::channel(Default::default()).0);
        let router = Router::new().route("/v1/traces", post(take)).with_state(received.clone());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, received, server }
    }

    /// The collector's URL, for `--otlp`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The spans that were received so far.
    pub fn spans(&self) -> Vec<Span> {
        self.received.0.borrow().0.clone()
    }

    /// All bytes that were received so far.
    pub fn bytes(&self) -> Vec<u8> {
        self.received.0.borrow().1.clone()
    }

    /// Waits until the condition holds for the spans, and returns them.
    pub async fn wait_for(&self, what: &str, condition: impl Fn(&[Span]) -> bool) -> Vec<Span> {
        let mut received = self.received.0.subscribe();
        within(what, received.wait_for(|(spans, _)| condition(spans))).await.unwrap();
        self.spans()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn take(State(received): State<ReceivedSpans>, body: Bytes) -> StatusCode {
    let Ok(request) = ExportTraceServiceRequest::decode(&*body) else {
        return StatusCode::BAD_REQUEST;
    };
    let mut spans = Vec::new();
    for sent in request.resource_spans {
        let resource = attributes(sent.resource.map(|it| it.attributes).unwrap_or_default());
        let of_scopes = sent.scope_spans.into_iter().flat_map(|scope| scope.spans);
        spans.extend(of_scopes.map(|span| read(span, &resource)));
    }
    received.0.send_modify(|(known, bytes)| {
        known.extend(spans);
        bytes.extend_from_slice(&body);
    });
    StatusCode::OK
}

fn read(span: wire::Span, resource: &BTreeMap<String, String>) -> Span {
    let failed = wire::status::StatusCode::Error as i32;
    let linked = |link: wire::span::Link| (hex(&link.trace_id), hex(&link.span_id));
    Span {
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        name: span.name,
        kind: span.kind,
        took: span.end_time_unix_nano - span.start_time_unix_nano,
        failed: span.status.is_some_and(|status| status.code == failed),
        links: span.links.into_iter().map(linked).collect(),
        attributes: attributes(span.attributes),
        resource: resource.clone(),
    }
}

fn attributes(given: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |value: Option<AnyValue>| match value.and_then(|value| value.value) {
        Some(any_value::Value::StringValue(text)) => text,
        Some(any_value::Value::IntValue(whole)) => whole.to_string(),
        Some(any_value::Value::DoubleValue(float)) => float.to_string(),
        other => format!("{other:?}"),
    };
    given.into_iter().map(|pair| (pair.key, text(pair.value))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
