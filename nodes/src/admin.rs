//! The operators' API: health, metrics, live actors and why they wait.

mod actors;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use abide_actors::clock::Clock;
use abide_registry::conversations::Conversations;
use abide_registry::store::Store;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use jiff::Timestamp;
use metrics_exporter_prometheus::PrometheusHandle;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::http::border;
use crate::http::parse::{Path, Query, limit};
use crate::http::problem::{Kind, Problem};

/// How long the store may take to prove that it is there.
const PROBE: Duration = Duration::from_secs(2);

/// What the handlers work with.
#[derive(Clone)]
pub struct Admin {
    pub conversations: Conversations,
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    pub metrics: Option<PrometheusHandle>,
    pub me: Me,
    pub draining: Arc<AtomicBool>,
    /// How far an operator's drain has come; setting it to `Asked` starts one.
    pub drain: watch::Sender<Drain>,
}

/// How far a drain that an operator asked for has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    Unasked,
    Asked,
    /// Nothing runs here any more; the process waits to be stopped.
    Done,
}

/// This node, as operators see it.
#[derive(Clone, Debug)]
pub struct Me {
    pub name: String,
    pub incarnation: String,
    pub address: String,
    pub since: Timestamp,
}

/// All operators' paths.
pub fn router(admin: Admin) -> Router {
    let router = Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/admin/nodes", get(nodes))
        .route("/admin/actors", get(actors::list))
        .route("/admin/actors/{id}", get(actors::get))
        .route("/admin/actors/{id}/kill", post(actors::kill))
        .route("/admin/alarms", get(alarms))
        .route("/admin/nodes/{node}/drain", post(drain))
        .fallback(async || Problem::not_found("such path"))
        .method_not_allowed_fallback(async || Problem::method());
    border::guarded(router).with_state(admin)
}

async fn ready(State(admin): State<Admin>) -> Result<&'static str, Problem> {
    if admin.draining.load(Ordering::Relaxed) {
        return Err(Problem::new(Kind::Unavailable, "the node is draining"));
    }
    match tokio::time::timeout(PROBE, admin.store.alarms(1)).await {
        Ok(Ok(_)) => Ok("ready\n"),
        Ok(Err(refusal)) => Err(refusal.into()),
        Err(_) => Err(Problem::new(Kind::Unavailable, "the store does not answer")),
    }
}

async fn metrics(State(admin): State<Admin>) -> String {
    let live = u32::try_from(admin.conversations.table().len()).unwrap_or(u32::MAX);
    metrics::gauge!("abide_live_actors").set(f64::from(live));
    admin.metrics.map(|handle| handle.render()).unwrap_or_default()
}

async fn nodes(State(admin): State<Admin>) -> Json<Value> {
    let draining = admin.draining.load(Ordering::Relaxed);
    let Me { name, incarnation, address, since } = &admin.me;
    Json(json!({"nodes": [{
        "name": name,
        "incarnation": incarnation,
        "address": address,
        "state": match (*admin.drain.borrow(), draining) {
            (Drain::Done, _) => "drained",
            (Drain::Asked, _) | (Drain::Unasked, true) => "draining",
            (Drain::Unasked, false) => "up",
        },
        "heartbeat_age_ms": 0,
        "live_actors": admin.conversations.table().len(),
        "version": env!("CARGO_PKG_VERSION"),
        "since": since,
    }]}))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AlarmsQuery {
    limit: Option<usize>,
}

async fn alarms(
    State(admin): State<Admin>,
    Query(query): Query<AlarmsQuery>,
) -> Result<Json<Value>, Problem> {
    let alarms = admin.store.alarms(limit(query.limit, 100, 1_000)?).await?;
    let now = admin.clock.now();
    let row = |(id, due): &(abide_conversation::ConversationId, Timestamp)| {
        let late = now.duration_since(*due).as_millis().max(0);
        json!({"conversation_id": id, "due_at": due, "lag_ms": u64::try_from(late).unwrap_or(u64::MAX)})
    };
    Ok(Json(json!({"alarms": alarms.iter().map(row).collect::<Vec<_>>()})))
}

async fn drain(
    State(admin): State<Admin>,
    Path(node): Path<String>,
) -> Result<StatusCode, Problem> {
    if node != admin.me.name {
        return Err(Problem::not_found("such node"));
    }
    admin.drain.send_if_modified(|drain| {
        let first = *drain == Drain::Unasked;
        if first {
            *drain = Drain::Asked;
        }
        first
    });
    Ok(StatusCode::ACCEPTED)
}
