//! The audit: what was sent to models and what came back.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Admin;
use super::scoped_id::audited_conversation;
use crate::access::Allowed;
use crate::access::permission::ReadAudit;
use crate::http::extract::{Path, Query, limit};
use crate::problem::Problem;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditQuery {
    limit: Option<usize>,
    before: Option<String>,
}

/// Lists the entries of one conversation, newest first; `cursor` as `before` asks for the older ones.
pub(super) async fn list(
    allowed: Allowed<ReadAudit>,
    State(admin): State<Admin>,
    Path(id): Path<String>,
    Query(query): Query<AuditQuery>,
) -> Result<Json<Value>, Problem> {
    let conversation = audited_conversation(&allowed, &id)?;
    // An entry may have several megabytes.
    let limit = limit(query.limit, 10, 50)?;
    if admin.store.summary(&conversation).await?.is_none() {
        return Err(Problem::not_found("conversation"));
    }
    let now = admin.clock.now();
    let before = query.before.as_deref();
    let mut entries = admin.store.entries(&conversation, before, limit + 1, now).await?;
    let more = entries.len() > limit;
    entries.truncate(limit);
    let cursor = entries.last().filter(|_| more).map(|entry| entry.key());
    Ok(Json(json!({"conversation_id": id, "entries": entries, "cursor": cursor})))
}
