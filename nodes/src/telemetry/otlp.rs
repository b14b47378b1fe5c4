//! Exports spans by OTLP over HTTP, in batches, from a bounded queue; no request ever waits for it.

use std::time::Duration;

use abide_actors::identity::NodeName;
use abide_actors::trace::{self, Span, Tracer};
use opentelemetry::InstrumentationScope;
use opentelemetry::trace::{SpanKind, TraceId};
use opentelemetry_otlp::{RetryPolicy, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    Config as Sampling, SamplingDecision, ShouldSample, SpanData, SpanExporter as _,
};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::spans;
use crate::config::Config;
use crate::start_error::StartError;

/// Spans that wait to be exported, a second or two at full load; more are dropped.
const MAX_QUEUED_SPANS: usize = 8_192;
/// The spans of one export, and how long the first of them waits for the others.
const MAX_BATCH_SPANS: usize = 512;
const BATCH_DELAY: Duration = Duration::from_millis(500);
/// How long a collector may take; one that works takes less.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the last batches may take when the node ends.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// How often lost spans are logged while a collector fails.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// The running exporter of a process.
pub struct TraceExporter {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl TraceExporter {
    /// Starts exporting, if the configuration or the environment names a collector. Headers, sampling
    /// and the like are set by OpenTelemetry's own variables.
    pub fn start(config: &Config) -> Result<Option<Self>, StartError> {
        let Some(endpoint) = endpoint(config) else { return Ok(None) };
        let exporter = exporter(&endpoint, &config.node_name())
            .map_err(|error| StartError::Config(format!("--otlp: cannot export to it: {error}")))?;
        let (queue, queued) = mpsc::channel(MAX_QUEUED_SPANS);
        let stop = CancellationToken::new();
        let task = tokio::spawn(export(exporter, queued, stop.clone()));
        let tracer = OtlpTracer {
            queue,
            sampler: Sampling::default().sampler,
            shows_content: config.telemetry_content,
            scope: InstrumentationScope::builder("abide")
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
        };
        // A program that embeds the node may have installed a tracer; then this exports nothing.
        trace::install(Box::new(tracer));
        Ok(Some(Self { stop, task }))
    }

    /// Exports what is queued, for at most two seconds.
    pub async fn finish(self) {
        self.stop.cancel();
        // Spans that take longer are lost.
        let _ = timeout(SHUTDOWN_TIMEOUT, self.task).await;
    }
}

/// The URL to export to. OpenTelemetry's variable for traces alone wins, and gets no path appended.
fn endpoint(config: &Config) -> Option<String> {
    let traces = std::env::var("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").ok();
    let disabled =
        std::env::var("OTEL_SDK_DISABLED").is_ok_and(|it| it.eq_ignore_ascii_case("true"));
    let all =
        || config.otlp.as_ref().map(|base| format!("{}/v1/traces", base.trim_end_matches('/')));
    traces.filter(|it| !it.is_empty()).or_else(all).filter(|_| !disabled)
}

fn exporter(endpoint: &str, node: &NodeName) -> Result<SpanExporter, String> {
    let url: reqwest::Url = endpoint.parse().map_err(|_| "not a URL".to_owned())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("must begin with http:// or https://".to_owned());
    }
    let client = reqwest::Client::builder()
        .timeout(EXPORT_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(|error| error.to_string())?;
    let mut exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_endpoint(endpoint)
        // A retry would sleep on a thread that conversations need.
        .with_retry_policy(RetryPolicy::disabled())
        .build()
        .map_err(|error| error.to_string())?;
    exporter.set_resource(&resource(node));
    Ok(exporter)
}

fn resource(node: &NodeName) -> Resource {
    let resource = Resource::builder()
        .with_attribute(opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attribute(opentelemetry::KeyValue::new("service.instance.id", node.to_string()));
    match std::env::var("OTEL_SERVICE_NAME") {
        Ok(name) if !name.is_empty() => resource.build(),
        _ => resource.with_service_name("abide").build(),
    }
}

/// Queues the spans of the conversations.
struct OtlpTracer {
    queue: mpsc::Sender<SpanData>,
    sampler: Box<dyn ShouldSample>,
    shows_content: bool,
    scope: InstrumentationScope,
}

impl Tracer for OtlpTracer {
    fn samples(&self, trace: u128) -> bool {
        let trace = TraceId::from(trace);
        let sampled =
            self.sampler.should_sample(None, trace, "", &SpanKind::Internal, &[], &[]).decision;
        sampled == SamplingDecision::RecordAndSample
    }

    fn shows_content(&self) -> bool {
        self.shows_content
    }

    fn end(&self, span: Span) {
        if self.queue.try_send(spans::span_data(span, &self.scope)).is_err() {
            count_dropped("queue", 1);
        }
    }
}

fn count_dropped(cause: &'static str, spans: usize) {
    metrics::counter!("abide_spans_dropped_total", "cause" => cause).increment(spans as u64);
}

/// Exports batch after batch until `stop`, and then what is still queued.
async fn export(
    exporter: SpanExporter,
    mut queued: mpsc::Receiver<SpanData>,
    stop: CancellationToken,
) {
    let mut last_warning: Option<Instant> = None;
    loop {
        let mut batch = Vec::with_capacity(MAX_BATCH_SPANS);
        tokio::select! {
            received = queued.recv_many(&mut batch, MAX_BATCH_SPANS) => {
                if received == 0 {
                    return;
                }
            }
            () = stop.cancelled(), if !queued.is_closed() => {
                queued.close();
                continue;
            }
        }
        fill(&mut batch, &mut queued, &stop).await;
        let spans = batch.len();
        let exported = timeout(EXPORT_TIMEOUT, exporter.export(batch)).await;
        let error = match exported {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the collector did not answer in time".to_owned(),
        };
        count_dropped("export", spans);
        if last_warning.is_none_or(|last| last.elapsed() > WARNING_INTERVAL) {
            last_warning = Some(Instant::now());
            // The text comes from a server and may hold anything.
            tracing::warn!(content = error, spans, "spans lost: the collector failed");
        }
    }
}

/// Waits a little for more spans to export with the first.
async fn fill(
    batch: &mut Vec<SpanData>,
    queued: &mut mpsc::Receiver<SpanData>,
    stop: &CancellationToken,
) {
    let full = async {
        while batch.len() < MAX_BATCH_SPANS {
            let room = MAX_BATCH_SPANS - batch.len();
            if queued.recv_many(batch, room).await == 0 {
                return;
            }
        }
    };
    tokio::select! {
        () = full => {}
        () = tokio::time::sleep(BATCH_DELAY) => {}
        () = stop.cancelled() => {}
    }
}
