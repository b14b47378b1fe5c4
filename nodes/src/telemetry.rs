//! Logs on standard error, and the recorder of metrics.

use std::io::IsTerminal;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::LogFormat;

/// Starts logging; `RUST_LOG` filters, `info` is the default.
pub fn log(format: Option<LogFormat>) {
    let terminal = std::io::stderr().is_terminal();
    let default = if terminal { LogFormat::Text } else { LogFormat::Json };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
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
