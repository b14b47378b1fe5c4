//! Exports spans by OTLP over HTTP, in batches, from a bounded queue; nobody ever waits for it.

use std::time::Duration;

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
use crate::node::StartError;

/// Spans that wait to be exported: a second or two at full load. Past that they are dropped.
const WAITING: usize = 8_192;
/// How many travel at once, and how long the first of them waits for the others.
const BATCH: usize = 512;
const GATHER: Duration = Duration::from_millis(500);
/// How long a collector may take: longer than one that lives does.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the last batches may take when the node ends.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How often a dead collector is worth a line.
const SELDOM: Duration = Duration::from_secs(60);

/// The exporter at work.
pub struct TraceExporter {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl TraceExporter {
    /// Starts exporting as the node of this name, if the configuration says where to. What else may
    /// be said, such as headers and sampling, is said by OpenTelemetry's own variables.
    pub fn start(config: &Config, node: &str) -> Result<Option<Self>, StartError> {
        let Some(endpoint) = endpoint(config) else { return Ok(None) };
        let exporter = exporter(&endpoint, node)
            .map_err(|why| StartError::Config(format!("--otlp: cannot export to it: {why}")))?;
        let (queue, waiting) = mpsc::channel(WAITING);
        let stop = CancellationToken::new();
        let task = tokio::spawn(export(exporter, waiting, stop.clone()));
        let otlp = Otlp {
            queue,
            sampler: Sampling::default().sampler,
            shows_content: config.telemetry_content,
            scope: InstrumentationScope::builder("abide")
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
        };
        // A program that embeds the node may trace already; then this exports nothing.
        trace::install(Box::new(otlp));
        Ok(Some(Self { stop, task }))
    }

    /// Exports what waits, for at most two seconds.
    pub async fn finish(self) {
        self.stop.cancel();
        // What is late is lost.
        let _ = timeout(LAST_WORDS, self.task).await;
    }
}

/// Where traces go to; the variable for traces alone is taken as it is.
fn endpoint(config: &Config) -> Option<String> {
    let traces = std::env::var("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").ok();
    let disabled =
        std::env::var("OTEL_SDK_DISABLED").is_ok_and(|it| it.eq_ignore_ascii_case("true"));
    let all =
        || config.otlp.as_ref().map(|base| format!("{}/v1/traces", base.trim_end_matches('/')));
    traces.filter(|it| !it.is_empty()).or_else(all).filter(|_| !disabled)
}

fn exporter(endpoint: &str, node: &str) -> Result<SpanExporter, String> {
    let url: reqwest::Url = endpoint.parse().map_err(|_| "it is no URL".to_owned())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("it must begin with http:// or https://".to_owned());
    }
    let client = reqwest::Client::builder()
        .timeout(PATIENCE)
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(|error| error.to_string())?;
    let mut exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_endpoint(endpoint)
        // It would sleep on a thread that conversations need.
        .with_retry_policy(RetryPolicy::disabled())
        .build()
        .map_err(|error| error.to_string())?;
    exporter.set_resource(&resource(node));
    Ok(exporter)
}

fn resource(node: &str) -> Resource {
    let told = Resource::builder()
        .with_attribute(opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attribute(opentelemetry::KeyValue::new("service.instance.id", node.to_owned()));
    match std::env::var("OTEL_SERVICE_NAME") {
        Ok(name) if !name.is_empty() => told.build(),
        _ => told.with_service_name("abide").build(),
    }
}

/// Takes the spans of the conversations.
struct Otlp {
    queue: mpsc::Sender<SpanData>,
    sampler: Box<dyn ShouldSample>,
    shows_content: bool,
    scope: InstrumentationScope,
}

impl Tracer for Otlp {
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
        if self.queue.try_send(spans::data(span, &self.scope)).is_err() {
            dropped("queue", 1);
        }
    }
}

fn dropped(cause: &'static str, spans: usize) {
    metrics::counter!("abide_spans_dropped_total", "cause" => cause).increment(spans as u64);
}

/// Exports batch after batch until it is told to stop, and then what still waits.
async fn export(
    exporter: SpanExporter,
    mut waiting: mpsc::Receiver<SpanData>,
    stop: CancellationToken,
) {
    let mut said: Option<Instant> = None;
    loop {
        let mut batch = Vec::with_capacity(BATCH);
        tokio::select! {
            read = waiting.recv_many(&mut batch, BATCH) => {
                if read == 0 {
                    return;
                }
            }
            () = stop.cancelled(), if !waiting.is_closed() => {
                waiting.close();
                continue;
            }
        }
        gather(&mut waiting, &mut batch, &stop).await;
        let spans = batch.len();
        let exported = timeout(PATIENCE, exporter.export(batch)).await;
        let failure = match exported {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the collector did not answer in time".to_owned(),
        };
        dropped("export", spans);
        if said.is_none_or(|said| said.elapsed() > SELDOM) {
            said = Some(Instant::now());
            // What a server answered may be anything.
            tracing::warn!(said = failure, spans, "spans are lost: the collector is away");
        }
    }
}

/// Waits a little for others to travel with the first.
async fn gather(
    waiting: &mut mpsc::Receiver<SpanData>,
    batch: &mut Vec<SpanData>,
    stop: &CancellationToken,
) {
    let full = async {
        while batch.len() < BATCH {
            let room = BATCH - batch.len();
            if waiting.recv_many(batch, room).await == 0 {
                return;
            }
        }
    };
    tokio::select! {
        () = full => {}
        () = tokio::time::sleep(GATHER) => {}
        () = stop.cancelled() => {}
    }
}
