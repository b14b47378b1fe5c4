//! Live conversation actors, one by one.

use abide_actors::request::Inspection;
use abide_actors::why;
use abide_conversation::{ConversationId, State as Folded};
use abide_registry::host::Handle;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use futures::StreamExt;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Admin;
use crate::http::LOOKS;
use crate::http::parse::{Path, Query, conversation, limit};
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
    let here = query.node.as_ref().is_none_or(|node| *node == admin.me.name);
    let table = admin.conversations.table();
    let page = if here { table.page(query.cursor.as_deref(), limit) } else { Vec::new() };
    let cursor = page.last().filter(|_| page.len() == limit).map(|(id, _)| id.clone());
    let looks = page.into_iter().map(|(id, handle)| {
        let conversations = &admin.conversations;
        async move { Some(row(&id, &handle, conversations.inspect(&id).await?)) }
    });
    let rows: Vec<Option<Value>> = futures::stream::iter(looks).buffered(LOOKS).collect().await;
    let rows = rows.into_iter().flatten();
    let wanted = |row: &Value| query.state.as_ref().is_none_or(|state| row["state"] == **state);
    let actors: Vec<Value> = rows.filter(wanted).collect();
    Ok(Json(json!({"actors": actors, "cursor": cursor})))
}

fn row(id: &ConversationId, handle: &Handle, live: Inspection) -> Value {
    let streaming = live.streaming.as_ref().map(|said| said.text.len() + said.thinking.len());
    let folded = serde_json::to_string(&live.state).map(|text| text.len()).unwrap_or_default();
    let state = live.state.activeness().live(live.streaming.is_some());
    json!({
        "conversation_id": id,
        "node": live.held.holder.node,
        "epoch": live.held.epoch,
        "state": state,
        "seq": live.state.seq,
        "since": handle.since,
        "mailbox_depth": handle.depth(),
        "open_calls": live.state.open_calls(),
        "restarts": handle.restarts,
        "bytes_held": folded + streaming.unwrap_or_default(),
    })
}

/// One conversation, live or not, with what it waits for.
pub(super) async fn get(
    State(admin): State<Admin>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    let id = conversation(&id)?;
    let handle = admin.conversations.table().get(&id);
    let live = admin.conversations.inspect(&id).await;
    let (mut body, folded, streams) = match (handle, live) {
        (Some(handle), Some(live)) => {
            let (folded, streams) = (live.state.clone(), live.streaming.is_some());
            let running = live.running.clone();
            let mut body = row(&id, &handle, live);
            body["running"] = json!(running);
            (body, folded, streams)
        }
        _ => {
            let folded = admin.conversations.stored(&id).await?;
            let folded = folded.ok_or_else(|| Problem::not_found("such conversation"))?;
            (parked(&id, &folded), folded, false)
        }
    };
    body["turn"] = json!(folded.turn);
    body["pending"] = json!(folded.pending());
    body["alarm"] = json!(folded.alarm());
    body["why"] = match admin.conversations.quarantined(&id).await {
        Some(quarantined) => {
            body["state"] = json!("quarantined");
            json!({
                "waits_for": format!("an operator: its actor keeps crashing: {}", quarantined.reason),
                "since": quarantined.since,
                "who_can_move_it": format!("an operator: POST /admin/actors/{id}/kill"),
                "next": "nothing, until then",
                "next_at": null,
            })
        }
        None => json!(why::why(&folded, streams)),
    };
    Ok(Json(body))
}

fn parked(id: &ConversationId, folded: &Folded) -> Value {
    json!({
        "conversation_id": id,
        "node": null,
        "epoch": null,
        "state": folded.activeness(),
        "seq": folded.seq,
        "since": null,
        "mailbox_depth": 0,
        "open_calls": folded.open_calls(),
        "restarts": 0,
        "bytes_held": 0,
    })
}

pub(super) async fn kill(
    State(admin): State<Admin>,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    match admin.conversations.kill(&conversation(&id)?).await {
        true => Ok(StatusCode::ACCEPTED),
        false => Err(Problem::not_found("such live actor")),
    }
}
