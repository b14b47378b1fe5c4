//! What exporting traces costs: turns with it, compared with turns without.

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

/// A collector that keeps nothing.
struct Sink {
    url: String,
    taken: Arc<AtomicU64>,
}

impl Sink {
    /// Serves on a free port until the program ends.
    async fn start() -> Result<Self, LoadError> {
        let failed = |error| load_error("the collector", error);
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
        let url = format!("http://{}", listener.local_addr().map_err(failed)?);
        let taken = Arc::<AtomicU64>::default();
        let router = Router::new()
            .route("/v1/traces", post(take))
            .layer(DefaultBodyLimit::disable())
            .with_state(taken.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { url, taken })
    }
}

async fn take(State(taken): State<Arc<AtomicU64>>, body: Bytes) -> StatusCode {
    taken.fetch_add(body.len() as u64, Ordering::Relaxed);
    StatusCode::OK
}

/// Measures both by turns. No span may be lost: one that is dropped costs less.
pub(super) async fn run(load: &Load, dir: &Path) -> Result<Report, LoadError> {
    let sink = Sink::start().await?;
    let off = NodeGroup::start(load, &dir.join("off"), PASSIVATE_AFTER, None).await?;
    let on = NodeGroup::start(load, &dir.join("on"), PASSIVATE_AFTER, Some(sink.url)).await?;
    let groups = [("traces off", &off), ("traces on", &on)];
    let sides = comparison::turns(load, Order::AtOnce, groups).await?;
    let mut dropped = 0;
    for node in &on.nodes {
        dropped += node.counters().await?.dropped_spans;
    }
    off.stop().await?;
    on.stop().await?;
    let mut report = comparison::report(load, Order::AtOnce, &sides)?;
    let all = f64::from(load.conversations.saturating_mul(load.turns) + turns::WARM_UP_TURNS);
    let all = all * f64::from(load.rounds);
    let taken = sink.taken.load(Ordering::Relaxed) as f64 / all;
    report.row("bytes of spans a turn", &["0".to_owned(), format!("{taken:.0}"), String::new()]);
    report.row("spans dropped", &["0".to_owned(), dropped.to_string(), String::new()]);
    Ok(report)
}
