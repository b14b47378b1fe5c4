//! Live conversation actors, one by one.

use abide_actors::diagnosis;
use abide_conversation::{ConversationId, State as Folded};
use abide_registry::actor_view::ActorDetails;
use abide_registry::host::Quarantined;
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Admin;
use crate::http::extract::{Path, Query, conversation, limit};
use crate::http::problem::Problem;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    node: Option<String>,
    state: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

pub(super) async fn list(
    State(admin): State<Admin>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Value>, Problem> {
    let limit = limit(query.limit, 100, 1_000)?;
    let (node, after) = (query.node.as_deref(), query.cursor.as_deref());
    let page = admin.conversations.list_actors(node, after, limit).await;
    let last = page.last().filter(|_| page.len() == limit);
    let cursor = last.map(|row| row.conversation_id.clone());
    let rows = page.iter().map(|row| json!(row));
    let wanted = |row: &Value| query.state.as_ref().is_none_or(|state| row["state"] == **state);
    let actors: Vec<Value> = rows.filter(wanted).collect();
    Ok(Json(json!({"actors": actors, "cursor": cursor})))
}

/// One conversation, live or not, with what it waits for.
pub(super) async fn get(
    State(admin): State<Admin>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    let id = conversation(&id)?;
    let (live, quarantined) = match admin.conversations.get_actor(&id).await? {
        Some(ActorDetails { live, quarantined }) => (live, quarantined),
        None => (None, None),
    };
    let (mut body, folded, live) = match live {
        Some((row, live)) => {
            let mut body = json!(row);
            body["running"] = json!(live.running);
            (body, live.state.clone(), Some(live))
        }
        None => {
            let folded = admin.conversations.stored_state(&id).await?;
            let folded = folded.ok_or_else(|| Problem::not_found("such conversation"))?;
            (parked(&id, &folded), folded, None)
        }
    };
    body["turn"] = json!(folded.turn);
    body["pending"] = json!(folded.pending_calls());
    body["alarm"] = json!(folded.alarm());
    body["why"] = match quarantined {
        Some(Quarantined { reason, since }) => {
            body["state"] = json!("quarantined");
            json!(diagnosis::quarantined(&id, &reason, since))
        }
        None => json!(diagnosis::diagnose(&id, &folded, live.as_deref())),
    };
    Ok(Json(body))
}

fn parked(id: &ConversationId, folded: &Folded) -> Value {
    json!({
        "conversation_id": id,
        "node": null,
        "epoch": null,
        "state": folded.status(),
        "seq": folded.seq,
        "since": null,
        "mailbox_depth": 0,
        "open_calls": folded.open_calls(),
        "restarts": 0,
        "bytes_held": 0,
    })
}
