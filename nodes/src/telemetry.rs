//! Logs on standard error, the recorder of metrics, and the exporter of traces.
//!
//! Nothing of what a person, a model or a tool said is in any of them, unless `--telemetry-content`
//! says so; no secret ever is. A line's field that may repeat what somebody said is called `said`.

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
use tracing_subscriber::fmt::format::JsonFields;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, fmt};

use crate::config::{Config, LogFormat};
pub(crate) use http_metrics::{TurnExtension, measured};
use log_format::{Line, Plain};
pub use otlp::TraceExporter;

/// What is logged by default. The connections between nodes, and
/// to MCP servers, are logged where they are dealt with.
const QUIET: &str = "info,ractor_cluster=off,ractor=error,rmcp=off";
/// How often what histograms were told is put into its buckets: until then each value is kept.
const UPKEEP: Duration = Duration::from_secs(5);

/// Starts logging as the node of this name; `RUST_LOG` filters, `info` is the default.
pub fn log(config: &Config, node: &str) {
    let terminal = io::stderr().is_terminal();
    let default = if terminal { LogFormat::Text } else { LogFormat::Json };
    let shows_said = config.telemetry_content;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(QUIET));
    let lines = fmt::layer().with_writer(|| Lossy(io::stderr())).log_internal_errors(false);
    let lines = match config.log_format.unwrap_or(default) {
        LogFormat::Text => lines.with_ansi(terminal).fmt_fields(Plain::new(shows_said)).boxed(),
        LogFormat::Json => {
            let line = Line { node: node.to_owned(), shows_said };
            lines.fmt_fields(JsonFields::new()).event_format(line).boxed()
        }
    };
    let kept = filter_fn(is_ours_or_grave);
    let started = tracing_subscriber::registry().with(filter).with(kept).with(lines).try_init();
    // A program that embeds the node may log already.
    if started.is_ok() {
        std::panic::set_hook(Box::new(|panic| {
            let at = panic.location().map(ToString::to_string);
            let words = panic.payload_as_str();
            tracing::error!(at, said = words, "a thread panicked");
        }));
    }
}

/// Keeps what libraries log of the bytes that go through them: at their lower levels, and in the
/// warnings of those that carry messages, is what people and models say, and keys.
fn is_ours_or_grave(metadata: &Metadata<'_>) -> bool {
    let of = metadata.target().split("::").next().unwrap_or_default();
    of.starts_with("abide")
        || (*metadata.level() <= Level::WARN && !["rmcp", "ractor"].contains(&of))
}

/// Starts recording metrics; `None` when the process records them already.
pub fn metrics() -> Option<PrometheusHandle> {
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
        // What was never counted is 0, and not unknown.
        if kind == MetricKind::Counter && labels.is_empty() {
            metrics::counter!(name).absolute(0);
        }
    }
    metrics::gauge!("abide_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1);
    Some(handle)
}

/// Keeps the recorder small while nobody reads it, as long as the value lives.
pub(crate) fn upkeep(handle: PrometheusHandle) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            tokio::time::sleep(UPKEEP).await;
            handle.run_upkeep();
        }
    }))
}

/// A log that nobody can read, on a full disk or a closed pipe, is lost; the node serves all the
/// same. What fails is told to nobody: the subscriber would say it on standard error, and panic.
struct Lossy<W>(W);

impl<W: Write> Write for Lossy<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.0.write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = self.0.flush();
        Ok(())
    }
}
