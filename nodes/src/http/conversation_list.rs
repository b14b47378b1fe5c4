//! The list of conversations: which it shows, and in which order.

use std::collections::BTreeMap;

use abide_actors::agents::Agents;
use abide_conversation::ids::is_segment;
use abide_conversation::limits::is_subject;
use abide_conversation::state::ConversationStatus;
use abide_conversation::usage::Usage;
use abide_conversation::{AgentName, ConversationId, Seq, Tenant, Timestamp};
use abide_registry::store::{
    Direction, ListOrder, ListQuery, ListedConversation, Period, active_at,
};
use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::Uri;
use axum::http::request::Parts;
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

use super::conversations::agent_name;
use super::extract;
use super::extract::Query;
use super::problem::Problem;
use super::{Api, MAX_CONCURRENT_INSPECTIONS};
use crate::access::Allowed;
use crate::access::permission::ListConversations;

/// What begins the names of the parameters that ask for metadata.
const METADATA_PREFIX: &str = "metadata.";
const MAX_METADATA_FILTERS: usize = 4;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListParams {
    /// Only conversations of this agent.
    agent: Option<String>,
    /// Only conversations in this state.
    state: Option<ConversationStatus>,
    /// Only conversations of this owner.
    owner: Option<String>,
    /// Only the children of this conversation.
    parent: Option<String>,
    /// Whether children are left out, unless `parent` asks for theirs.
    #[param(default = true)]
    root_only: Option<bool>,
    /// Only conversations that were created after this time.
    created_after: Option<Timestamp>,
    /// Only conversations that were created before this time.
    created_before: Option<Timestamp>,
    /// Only conversations that were active after this time.
    active_after: Option<Timestamp>,
    /// Only conversations whose last activity was before this time.
    active_before: Option<Timestamp>,
    /// What the list is sorted by, `created` by default; equal times by id.
    #[param(inline)]
    order: Option<OrderParam>,
    /// Whether the latest come first (`desc`, the default) or the earliest.
    #[param(inline)]
    dir: Option<DirectionParam>,
    /// The size of the page.
    #[param(default = 50, minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// The cursor of the previous page of the same list.
    cursor: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum OrderParam {
    Active,
    Created,
}

#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum DirectionParam {
    Asc,
    Desc,
}

/// The parameters `metadata.KEY=VALUE` of a list, and the others.
pub(super) struct ListRequest {
    params: ListParams,
    metadata: BTreeMap<String, String>,
}

impl<S: Send + Sync> FromRequestParts<S> for ListRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let (mut metadata, mut others) = (BTreeMap::new(), Vec::new());
        let pairs = parts.uri.query().unwrap_or_default().split('&').map(str::to_owned);
        for pair in pairs.collect::<Vec<_>>() {
            parts.uri = uri_of(&pair)?;
            let Query(words) =
                Query::<Vec<(String, String)>>::from_request_parts(parts, state).await?;
            let of_metadata = words.into_iter().find_map(|(name, value)| {
                Some((name.strip_prefix(METADATA_PREFIX)?.to_owned(), value))
            });
            let Some((key, value)) = of_metadata else {
                others.push(pair);
                continue;
            };
            let name = format!("{METADATA_PREFIX}{key}");
            if metadata.insert(key, value).is_some() {
                return Err(Problem::field(&name, "is given twice"));
            }
            if metadata.len() > MAX_METADATA_FILTERS {
                let rule = format!("at most {MAX_METADATA_FILTERS} members may be asked for");
                return Err(Problem::field("metadata", rule));
            }
        }
        parts.uri = uri_of(&others.join("&"))?;
        let Query(params) = Query::from_request_parts(parts, state).await?;
        Ok(Self { params, metadata })
    }
}

/// An address with this query.
fn uri_of(query: &str) -> Result<Uri, Problem> {
    let unreadable = |_| Problem::unreadable("the query is not percent-encoded UTF-8");
    format!("/?{query}").parse().map_err(unreadable)
}

/// A conversation in a list.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ConversationRow)]
struct Row {
    id: ConversationId,
    agent: AgentName,
    state: ConversationStatus,
    /// The subject whose conversation it is; null if nobody was authenticated.
    #[schema(required)]
    owner: Option<String>,
    /// The parent of a child.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<ConversationId>,
    #[schema(value_type = u64)]
    last_seq: Seq,
    created_at: Timestamp,
    /// When it was created, a turn ended or a call began to wait, whichever was last.
    active_at: Timestamp,
    metadata: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    /// When it is deleted, at a time of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
    /// The number of calls that wait for somebody outside.
    pending: usize,
    /// The number of turns that had started at `active_at`.
    turns: u64,
    /// The usage at `active_at`.
    usage: Usage,
}

/// A page of conversations.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ConversationPage {
    conversations: Vec<Row>,
    /// The cursor of the next page; null at the end. A page before the end may be short.
    #[schema(required)]
    cursor: Option<String>,
    /// Whether conversations may be missing, because an agent has just begun to index a key of the
    /// metadata and they are older. Absent if not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    incomplete: bool,
}

/// Lists conversations.
///
/// Up to four parameters `metadata.KEY=VALUE` ask for conversations whose metadata has this text, if
/// the agent's `index` names the key.
#[utoipa::path(get, path = "/v1/conversations", operation_id = "list_conversations",
    tag = "conversations", params(ListParams),
    responses((status = 200, description = "A page of conversations.", body = ConversationPage)))]
pub(super) async fn list(
    allowed: Allowed<ListConversations>,
    State(api): State<Api>,
    request: ListRequest,
) -> Result<Json<ConversationPage>, Problem> {
    let ListRequest { params, metadata } = request;
    let limit = extract::limit(params.limit, 50, 1_000)?;
    let (state, cursor) = (params.state, params.cursor.clone());
    let tenant = allowed.tenant();
    let query = ListQuery { metadata, visible_to: allowed.viewer(), ..query(params)? };
    check_index(&api, &allowed, &query).await?;
    let incomplete = is_being_indexed(&api, &tenant, &query).await?;
    let page = api.store.list(&tenant, &query, cursor.as_deref(), limit).await?;
    let rows = page.items.into_iter().map(|listed| row(&api, listed));
    let rows = futures::stream::iter(rows).buffered(MAX_CONCURRENT_INSPECTIONS);
    let matches = |row: &Row| state.is_none_or(|state| state == row.state);
    let rows = rows.filter(|row| std::future::ready(matches(row)));
    let conversations: Vec<Row> = rows.collect().await;
    Ok(Json(ConversationPage { conversations, cursor: page.cursor, incomplete }))
}

/// What the parameters ask for, whoever asks.
fn query(params: ListParams) -> Result<ListQuery, Problem> {
    let ListParams { created_after, created_before, active_after, active_before, .. } = params;
    if params.owner.as_ref().is_some_and(|owner| !is_subject(owner)) {
        return Err(Problem::field("owner", "must be a subject of 1 to 255 characters"));
    }
    if params.parent.as_ref().is_some_and(|parent| !is_segment(parent)) {
        return Err(Problem::field("parent", "must be [A-Za-z0-9_.:-]{1,128}"));
    }
    Ok(ListQuery {
        agent: params.agent.as_deref().map(agent_name).transpose()?,
        // Whether a model streams is not in the journal; only the live actor knows.
        status: params.state.map(|status| match status {
            ConversationStatus::Streaming => ConversationStatus::Preparing,
            other => other,
        }),
        owner: params.owner,
        parent: params.parent.map(ConversationId::new),
        root_only: params.root_only.unwrap_or(true),
        created: period("created_before", created_after, created_before)?,
        active: period("active_before", active_after, active_before)?,
        order: match params.order.unwrap_or(OrderParam::Created) {
            OrderParam::Active => ListOrder::Active,
            OrderParam::Created => ListOrder::Created,
        },
        direction: match params.dir.unwrap_or(DirectionParam::Desc) {
            DirectionParam::Asc => Direction::Ascending,
            DirectionParam::Desc => Direction::Descending,
        },
        ..ListQuery::default()
    })
}

/// The times between these; `before` names the second parameter.
fn period(
    before_name: &str,
    after: Option<Timestamp>,
    before: Option<Timestamp>,
) -> Result<Period, Problem> {
    match (after, before) {
        (Some(after), Some(before)) if before <= after => {
            Err(Problem::field(before_name, "must be later than the other bound"))
        }
        _ => Ok(Period { after, before }),
    }
}

/// Refuses to look for metadata that the agent does not index: nothing would be found.
async fn check_index(
    api: &Api,
    allowed: &Allowed<ListConversations>,
    query: &ListQuery,
) -> Result<(), Problem> {
    let Some(agent) = query.agent.as_ref().filter(|_| !query.metadata.is_empty()) else {
        return Ok(());
    };
    let newest = api.catalog.newest(&allowed.scoped(agent)).await?;
    let Some(definition) = newest else { return Ok(()) };
    match query.metadata.keys().find(|key| !definition.index.contains(key)) {
        Some(key) => Err(Problem::field(
            &format!("{METADATA_PREFIX}{key}"),
            format!("is not in the index of agent {agent}"),
        )),
        None => Ok(()),
    }
}

/// Whether the list is by metadata that an agent does not index yet for all of its conversations.
/// Asked before the list is read: what is indexed by then is in it.
async fn is_being_indexed(api: &Api, tenant: &Tenant, query: &ListQuery) -> Result<bool, Problem> {
    if query.metadata.is_empty() {
        return Ok(false);
    }
    Ok(api.store.index_jobs().await?.concern(tenant, query.agent.as_ref()))
}

async fn row(api: &Api, listed: ListedConversation) -> Row {
    let ListedConversation { id, summary, pending } = listed;
    let mut state = summary.status;
    if state == ConversationStatus::Preparing {
        let live = api.conversations.unscoped().inspect(&id).await;
        state = state.with_streaming(live.is_some_and(|live| live.streaming.is_some()));
    }
    Row {
        id: id.local(),
        state,
        active_at: active_at(&summary),
        agent: summary.agent,
        owner: summary.participants.owner,
        parent: summary.listing.parent,
        last_seq: summary.last_seq,
        created_at: summary.created_at,
        metadata: summary.metadata,
        title: summary.listing.title,
        expires_at: summary.listing.expires_at,
        pending,
        turns: summary.listing.turns,
        usage: summary.listing.usage,
    }
}
