//! The tools that only read.

use abide_actors::snapshot::Snapshot;
use rmcp::model::CallToolResult;
use serde::Deserialize;
use serde_json::{Value, json};

use super::caller::Caller;
use crate::access::permission::{ListPending, Read};
use crate::http::calls::{PendingQuery, pending_page};
use crate::http::extract;
use crate::problem::Problem;

/// Lists what waits for somebody, as `GET /v1/pending` does.
pub(super) async fn pending(caller: &Caller, arguments: Value) -> Result<CallToolResult, Problem> {
    let query: PendingQuery = extract::deserialize(arguments)?;
    let allowed = caller.allowed.with::<ListPending>()?;
    let page = pending_page(&caller.api, &allowed, query).await?;
    Ok(CallToolResult::structured(json!(page)))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConversationArguments {
    conversation_id: String,
}

/// Reads a conversation, as `GET /v1/conversations/{id}` does.
pub(super) async fn conversation(
    caller: &Caller,
    arguments: Value,
) -> Result<CallToolResult, Problem> {
    let ConversationArguments { conversation_id } = extract::deserialize(arguments)?;
    let allowed = caller.allowed.with::<Read>()?;
    let id = allowed.conversation(&conversation_id)?;
    let snapshot: Snapshot = caller.api.conversations.snapshot(&allowed, &id).await?;
    Ok(CallToolResult::structured(json!(snapshot)))
}
