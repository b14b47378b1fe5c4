//! Measures the cost of exporting traces: turns with it, compared with turns without.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::routing::post;
use tokio::net::TcpListener;

use super::comparison::{self, Order};
use super::idle_conversations::PASSIVATE_AFTER;
use super::node_group::NodeGroup;
use super::report::Report;
use super::{Load, LoadError, load_error, turns};

/// A collector that only counts the bytes.
struct Sink {
    url: String,
    received_bytes: Arc<AtomicU64>,
}

impl Sink {
    /// Serves on a free port until the program ends.
    async fn start() -> Result<Self, LoadError> {
        let failed = |error| load_error("the collector", error);
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
        let url = format!("http://{}", listener.local_addr().map_err(failed)?);
        let received_bytes = Arc::<AtomicU64>::default();
        let router = Router::new()
            .route("/v1/traces", post(take))
            .layer(DefaultBodyLimit::disable())
            .with_state(received_bytes.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { url, received_bytes })
    }
}

async fn take(State(received_bytes): State<Arc<AtomicU64>>, body: Bytes) -> StatusCode {
    received_bytes.fetch_add(body.len() as u64, Ordering::Relaxed);
    StatusCode::OK
}

/// Measures both by turns. No span may be lost: one that is dropped costs less.
pub(super) async fn run(load: &Load, dir: &Path) -> Result<Report, LoadError> {
    let sink = Sink::start().await?;
    let off = NodeGroup::start(load, &dir.join("off"), PASSIVATE_AFTER, None).await?;
    let on = NodeGroup::start(load, &dir.join("on"), PASSIVATE_AFTER, Some(sink.url)).await?;
    let groups = [("traces off", &off), ("traces on", &on)];
    let sides = comparison::turns(load, Order::Concurrently, groups).await?;
    let mut dropped = 0;
    for node in &on.nodes {
        dropped += node.counters().await?.dropped_spans;
    }
    off.stop().await?;
    on.stop().await?;
    let mut report = comparison::report(load, Order::Concurrently, &sides)?;
    let all = f64::from(load.conversations.saturating_mul(load.turns) + turns::WARM_UP_TURNS);
    let all = all * f64::from(load.rounds);
    let received_bytes = sink.received_bytes.load(Ordering::Relaxed) as f64 / all;
    report.row(
        "bytes of spans a turn",
        &["0".to_owned(), format!("{received_bytes:.0}"), String::new()],
    );
    report.row("spans dropped", &["0".to_owned(), dropped.to_string(), String::new()]);
    Ok(report)
}
