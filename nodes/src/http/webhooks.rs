//! Webhooks of a tenant: where it wants to be told of what.

mod body;
mod deliveries;
mod secrets;

use std::time::Duration;

use abide_actors::notices::{Webhook, WebhookHealth};
use abide_actors::webhooks::{Sending, Sent};
use abide_conversation::{Scoped, Timestamp};
use abide_registry::notices::webhook_catalog::MAX_AGE;
use abide_registry::store::{Effect, WebhookChange, WebhookEdit, WebhookList};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::extract;
use super::extract::{Body, Idempotency, NoParameters, OptionalBody, Path, Query};
use super::openapi::IdempotencyKeyHeader;
use super::problem::{Kind, Problem};
use super::repeats::Repeats;
use crate::access::Allowed;
use crate::access::permission::ManageWebhooks;
use crate::operations::Act;
use body::{WebhookBody, WebhookRow};
pub(super) use deliveries::{__path_deliveries, __path_redeliver, deliveries, redeliver};

/// The webhooks of one tenant. Every node holds all webhooks in memory.
const MAX_WEBHOOKS: usize = 20;
/// How often a change is tried anew because another one came first.
const MAX_TRIES: usize = 8;
/// How long a secret that is rotated still signs, unless the request says otherwise.
const DEFAULT_OVERLAP: Duration = Duration::from_secs(86_400);
const MAX_OVERLAP: Duration = Duration::from_secs(7 * 86_400);
/// The path of a webhook.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct WebhookPath {
    /// The webhook's name.
    #[param(pattern = "^[a-z0-9][a-z0-9_-]{0,63}$", example = "ops")]
    name: String,
}

/// A webhook that was stored.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(super) struct WebhookStored {
    name: String,
    /// The signing secret, `whsec_…`: of a new webhook, and after a rotation. It is shown this once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
}

/// The answer to a webhook that was put, as it is kept for repeats.
#[derive(Debug, Serialize, Deserialize)]
struct PutAnswer {
    is_new: bool,
    webhook: WebhookStored,
}

impl PutAnswer {
    fn into_response(self) -> (StatusCode, Json<WebhookStored>) {
        let status = if self.is_new { StatusCode::CREATED } else { StatusCode::OK };
        (status, Json(self.webhook))
    }
}

/// The webhooks of a tenant.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WebhookList)]
pub(super) struct Webhooks {
    /// By name.
    webhooks: Vec<WebhookRow>,
}

/// A webhook, and how much it is owed.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct WebhookStatus {
    #[serde(flatten)]
    webhook: WebhookRow,
    /// How many notices are owed.
    owed: u64,
    /// How many notices nobody tries any more.
    dead: u64,
    /// Since when the oldest notice is owed.
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_owed_at: Option<Timestamp>,
}

/// How a secret is rotated.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WebhookRotation {
    /// How long the old secret still signs: at most 7 days, `24h` if absent.
    #[schema(example = "24h")]
    overlap: Option<String>,
}

/// What became of a test.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct WebhookTest {
    /// Whether the receiver took it.
    delivered: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Stores a webhook.
///
/// What happens after the response is owed to it. An update keeps the secret; after the receiver has
/// answered 410, the webhook begins anew.
#[utoipa::path(put, path = "/v1/webhooks/{name}", operation_id = "put_webhook", tag = "webhooks",
    params(WebhookPath, IdempotencyKeyHeader),
    request_body(content = WebhookBody, example = json!({"url": "https://example.com/abide",
        "events": ["call.suspended", "turn.completed"]})),
    responses((status = 201, description = "The webhook is new.", body = WebhookStored),
        (status = 200, description = "The webhook is changed.", body = WebhookStored)))]
pub(super) async fn put(
    allowed: Allowed<ManageWebhooks>,
    State(api): State<Api>,
    Path(name): Path<String>,
    idempotency: Idempotency,
    body: Body<WebhookBody>,
) -> Result<(StatusCode, Json<WebhookStored>), Problem> {
    let rule = "must be 1 to 64 of a-z 0-9 - _, beginning with a letter or a digit";
    if !abide_actors::notices::is_webhook_name(&name) {
        return Err(Problem::field("name", rule));
    }
    let (body, fingerprint) = body.into_parts();
    let keys = idempotency.keys(&allowed, fingerprint);
    let repeats = repeats_of(&api, &allowed, &name);
    if let Some(first) = repeats.first::<PutAnswer>(&keys).await? {
        return Ok(first.into_response());
    }
    body.check(api.has_reply_links)?;
    let now = api.clock.now();
    for _ in 0..MAX_TRIES {
        let list = api.webhooks.list().await?;
        let old = find(&list, &allowed, &name);
        let renewed = old.filter(|old| old.is_active());
        if let Some(old) = renewed
            && let Some(secret) = secrets::made_by(old, &keys, now)
        {
            let webhook = WebhookStored { name, secret: Some(secret) };
            let is_new = old.updated_at == old.created_at;
            return Ok(PutAnswer { is_new, webhook }.into_response());
        }
        if renewed.is_none() && old.is_none() && count(&list, &allowed) >= MAX_WEBHOOKS {
            let detail = format!("the tenant has {MAX_WEBHOOKS} webhooks: delete some first");
            return Err(Problem::new(Kind::InvalidRequest, detail));
        }
        let mut webhook = match renewed {
            Some(old) => old.clone(),
            None => new_webhook(&api, &allowed, &name),
        };
        webhook.updated_at = now;
        body.apply(&mut webhook);
        let secret = secrets::ensure(&mut webhook, &keys, now)?;
        api.notice_sender
            .check(&webhook)
            .map_err(|mistake| Problem::field(mistake.field, mistake.reason))?;
        let key = webhook.key();
        let mut changes = vec![WebhookEdit::Put(Box::new(webhook))];
        let ended = old.filter(|old| old.key() != key);
        changes.extend(ended.map(|old| removed(old, now)));
        let change = WebhookChange { version: list.version, changes };
        let act = Act::of_caller(&allowed, "webhook.put", &name).with_request(&body.excerpt());
        if api.operations.carry_out(act, Effect::ChangeWebhooks(change)).await? {
            let webhook = WebhookStored { name, secret };
            let answer = PutAnswer { is_new: renewed.is_none(), webhook };
            repeats.keep(keys, &answer).await?;
            settle(&api).await?;
            return Ok(answer.into_response());
        }
    }
    Err(busy())
}

/// Lists the webhooks of the tenant, without their secrets.
#[utoipa::path(get, path = "/v1/webhooks", operation_id = "list_webhooks", tag = "webhooks",
    responses((status = 200, description = "The webhooks.", body = Webhooks)))]
pub(super) async fn list(
    allowed: Allowed<ManageWebhooks>,
    State(api): State<Api>,
    _: Query<NoParameters>,
) -> Result<Json<Webhooks>, Problem> {
    let now = api.clock.now();
    let list = api.webhooks.list().await?;
    let own = list.webhooks.iter().filter(|webhook| is_visible(webhook, &allowed));
    let mut webhooks: Vec<WebhookRow> = own.map(|webhook| WebhookRow::of(webhook, now)).collect();
    webhooks.sort_by(|one, other| one.name().cmp(other.name()));
    Ok(Json(Webhooks { webhooks }))
}

/// Reads a webhook, and how much it is owed.
#[utoipa::path(get, path = "/v1/webhooks/{name}", operation_id = "get_webhook", tag = "webhooks",
    params(WebhookPath),
    responses((status = 200, description = "The webhook.", body = WebhookStatus)))]
pub(super) async fn get(
    allowed: Allowed<ManageWebhooks>,
    State(api): State<Api>,
    Path(name): Path<String>,
) -> Result<Json<WebhookStatus>, Problem> {
    let webhook = existing(&api, &allowed, &name).await?;
    let counts = api.store.notice_counts(&webhook.key()).await?;
    Ok(Json(WebhookStatus {
        webhook: WebhookRow::of(&webhook, api.clock.now()),
        owed: counts.owed,
        dead: counts.dead,
        oldest_owed_at: counts.oldest,
    }))
}

/// Deletes a webhook. What is owed to it is dropped.
#[utoipa::path(delete, path = "/v1/webhooks/{name}", operation_id = "delete_webhook",
    tag = "webhooks", params(WebhookPath, IdempotencyKeyHeader),
    responses((status = 204, description = "The webhook is deleted.")))]
pub(super) async fn delete(
    allowed: Allowed<ManageWebhooks>,
    State(api): State<Api>,
    Path(name): Path<String>,
    idempotency: Idempotency,
) -> Result<StatusCode, Problem> {
    let keys = idempotency.keys(&allowed, extract::fingerprint(&["delete webhook", &name]));
    let repeats = repeats_of(&api, &allowed, &name);
    if repeats.first::<Value>(&keys).await?.is_some() {
        return Ok(StatusCode::NO_CONTENT);
    }
    let now = api.clock.now();
    for _ in 0..MAX_TRIES {
        let list = api.webhooks.list().await?;
        let webhook = find(&list, &allowed, &name).ok_or_else(missing)?;
        let change = WebhookChange { version: list.version, changes: vec![removed(webhook, now)] };
        let act = Act::of_caller(&allowed, "webhook.delete", &name);
        if api.operations.carry_out(act, Effect::ChangeWebhooks(change)).await? {
            repeats.keep(keys, &Value::Null).await?;
            settle(&api).await?;
            return Ok(StatusCode::NO_CONTENT);
        }
    }
    Err(busy())
}

/// Makes another signing secret. For a while both sign.
#[utoipa::path(post, path = "/v1/webhooks/{name}/rotate", operation_id = "rotate_webhook",
    tag = "webhooks", params(WebhookPath, IdempotencyKeyHeader),
    request_body = Option<WebhookRotation>,
    responses((status = 200, description = "The new secret.", body = WebhookStored)))]
pub(super) async fn rotate(
    allowed: Allowed<ManageWebhooks>,
    State(api): State<Api>,
    Path(name): Path<String>,
    idempotency: Idempotency,
    OptionalBody(rotation): OptionalBody<WebhookRotation>,
) -> Result<Json<WebhookStored>, Problem> {
    let asked = ["rotate webhook", &name, rotation.overlap.as_deref().unwrap_or_default()];
    let keys = idempotency.keys(&allowed, extract::fingerprint(&asked));
    let repeats = repeats_of(&api, &allowed, &name);
    if let Some(first) = repeats.first(&keys).await? {
        return Ok(Json(first));
    }
    let overlap = match &rotation.overlap {
        None => DEFAULT_OVERLAP,
        Some(text) => abide_actors::agent::duration(text)
            .map_err(|reason| Problem::field("overlap", reason))?,
    };
    if overlap > MAX_OVERLAP {
        return Err(Problem::field("overlap", "must be at most 168h"));
    }
    let now = api.clock.now();
    for _ in 0..MAX_TRIES {
        let list = api.webhooks.list().await?;
        let mut webhook = find(&list, &allowed, &name).ok_or_else(missing)?.clone();
        if webhook.secret_env.is_some() {
            return Err(Problem::field("secret_env", "holds the secret: rotate it there"));
        }
        if let Some(secret) = secrets::made_by(&webhook, &keys, now) {
            return Ok(Json(WebhookStored { name, secret: Some(secret) }));
        }
        webhook.secrets.truncate(1);
        for old in &mut webhook.secrets {
            old.until = Some(later(now, overlap));
        }
        let newest = secrets::generate(&keys, now)?;
        let secret = Some(newest.secret.clone());
        webhook.secrets.insert(0, newest);
        webhook.updated_at = now;
        let changes = vec![WebhookEdit::Put(Box::new(webhook))];
        let change = WebhookChange { version: list.version, changes };
        let act = Act::of_caller(&allowed, "webhook.rotate", &name);
        if api.operations.carry_out(act, Effect::ChangeWebhooks(change)).await? {
            let rotated = WebhookStored { name, secret };
            repeats.keep(keys, &rotated).await?;
            settle(&api).await?;
            return Ok(Json(rotated));
        }
    }
    Err(busy())
}

/// Sends the receiver a notice of the type `webhook.test` and tells what became of it.
#[utoipa::path(post, path = "/v1/webhooks/{name}/test", operation_id = "test_webhook",
    tag = "webhooks", params(WebhookPath),
    responses((status = 200, description = "What became of it.", body = WebhookTest)))]
pub(super) async fn test(
    allowed: Allowed<ManageWebhooks>,
    State(api): State<Api>,
    Path(name): Path<String>,
) -> Result<Json<WebhookTest>, Problem> {
    let webhook = existing(&api, &allowed, &name).await?;
    let id = format!("{}:0:{name}", api.clock.id("test"));
    let data = json!({"webhook": name});
    let notice = json!({"type": "webhook.test", "timestamp": api.clock.now(), "data": data});
    let sending = Sending { webhook: &webhook, id: &id, body: notice.to_string() };
    let error = match api.notice_sender.send(sending).await {
        Sent::Delivered => None,
        Sent::Gone => Some("the receiver answered 410".to_owned()),
        Sent::Failed(error) => Some(error),
    };
    Ok(Json(WebhookTest { delivered: error.is_none(), error }))
}

fn is_visible(webhook: &Webhook, allowed: &Allowed<ManageWebhooks>) -> bool {
    webhook.tenant == allowed.tenant() && webhook.removed_at.is_none()
}

fn find<'a>(
    list: &'a WebhookList,
    allowed: &Allowed<ManageWebhooks>,
    name: &str,
) -> Option<&'a Webhook> {
    list.webhooks.iter().find(|webhook| is_visible(webhook, allowed) && webhook.name == name)
}

fn count(list: &WebhookList, allowed: &Allowed<ManageWebhooks>) -> usize {
    list.webhooks.iter().filter(|webhook| is_visible(webhook, allowed)).count()
}

async fn existing(
    api: &Api,
    allowed: &Allowed<ManageWebhooks>,
    name: &str,
) -> Result<Webhook, Problem> {
    let list = api.webhooks.list().await?;
    find(&list, allowed, name).cloned().ok_or_else(missing)
}

fn new_webhook(api: &Api, allowed: &Allowed<ManageWebhooks>, name: &str) -> Webhook {
    let now = api.clock.now();
    Webhook {
        tenant: allowed.tenant(),
        name: name.to_owned(),
        generation: api.clock.id("w"),
        url: String::new(),
        events: None,
        agents: Default::default(),
        metadata: Default::default(),
        links: None,
        secret_env: None,
        headers_env: Default::default(),
        secrets: Vec::new(),
        created_at: now,
        updated_at: now,
        by: allowed.principal().as_str().to_owned(),
        health: WebhookHealth::default(),
        ended_at: None,
        removed_at: None,
        swept: false,
    }
}

/// The repeats of requests that change a webhook.
fn repeats_of<'a>(api: &'a Api, allowed: &Allowed<ManageWebhooks>, name: &str) -> Repeats<'a> {
    Repeats::new(api, allowed.tenant(), format!("webhook:{name}"))
}

fn removed(webhook: &Webhook, now: Timestamp) -> WebhookEdit {
    // What signs nothing any more need not be stored.
    let removed_at = Some(now);
    WebhookEdit::Put(Box::new(Webhook { removed_at, secrets: Vec::new(), ..webhook.clone() }))
}

/// Waits until every node knows of a change: what happens then is owed by it.
async fn settle(api: &Api) -> Result<(), Problem> {
    api.webhooks.refresh(Duration::ZERO).await?;
    let view = api.conversations.unscoped().cluster().view();
    if view.others().next().is_some() {
        tokio::time::sleep(MAX_AGE).await;
    }
    Ok(())
}

fn missing() -> Problem {
    Problem::not_found("webhook")
}

fn busy() -> Problem {
    Problem::new(Kind::Unavailable, "too many webhooks change at once")
}

fn later(now: Timestamp, span: Duration) -> Timestamp {
    let span = jiff::SignedDuration::try_from(span).unwrap_or(jiff::SignedDuration::MAX);
    now.checked_add(span).unwrap_or(Timestamp::MAX)
}

/// A conversation and the seq of `CONVERSATION:SEQ:NAME`, the id of a notice of this webhook.
fn parse_notice_id(
    id: &str,
    webhook: &Webhook,
) -> Option<(Scoped<abide_conversation::ConversationId>, abide_conversation::Seq)> {
    let (rest, name) = id.rsplit_once(':')?;
    let (conversation, seq) = rest.rsplit_once(':')?;
    let conversation = abide_conversation::ConversationId::parse(conversation)?;
    let seq = seq.parse().ok().filter(|_| name == webhook.name)?;
    Some((webhook.key().sibling(&conversation), abide_conversation::Seq::new(seq)))
}
