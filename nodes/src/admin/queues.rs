//! Queues as operators see them: what waits, since when, and which workers were seen.

use std::collections::BTreeMap;

use abide_actors::diagnosis::Diagnosis;
use abide_conversation::state::{Call, QueueEntry};
use abide_conversation::{ConversationId, Scoped, State as ConversationState, Timestamp};
use abide_registry::queues::{QueueId, WorkerView};
use abide_registry::store::QueueDepth;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::Admin;
use crate::access::Allowed;
use crate::access::permission::Operate;
use crate::http::extract::{NoParameters, Query};
use crate::problem::Problem;

/// Lists the queues in which calls wait, or at which workers were seen.
pub(super) async fn list(
    _: Allowed<Operate>,
    State(admin): State<Admin>,
    _: Query<NoParameters>,
) -> Result<Json<Value>, Problem> {
    let mut waiting: BTreeMap<QueueId, Vec<QueueDepth>> = BTreeMap::new();
    for tenant in admin.store.tenants().await? {
        for depth in admin.store.queue_depths(&tenant, None).await? {
            waiting.entry(QueueId::new(&tenant, &depth.queue)).or_default().push(depth);
        }
    }
    let workers = admin.queues.workers().await;
    for queue in workers.keys() {
        waiting.entry(queue.clone()).or_default();
    }
    let none = Vec::new();
    let rows = waiting
        .iter()
        .map(|(queue, depths)| row(queue, depths, workers.get(queue).unwrap_or(&none)));
    Ok(Json(json!({"queues": rows.collect::<Vec<_>>()})))
}

fn row(queue: &QueueId, depths: &[QueueDepth], workers: &[WorkerView]) -> Value {
    let tools = depths
        .iter()
        .map(|depth| json!({"tool": depth.tool, "depth": depth.depth, "oldest": depth.oldest}));
    json!({
        "queue": queue,
        "depth": depths.iter().map(|depth| depth.depth).sum::<u64>(),
        "oldest": depths.iter().filter_map(|depth| depth.oldest).min(),
        "tools": tools.collect::<Vec<_>>(),
        "workers": workers,
        "last_seen": last_seen(workers),
    })
}

fn last_seen(workers: &[WorkerView]) -> Option<Timestamp> {
    workers.iter().map(|worker| worker.last_seen).max()
}

/// Adds to a diagnosis when a worker was seen last, if the conversation waits for one.
pub(super) async fn add_workers(
    admin: &Admin,
    id: &Scoped<ConversationId>,
    state: &ConversationState,
    diagnosis: Diagnosis,
) -> Diagnosis {
    let Some(QueueEntry { queue, tool, .. }) = first_entry(state) else { return diagnosis };
    if !diagnosis.waits_for.starts_with("a worker of queue") {
        return diagnosis;
    }
    let takes =
        |worker: &WorkerView| worker.tools.as_ref().is_none_or(|tools| tools.contains(&tool));
    let mut workers = admin.queues.workers().await.remove(&id.sibling(&queue)).unwrap_or_default();
    workers.retain(takes);
    let seen = match last_seen(&workers) {
        None => "none was seen".to_owned(),
        Some(at) => {
            let ago = admin.clock.now().duration_since(at).as_secs().max(0);
            match ago / 60 {
                0 => format!("the last was seen {ago} s ago"),
                minutes => format!("none was seen for {minutes} min"),
            }
        }
    };
    Diagnosis { waits_for: format!("{}; {seen}", diagnosis.waits_for), ..diagnosis }
}

/// The first call that waits for a worker.
fn first_entry(state: &ConversationState) -> Option<QueueEntry> {
    state.turn.iter().flat_map(|turn| &turn.calls).find_map(Call::queue_entry)
}
