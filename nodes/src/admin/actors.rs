//! Conversation actors: a listing of the live and the quarantined ones, and one conversation in detail.

use std::sync::Arc;

use abide_actors::diagnosis;
use abide_actors::identity::NodeName;
use abide_conversation::identity::Role;
use abide_conversation::state::ConversationStatus;
use abide_conversation::{ConversationId, Scoped, State as ConversationState};
use abide_registry::actor_view::{ActorDetails, ActorSummary};
use abide_registry::host::Quarantined;
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};

use super::scoped_id::conversation;
use super::{Admin, queues};
use crate::access::Allowed;
use crate::access::permission::Operate;
use crate::http::extract::{Path, Query, limit};
use crate::problem::Problem;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    node: Option<NodeName>,
    state: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

pub(super) async fn list(
    _: Allowed<Operate>,
    State(admin): State<Admin>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Value>, Problem> {
    let limit = limit(query.limit, 100, 1_000)?;
    let node = query.node.as_ref();
    if query.state.as_deref().is_some_and(|state| !is_state(state)) {
        return Err(Problem::field("state", "must be a state of a conversation, or quarantined"));
    }
    let (conversations, cursor) = (&admin.conversations, query.cursor.as_deref());
    let page = match query.state.as_deref() {
        Some("quarantined") => conversations.list_quarantined(node, cursor, limit).await,
        Some(_) | None => conversations.list_actors(node, cursor, limit).await,
    };
    let last = page.last().filter(|_| page.len() == limit);
    let cursor = last.map(|actor| actor.conversation_id.clone());
    let matches = |row: &Value| query.state.as_ref().is_none_or(|state| row["state"] == **state);
    let actors: Vec<Value> = page.iter().map(row).filter(matches).collect();
    Ok(Json(json!({"actors": actors, "cursor": cursor})))
}

fn is_state(text: &str) -> bool {
    text == "quarantined" || serde_json::from_value::<ConversationStatus>(json!(text)).is_ok()
}

fn row(actor: &ActorSummary) -> Value {
    let mut row = json!(actor);
    if actor.is_quarantined {
        row["state"] = json!("quarantined");
    }
    if let Some(members) = row.as_object_mut() {
        members.remove("is_quarantined");
    }
    row
}

/// Shows one conversation, live or not, with what it waits for.
pub(super) async fn get(
    allowed: Allowed<Operate>,
    State(admin): State<Admin>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Problem> {
    let id = conversation(&allowed, &id)?;
    let (live, quarantined) = match admin.conversations.get_actor(&id).await? {
        Some(ActorDetails { live, quarantined }) => (live, quarantined),
        None => (None, None),
    };
    let mut body;
    let state;
    let inspection;
    if let Some((actor, live)) = live {
        body = json!(actor);
        body["running"] = json!(live.running);
        state = live.state.clone();
        inspection = Some(live);
    } else {
        let stored = admin.conversations.stored_state(&id).await?.map(Arc::new);
        state = stored.ok_or_else(|| Problem::not_found("conversation"))?;
        body = without_actor(&id, &state);
        inspection = None;
    }
    body["turn"] = json!(state.turn);
    body["pending"] = json!(state.pending_calls());
    if !may_read(&allowed, &id) {
        remove_content(&mut body);
    }
    body["alarm"] = json!(state.alarm());
    body["why"] = match quarantined {
        Some(Quarantined { reason, since }) => {
            body["state"] = json!("quarantined");
            json!(diagnosis::quarantined(&id, &reason, since))
        }
        None => {
            let diagnosis = diagnosis::diagnose(&id, &state, inspection.as_deref());
            json!(queues::add_workers(&admin, &id, &state, diagnosis).await)
        }
    };
    Ok(Json(body))
}

/// Whether the caller may read the content of a conversation: an auditor of its tenant may.
fn may_read(allowed: &Allowed<Operate>, id: &Scoped<ConversationId>) -> bool {
    let is_own = allowed.own_tenant().is_none_or(|tenant| id.is_of(tenant));
    is_own && allowed.has_role(&[Role::Auditor])
}

/// What people, models and tools said: operators see ids, states and reasons.
const CONTENT: [&str; 8] =
    ["args", "assigns", "message", "requests", "input", "pending_input", "shape", "identity"];

/// Removes the content of a conversation from its turn and its calls.
fn remove_content(body: &mut Value) {
    for member in ["turn", "pending"] {
        without_content(&mut body[member]);
    }
}

fn without_content(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|name, _| !CONTENT.contains(&name.as_str()));
            members.values_mut().for_each(without_content);
        }
        Value::Array(list) => list.iter_mut().for_each(without_content),
        _ => {}
    }
}

/// The row of a conversation that no node holds in memory.
fn without_actor(id: &Scoped<ConversationId>, state: &ConversationState) -> Value {
    json!({
        "conversation_id": id,
        "node": null,
        "epoch": null,
        "state": state.status(),
        "seq": state.seq,
        "since": null,
        "mailbox_depth": 0,
        "open_calls": state.open_calls(),
        "restarts": 0,
        "bytes_held": 0,
    })
}
