//! What is owed to a webhook, and what nobody tries any more.

use abide_actors::notices::Webhook;
use abide_conversation::{ConversationId, Timestamp};
use abide_registry::store::{Delivery, DeliveryState, NoticeQueue, Page, Settlement};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{WebhookPath, existing, missing, parse_notice_id};
use crate::access::Allowed;
use crate::access::permission::ManageWebhooks;
use crate::http::Api;
use crate::http::extract::{self, Path, Query};
use crate::operations::Act;
use crate::problem::Problem;

/// Which notices to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct DeliveriesQuery {
    /// Those that are owed (by conversation; of each the 20 that are next), or those that are dead.
    state: StateQuery,
    /// The `cursor` of the page before.
    cursor: Option<String>,
    /// For `owed` the number of conversations, for `dead` that of notices; 50 if absent.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<usize>,
}

/// The state of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = DeliveryState)]
pub(in crate::http) enum StateQuery {
    Owed,
    Dead,
}

/// The path of a notice of a webhook.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct DeliveryPath {
    /// The webhook's name.
    #[param(pattern = "^[a-z0-9][a-z0-9_-]{0,63}$", example = "ops")]
    name: String,
    /// The notice's `webhook-id`.
    #[param(example = "conv_1:7:ops")]
    id: String,
}

/// A page of notices.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http) struct DeliveryPage {
    deliveries: Vec<DeliveryRow>,
    /// Where the next page begins; null on the last one.
    #[schema(required)]
    cursor: Option<String>,
}

/// A notice that is owed, or dead.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Delivery)]
pub(in crate::http) struct DeliveryRow {
    /// The `webhook-id`.
    id: String,
    conversation_id: ConversationId,
    /// The `type` of the notice.
    r#type: String,
    /// The time of the event.
    at: Timestamp,
    state: StateQuery,
    /// How many attempts have failed.
    attempts: u32,
    /// When it is tried next; absent while it waits behind another of its conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_attempt_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_attempt_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    /// Dead notices only.
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_at: Option<Timestamp>,
}

/// A notice that is sent once more.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::http) struct Redelivery {
    id: String,
}

fn row(webhook: &Webhook, delivery: Delivery) -> DeliveryRow {
    let Delivery { conversation, notice, attempts, due, dead_at } = delivery;
    let conversation_id = conversation.local();
    DeliveryRow {
        id: format!("{conversation_id}:{}:{}", notice.seq, webhook.name),
        conversation_id,
        r#type: notice.kind,
        at: notice.at,
        state: if dead_at.is_some() { StateQuery::Dead } else { StateQuery::Owed },
        attempts: attempts.count,
        next_attempt_at: due,
        last_attempt_at: attempts.last_at,
        last_error: attempts.last_error,
        dead_at,
    }
}

/// Lists what is owed to a webhook, or what nobody tries any more, without the content.
#[utoipa::path(get, path = "/v1/webhooks/{name}/deliveries", operation_id = "list_deliveries",
    tag = "webhooks", params(WebhookPath, DeliveriesQuery),
    responses((status = 200, description = "The notices.", body = DeliveryPage)))]
pub(in crate::http) async fn deliveries(
    allowed: Allowed<ManageWebhooks>,
    State(api): State<Api>,
    Path(name): Path<String>,
    Query(query): Query<DeliveriesQuery>,
) -> Result<Json<DeliveryPage>, Problem> {
    let limit = extract::limit(query.limit, 50, 100)?;
    let webhook = existing(&api, &allowed, &name).await?;
    let state = match query.state {
        StateQuery::Owed => DeliveryState::Owed,
        StateQuery::Dead => DeliveryState::Dead,
    };
    let page = api.store.deliveries(&webhook.key(), state, query.cursor.as_deref(), limit).await?;
    let Page { items, cursor } = page;
    let deliveries = items.into_iter().map(|delivery| row(&webhook, delivery)).collect();
    Ok(Json(DeliveryPage { deliveries, cursor }))
}

/// Sends a notice once more: one that is dead, with all attempts, or one that is owed, now.
///
/// A dead notice becomes the next of its conversation. One that waits behind another of its conversation
/// cannot be hurried, and is not found.
#[utoipa::path(post, path = "/v1/webhooks/{name}/deliveries/{id}/redeliver",
    operation_id = "redeliver", tag = "webhooks", params(DeliveryPath),
    responses((status = 202, description = "The notice is sent.", body = Redelivery)))]
pub(in crate::http) async fn redeliver(
    allowed: Allowed<ManageWebhooks>,
    State(api): State<Api>,
    Path((name, id)): Path<(String, String)>,
) -> Result<(StatusCode, Json<Redelivery>), Problem> {
    let webhook = existing(&api, &allowed, &name).await?;
    let unknown = || Problem::not_found("delivery");
    let (conversation, seq) = parse_notice_id(&id, &webhook).ok_or_else(unknown)?;
    if !webhook.is_active() {
        return Err(missing());
    }
    let queue = NoticeQueue { webhook: webhook.key(), conversation };
    let now = api.clock.now();
    api.operations.record(Act::of_caller(&allowed, "webhook.redeliver", &id)).await?;
    if !api.store.redeliver(&queue, seq, now).await? {
        let head = api.store.notice_head(&queue).await?;
        let head = head.filter(|head| head.notice.seq == seq).ok_or_else(unknown)?;
        let retry = Settlement::Retry { due: now, attempts: head.attempts.clone() };
        api.store.settle_notice(&queue, &head, &retry).await?;
    }
    Ok((StatusCode::ACCEPTED, Json(Redelivery { id })))
}
