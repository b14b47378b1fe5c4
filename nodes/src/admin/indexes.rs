//! The index of lists, and the names of blobs: how far they have been rebuilt, and their rebuild on
//! request.

use abide_registry::store::{IndexJob, IndexJobs, Rebuild};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::Admin;
use crate::access::Allowed;
use crate::access::permission::Operate;
use crate::operations::Act;
use crate::problem::{Kind, Problem};

/// A rebuild that runs stores its progress a few times a second.
const MAX_ATTEMPTS: usize = 20;

pub(super) async fn get(
    _: Allowed<Operate>,
    State(admin): State<Admin>,
) -> Result<Json<Value>, Problem> {
    let last = admin.store.rebuild().await?;
    let IndexJobs { jobs, .. } = admin.store.index_jobs().await?;
    let agents: Vec<Value> = jobs.iter().map(agent_row).collect();
    Ok(Json(json!({"rebuild": last.as_ref().map(row), "agents": agents})))
}

/// An agent whose conversations are being indexed by the keys that its definition has added.
fn agent_row(job: &IndexJob) -> Value {
    json!({
        "tenant": job.agent.tenant(),
        "agent": job.agent.local(),
        "asked_at": job.asked_at,
        "conversations": job.conversations,
    })
}

/// Has all conversations found by what their agents index now, and all blobs by who names them. One that
/// runs begins anew.
pub(super) async fn rebuild(
    allowed: Allowed<Operate>,
    State(admin): State<Admin>,
) -> Result<(StatusCode, Json<Value>), Problem> {
    admin.operations.record(Act::of_operator(&allowed, "indexes.rebuild", "lists")).await?;
    for _ in 0..MAX_ATTEMPTS {
        let last = admin.store.rebuild().await?;
        let next = Rebuild::after(last.as_ref(), admin.clock.now());
        if admin.store.replace_rebuild(last.as_ref(), &next).await? {
            return Ok((StatusCode::ACCEPTED, Json(json!({"rebuild": row(&next)}))));
        }
    }
    Err(Problem::new(Kind::Unavailable, "the rebuild that runs could not be replaced; try again"))
}

fn row(rebuild: &Rebuild) -> Value {
    json!({
        "number": rebuild.number,
        "state": if rebuild.ended_at.is_some() { "done" } else { "running" },
        "conversations": rebuild.conversations,
        "has_blob_names": rebuild.has_blob_names,
        "tenant": rebuild.tenant,
        "started_at": rebuild.started_at,
        "ended_at": rebuild.ended_at,
    })
}
