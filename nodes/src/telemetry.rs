//! Logs on standard error, the recorder of metrics, and the exporter of traces.
//!
//! Without `--telemetry-content`, nothing that a person, a model or a tool said is in any of them; no
//! secret ever is. A log field that may repeat such content must be called `content`: only that name
//! is redacted.

mod flood_limit;
mod http_metrics;
mod log_format;
mod otlp;
mod spans;

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use abide_actors::metric::{BUCKETS, METRICS, Metric, MetricKind, Unit};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio_util::task::AbortOnDropHandle;
use tracing::{Level, Metadata};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt};

use crate::config::{Config, LogFormat};
use flood_limit::FloodLimit;
pub(crate) use http_metrics::{RequestMetrics, TurnExtension, measure};
use log_format::{JsonFields, JsonLine, TextFields};
pub use otlp::TraceExporter;

/// What is logged by default. The connections between nodes, and those to MCP servers, are logged
/// where their errors are dealt with.
const DEFAULT_FILTER: &str = "info,ractor_cluster=off,ractor=error,rmcp=off";
/// How often the values of histograms are put into their buckets: until then each one is stored.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Starts logging to standard error, with the level and targets in `RUST_LOG`, by default `info`.
///
/// Does nothing when the program logs already.
pub fn start_logging(config: &Config) {
    let is_terminal = io::stderr().is_terminal();
    let default_format = if is_terminal { LogFormat::Text } else { LogFormat::Json };
    let shows_content = config.telemetry_content;
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER));
    let lines = fmt::layer().with_writer(|| LossyWriter(io::stderr())).log_internal_errors(false);
    let lines = match config.log_format.unwrap_or(default_format) {
        LogFormat::Text => {
            lines.with_ansi(is_terminal).fmt_fields(TextFields { shows_content }).boxed()
        }
        LogFormat::Json => {
            let line = JsonLine { node: config.node_name(), shows_content };
            lines.fmt_fields(JsonFields { shows_content }).event_format(line).boxed()
        }
    };
    let harmless = filter_fn(is_ours_or_grave);
    let started = tracing_subscriber::registry()
        .with(filter)
        .with(harmless)
        .with(FloodLimit::start())
        .with(lines)
        .try_init();
    if started.is_ok() {
        std::panic::set_hook(Box::new(|panic| {
            let at = panic.location().map(ToString::to_string);
            let content = panic.payload_as_str();
            tracing::error!(at, content, "thread panicked");
        }));
    }
}

/// Whether an event is of this program, or a grave one of a library that handles no messages. At lower
/// levels, and in the warnings of the others, libraries log the bytes that go through them: keys, and
/// what people and models say.
fn is_ours_or_grave(metadata: &Metadata<'_>) -> bool {
    let library = metadata.target().split("::").next().unwrap_or_default();
    library.starts_with("abide")
        || (*metadata.level() <= Level::WARN && !["rmcp", "ractor"].contains(&library))
}

/// Starts recording metrics in this process, for [`NodeBuilder::metrics`](crate::NodeBuilder::metrics);
/// `None` when the process records them already. A node that serves before this may miss metrics of its
/// requests for ever.
pub fn start_metrics() -> Option<PrometheusHandle> {
    let builder = PrometheusBuilder::new().set_buckets(&BUCKETS).ok()?;
    let handle = builder.install_recorder().ok()?;
    for Metric { name, kind, unit, labels, help } in METRICS.iter().copied() {
        let unit = match unit {
            Unit::Count => metrics::Unit::Count,
            Unit::Seconds => metrics::Unit::Seconds,
        };
        match kind {
            MetricKind::Counter => metrics::describe_counter!(name, unit, help),
            MetricKind::Gauge => metrics::describe_gauge!(name, unit, help),
            MetricKind::Histogram => metrics::describe_histogram!(name, unit, help),
        }
        // A counter that was never incremented is 0, not unknown.
        if kind == MetricKind::Counter && labels.is_empty() {
            metrics::counter!(name).absolute(0);
        }
    }
    metrics::gauge!("abide_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1);
    Some(handle)
}

/// Keeps the recorder small while nobody reads `/metrics`; ends when dropped.
pub(crate) fn upkeep(handle: PrometheusHandle) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            tokio::time::sleep(UPKEEP_INTERVAL).await;
            handle.run_upkeep();
        }
    }))
}

/// Drops what cannot be written, to a full disk or a closed pipe, and reports success: the node goes
/// on without its log. The subscriber would report a failure on standard error, and panic there.
struct LossyWriter<W>(W);

impl<W: Write> Write for LossyWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.0.write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = self.0.flush();
        Ok(())
    }
}
