//! The operators' API: health, metrics, live actors and why they wait, the audit, repairs. The contract
//! is `reference/admin.md`.

mod actors;
mod audit;
mod blobs;
mod encryption;
mod indexes;
mod operations;
mod queues;
mod repair;
mod repair_record;
mod scoped_id;

use std::sync::Arc;
use std::time::Duration;

use abide_actors::clock::Clock;
use abide_actors::identity::NodeName;
use abide_conversation::{ConversationId, Scoped, Timestamp};
use abide_registry::membership::heartbeat::is_suspect;
use abide_registry::membership::{Member, MemberState};
use abide_registry::queues::Queues;
use abide_registry::router::ConversationRouter;
use abide_registry::rpc_server::begin_drain;
use abide_registry::store::Store;
use axum::extract::{FromRef, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::{Json, Router};
use metrics_exporter_prometheus::PrometheusHandle;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::access::permission::{Anybody, Operate};
use crate::access::routes::{DELETE, DeclaredRouter, GET, POST};
use crate::access::{AccessControl, Allowed};
use crate::http::body_budget::BodyBudget;
use crate::http::console;
use crate::http::extract::{NoParameters, Path, Query, limit};
use crate::http::guard;
use crate::http::host::AllowedHosts;
use crate::http::{unknown_method, unknown_path};
use crate::operations::{Act, Operations};
use crate::problem::{Kind, Problem};
use crate::readiness::ReadinessNotes;

/// How long the store may take to answer the readiness probe.
const STORE_PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// What the handlers work with.
#[derive(Clone)]
pub(crate) struct Admin {
    pub(crate) conversations: ConversationRouter,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) operations: Operations,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Option<PrometheusHandle>,
    /// This node's state in the membership; set to `Draining`, it makes the node drain.
    pub(crate) state: Arc<watch::Sender<MemberState>>,
    /// Faults that do not make the node unready.
    pub(crate) notes: ReadinessNotes,
    pub(crate) queues: Queues,
    pub(crate) access: AccessControl,
    /// What the bodies of requests may take of the memory.
    pub(crate) bodies: BodyBudget,
}

impl FromRef<Admin> for AccessControl {
    fn from_ref(admin: &Admin) -> Self {
        admin.access.clone()
    }
}

impl FromRef<Admin> for BodyBudget {
    fn from_ref(admin: &Admin) -> Self {
        admin.bodies.clone()
    }
}

/// The router of all operators' paths. The other paths are those of the public API, so that the console
/// finds everything at one origin.
pub(crate) fn router(admin: Admin, allowed_hosts: AllowedHosts, public: Router) -> Router {
    let router = routes().finish(unknown_path, unknown_method);
    // The public API has guards of its own.
    guard::guarded(router, allowed_hosts).with_state(admin).fallback_service(public)
}

/// The method and the path of every operation.
#[doc(hidden)]
pub fn operations() -> Vec<(String, String)> {
    let owned = |(method, path): (&str, &str)| (method.to_owned(), path.to_owned());
    routes().operations().into_iter().map(owned).collect()
}

fn routes() -> DeclaredRouter<Admin> {
    DeclaredRouter::new()
        .route(GET, "/healthz", health)
        .route(GET, "/readyz", ready)
        .route(GET, "/metrics", metrics)
        .route(GET, "/console/config.json", console_settings)
        .route(GET, "/admin/nodes", nodes)
        .route(GET, "/admin/actors", actors::list)
        .route(GET, "/admin/actors/{id}", actors::get)
        .route(POST, "/admin/actors/{id}/retry", repair::retry)
        .route(POST, "/admin/actors/{id}/calls/{call_id}/fail", repair::fail)
        .route(POST, "/admin/actors/{id}/cancel", repair::cancel)
        .route(POST, "/admin/actors/{id}/move", repair::move_to)
        .route(POST, "/admin/actors/{id}/release", repair::release)
        .route(POST, "/admin/actors/{id}/kill", repair::kill)
        .route(GET, "/admin/alarms", alarms)
        .route(GET, "/admin/audit/{id}", audit::list)
        .route(GET, "/admin/operations", operations::list)
        .route(DELETE, "/admin/blobs/{id}", blobs::delete)
        .route(POST, "/admin/nodes/{node}/drain", drain)
        .route(POST, "/admin/nodes/{node}/declare-dead", declare_dead)
        .route(GET, "/admin/queues", queues::list)
        .route(POST, "/admin/encryption/rewrap", encryption::rewrap)
        .route(GET, "/admin/indexes", indexes::get)
        .route(POST, "/admin/indexes/rebuild", indexes::rebuild)
}

/// What the console asks for: here it has the operators' views.
async fn console_settings(
    _: Allowed<Anybody>,
    State(access): State<AccessControl>,
) -> impl IntoResponse {
    console::settings(&access, console::Listener::Admin)
}

async fn health(_: Allowed<Anybody>) -> &'static str {
    "ok\n"
}

async fn ready(_: Allowed<Anybody>, State(admin): State<Admin>) -> Result<String, Problem> {
    let lease = admin.conversations.cluster().lease();
    if lease.is_draining() {
        return Err(Problem::new(Kind::Unavailable, "the node is draining"));
    }
    if let Some(reason) = lease.unsound_reason() {
        return Err(Problem::new(Kind::Unavailable, reason));
    }
    match tokio::time::timeout(STORE_PROBE_TIMEOUT, admin.store.alarms(1)).await {
        Ok(Ok(_)) => {
            let lost = |reason| Problem::new(Kind::Unavailable, reason);
            admin.store.require_durability().map_err(lost)?;
            let lines = ["ready".to_owned()].into_iter().chain(admin.notes.lines());
            let lines = lines.chain(other_auth_files(&admin));
            Ok(lines.map(|line| line + "\n").collect())
        }
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(Problem::new(Kind::Unavailable, "the store did not answer in time")),
    }
}

/// A line for each member that authenticates callers by other rules than this node.
fn other_auth_files(admin: &Admin) -> Vec<String> {
    let view = admin.conversations.cluster().view();
    let own = view.member(&view.me).and_then(|me| me.auth.clone());
    let others = view.others().filter(|other| other.auth != own);
    others.map(|other| format!("auth: {} has another file, or none", other.holder.node)).collect()
}

async fn metrics(_: Allowed<Operate>, State(admin): State<Admin>) -> String {
    let table = admin.conversations.table();
    let (waiting_messages, deepest_mailbox) = table.mailbox_depths();
    let members = admin.conversations.cluster().view().members.len();
    metrics::gauge!("abide_live_actors").set(table.len() as f64);
    metrics::gauge!("abide_mailbox_waiting").set(waiting_messages as f64);
    metrics::gauge!("abide_mailbox_deepest").set(deepest_mailbox as f64);
    metrics::gauge!("abide_members").set(members as f64);
    admin.metrics.map(|handle| handle.render()).unwrap_or_default()
}

async fn nodes(
    _: Allowed<Operate>,
    State(admin): State<Admin>,
    _: Query<NoParameters>,
) -> Json<Value> {
    let view = admin.conversations.cluster().view();
    let rows = view.members.iter().map(|observed| {
        let Member { holder, address, live_actors, version, since, auth, .. } = &observed.member;
        let is_this_node = holder.node == view.me.node;
        // This node's own numbers are newer than those in its last heartbeat.
        let live_actors =
            if is_this_node { admin.conversations.table().len() } else { *live_actors };
        let state = if is_this_node { *admin.state.borrow() } else { observed.member.state };
        let is_suspect = !is_this_node && state == MemberState::Up && is_suspect(&view, observed);
        json!({
            "name": holder.node,
            "incarnation": holder.incarnation,
            "address": address,
            "state": if is_suspect { json!("suspect") } else { json!(state) },
            "heartbeat_age_ms": observed.silent_ms,
            "live_actors": live_actors,
            "version": version,
            "since": since,
            "auth": auth,
        })
    });
    Json(json!({"nodes": rows.collect::<Vec<_>>()}))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AlarmsQuery {
    limit: Option<usize>,
}

async fn alarms(
    _: Allowed<Operate>,
    State(admin): State<Admin>,
    Query(query): Query<AlarmsQuery>,
) -> Result<Json<Value>, Problem> {
    let alarms = admin.store.alarms(limit(query.limit, 100, 1_000)?).await?;
    let now = admin.clock.now();
    let row = |(id, due): &(Scoped<ConversationId>, Timestamp)| {
        let lag_ms = now.duration_since(*due).as_millis().max(0);
        let lag_ms = u64::try_from(lag_ms).unwrap_or(u64::MAX);
        json!({"conversation_id": id, "due_at": due, "lag_ms": lag_ms})
    };
    Ok(Json(json!({"alarms": alarms.iter().map(row).collect::<Vec<_>>()})))
}

async fn drain(
    allowed: Allowed<Operate>,
    State(admin): State<Admin>,
    Path(node): Path<NodeName>,
) -> Result<StatusCode, Problem> {
    record(&admin, &allowed, "node.drain", &node).await?;
    if node == admin.conversations.cluster().view().me.node {
        begin_drain(&admin.state);
    } else if !admin.conversations.drain_node(&node).await? {
        return Err(Problem::not_found("node"));
    }
    Ok(StatusCode::ACCEPTED)
}

/// Has others take over what a node holds that hangs, without waiting for its lease.
async fn declare_dead(
    allowed: Allowed<Operate>,
    State(admin): State<Admin>,
    Path(node): Path<NodeName>,
) -> Result<Json<Value>, Problem> {
    if node == admin.conversations.cluster().view().me.node {
        let detail = "a node that answers is not dead: drain it";
        return Err(Problem::new(Kind::Conflict, detail));
    }
    record(&admin, &allowed, "node.declare_dead", &node).await?;
    match admin.conversations.declare_node_dead(&node).await? {
        Some(dead) => Ok(Json(json!({"node": dead.node, "incarnation": dead.incarnation}))),
        None => Err(Problem::not_found("node")),
    }
}

/// Writes the entry of something that is about to be done to a member of the cluster.
async fn record(
    admin: &Admin,
    allowed: &Allowed<Operate>,
    operation: &'static str,
    node: &NodeName,
) -> Result<(), Problem> {
    let view = admin.conversations.cluster().fresh_view().await;
    if *node != view.me.node && view.named(node).is_none() {
        return Err(Problem::not_found("node"));
    }
    admin.operations.record(Act::of_operator(allowed, operation, node.as_str())).await
}
