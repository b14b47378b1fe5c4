//! Logs on standard error, and the recorder of metrics.

use std::io::{self, IsTerminal, Write};

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::LogFormat;

/// What is logged by default. The connections between nodes, and
/// to MCP servers, are logged where they are dealt with.
const QUIET: &str = "info,ractor_cluster=off,ractor=error,rmcp=off";

/// Starts logging; `RUST_LOG` filters, `info` is the default.
pub fn log(format: Option<LogFormat>) {
    let terminal = io::stderr().is_terminal();
    let default = if terminal { LogFormat::Text } else { LogFormat::Json };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(QUIET));
    let lines = tracing_subscriber::fmt().with_env_filter(filter);
    let lines = lines.with_writer(|| Lossy(io::stderr())).log_internal_errors(false);
    let started = match format.unwrap_or(default) {
        LogFormat::Text => lines.with_ansi(terminal).finish().try_init(),
        LogFormat::Json => lines.json().finish().try_init(),
    };
    // A program that embeds the node may log already.
    drop(started);
}

/// Starts recording metrics; `None` when the process records them already.
pub fn metrics() -> Option<PrometheusHandle> {
    PrometheusBuilder::new().install_recorder().ok()
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
