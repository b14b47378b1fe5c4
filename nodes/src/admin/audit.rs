//! The audit: what was sent to models and what came back.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Admin;
use crate::access::Allowed;
use crate::access::permission::ReadAudit;
use crate::http::extract::{Path, Query, conversation, limit};
use crate::problem::Problem;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditQuery {
    limit: Option<usize>,
    before: Option<String>,
}

/// Lists the entries of one conversation, newest first; `cursor` as `before` asks for the older ones.
pub(super) async fn list(
    _: Allowed<ReadAudit>,
    State(admin): State<Admin>,
    Path(id): Path<String>,
    Query(query): Query<AuditQuery>,
) -> Result<Json<Value>, Problem> {
    let id = conversation(&id)?;
    // An entry may have several megabytes.
    let limit = limit(query.limit, 10, 50)?;
    if admin.store.summary(&id).await?.is_none() {
        return Err(Problem::not_found("conversation"));
    }
    let now = admin.clock.now();
    let before = query.before.as_deref();
    let mut entries = admin.store.entries(&id, before, limit + 1, now).await?;
    let more = entries.len() > limit;
    entries.truncate(limit);
    let cursor = entries.last().filter(|_| more).map(|entry| entry.key());
    Ok(Json(json!({"conversation_id": id, "entries": entries, "cursor": cursor})))
}
