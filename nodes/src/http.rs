//! The public API: `reference/http.md`.

mod a2a;
mod ag_ui;
mod agents;
mod answers;
mod batch_resolutions;
mod blob_list;
pub(crate) mod blobs;
pub(crate) mod body_budget;
pub(crate) mod callbacks;
mod calls;
mod chat;
mod child_frames;
pub mod console;
mod conversation_list;
pub(crate) mod conversations;
mod copilotkit;
mod cors;
mod creation;
mod decisions;
mod definition_policy;
mod erasures;
mod event_stream;
pub(crate) mod events;
mod extend;
pub mod extract;
mod frames;
pub(crate) mod guard;
pub(crate) mod host;
mod inbox_events;
mod keys;
mod leases;
mod mcp;
mod me;
mod message_cursor;
mod message_parts;
mod message_places;
mod messages;
mod moment;
mod openai;
pub mod openapi;
mod protocol_requests;
mod queued_turns;
pub(crate) mod queues;
mod repeats;
mod reply_links;
mod resolutions;
mod revisions;
mod rewind;
mod rollout;
mod scheduled;
mod schedules;
mod state;
mod tokens;
mod transcript;
mod transfer;
mod turn_body;
mod turn_progress;
mod turn_stream;
mod usage;
pub(crate) mod wait;
mod webhooks;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use abide_actors::clock::Clock;
use abide_actors::webhooks::NoticeSender;
use abide_actors::workspace::Workspaces;
use abide_registry::agent_catalog::AgentCatalog;
use abide_registry::live::Hub;
use abide_registry::notices::webhook_catalog::WebhookCatalog;
use abide_registry::queues::Queues;
use abide_registry::store::Store;
use axum::Router;
use axum::extract::{FromRef, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::access::permission::Known;
use crate::access::routes::{DeclaredApi, declared_routes};
use crate::access::{AccessControl, Allowed, CallerConversations, ClientState};
use crate::config::Origin;
use crate::departures::Departures;
use crate::operations::Operations;
pub(crate) use crate::problem;
use crate::telemetry::{RequestMetrics, measure};
use body_budget::BodyBudget;
use host::AllowedHosts;
use problem::{Kind, Problem};

/// Each request in flight may hold a body and a place in a mailbox.
const MAX_REQUESTS_IN_FLIGHT: usize = 4_096;

/// How many live actors one listing inspects at a time: enough that a slow one holds up few others.
const MAX_CONCURRENT_INSPECTIONS: usize = 32;

/// What the handlers work with; cheap to clone, since each request clones every layer of the router.
#[derive(Clone)]
pub(crate) struct Api(Arc<ApiDeps>);

/// What an [`Api`] is built from.
pub(crate) struct ApiDeps {
    pub(crate) conversations: CallerConversations,
    pub(crate) catalog: Arc<AgentCatalog>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) operations: Operations,
    pub(crate) hub: Hub,
    pub(crate) queues: Queues,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) allowed_hosts: AllowedHosts,
    pub(crate) access: AccessControl,
    pub(crate) client_state: ClientState,
    pub(crate) workspaces: Arc<Workspaces>,
    pub(crate) requests_in_flight: AtomicUsize,
    pub(crate) metrics: RequestMetrics,
    pub(crate) bodies: BodyBudget,
    pub(crate) departures: Departures,
    /// One permit for each event stream that encodes frames at the moment.
    pub(crate) encoding_streams: Arc<Semaphore>,
    /// One permit for each request that waits for its turn.
    pub(crate) waiting_requests: Arc<Semaphore>,
    /// One permit for each worker that waits for calls.
    pub(crate) waiting_workers: Arc<Semaphore>,
    /// One permit for each blob that is being received or sent.
    pub(crate) blobs_in_flight: Arc<Semaphore>,
    pub(crate) webhooks: Arc<WebhookCatalog>,
    pub(crate) notice_sender: Arc<NoticeSender>,
    /// Whether notices may have links that answer.
    pub(crate) has_reply_links: bool,
}

impl Api {
    pub(crate) fn new(deps: ApiDeps) -> Self {
        Self(Arc::new(deps))
    }
}

impl FromRef<Api> for BodyBudget {
    fn from_ref(api: &Api) -> Self {
        api.bodies.clone()
    }
}

impl FromRef<Api> for AccessControl {
    fn from_ref(api: &Api) -> Self {
        api.access.clone()
    }
}

impl std::ops::Deref for Api {
    type Target = ApiDeps;

    fn deref(&self) -> &ApiDeps {
        &self.0
    }
}

/// The router of all public paths, usable by pages of the node itself and of these origins.
pub(crate) fn router(api: Api, allowed: &[Origin]) -> Router {
    let (router, _) = routes().into_parts();
    let router = router
        .merge(console::router())
        .merge(mcp::discovery::router())
        .merge(reply_links::router())
        .finish(unknown_path, unknown_method)
        // One layer for all checks: each layer boxes the response of the next.
        .layer(middleware::from_fn_with_state(api.clone(), enter))
        .with_state(api);
    match cors::layer(allowed) {
        Some(layer) => router.layer(layer),
        None => router,
    }
}

/// The paths with their OpenAPI descriptions.
fn routes() -> DeclaredApi<Api> {
    DeclaredApi::new(openapi::blank())
        .routes(declared_routes!(agents::list))
        .routes(declared_routes!(agents::put, agents::get, agents::delete))
        .routes(declared_routes!(revisions::list))
        .routes(declared_routes!(revisions::get))
        .routes(declared_routes!(revisions::compare))
        .routes(declared_routes!(revisions::roll_back))
        .routes(declared_routes!(rollout::put, rollout::get, rollout::delete))
        .routes(declared_routes!(conversation_list::list, conversations::create))
        .routes(declared_routes!(conversations::get, conversations::update, conversations::delete))
        .routes(declared_routes!(messages::list, messages::send))
        .routes(declared_routes!(resolutions::resolve))
        .routes(declared_routes!(resolutions::resolve_all))
        .routes(declared_routes!(calls::cancel))
        .routes(declared_routes!(calls::dispatch))
        .routes(declared_routes!(conversations::fork))
        .routes(declared_routes!(conversations::journal))
        .routes(declared_routes!(transfer::export))
        .routes(declared_routes!(transfer::import))
        .routes(declared_routes!(events::events))
        .routes(declared_routes!(decisions::of_conversation))
        .routes(declared_routes!(decisions::revoke))
        .routes(declared_routes!(state::get, state::put, state::delete))
        .routes(declared_routes!(decisions::of_agent))
        .routes(declared_routes!(decisions::revoke_of_agent))
        .routes(declared_routes!(calls::pending))
        .routes(declared_routes!(blobs::put, blob_list::list))
        .routes(declared_routes!(blobs::get))
        .routes(declared_routes!(me::get))
        .routes(declared_routes!(keys::list, keys::create))
        .routes(declared_routes!(keys::revoke))
        .routes(declared_routes!(tokens::mint))
        .routes(declared_routes!(usage::get))
        .routes(declared_routes!(erasures::list, erasures::start))
        .routes(declared_routes!(erasures::get))
        .routes(declared_routes!(chat::chat))
        .routes(declared_routes!(chat::resume))
        .routes(declared_routes!(chat::list))
        .routes(declared_routes!(chat::stop))
        .routes(declared_routes!(ag_ui::run))
        .routes(declared_routes!(ag_ui::capabilities))
        .routes(declared_routes!(copilotkit::info))
        .routes(declared_routes!(copilotkit::run))
        .routes(declared_routes!(copilotkit::connect))
        .routes(declared_routes!(copilotkit::stop))
        .routes(declared_routes!(openai::models::list))
        .routes(declared_routes!(openai::responses::create))
        .routes(declared_routes!(openai::retrieval::get))
        .routes(declared_routes!(openai::retrieval::cancel))
        .routes(declared_routes!(openai::retrieval::input_items))
        .routes(declared_routes!(openai::conversations::create))
        .routes(declared_routes!(openai::conversations::get, openai::conversations::delete))
        .routes(declared_routes!(openai::conversations::items))
        .routes(declared_routes!(openai::chat_completions::create))
        .routes(declared_routes!(a2a::call))
        .routes(declared_routes!(a2a::card::get))
        .routes(declared_routes!(mcp::call_tool))
        .routes(declared_routes!(mcp::call_agent))
        .routes(declared_routes!(queues::lease))
        .routes(declared_routes!(leases::extend))
        .routes(declared_routes!(leases::progress))
        .routes(declared_routes!(leases::complete))
        .routes(declared_routes!(callbacks::call_back))
        .routes(declared_routes!(openapi::openapi))
        .routes(declared_routes!(webhooks::list))
        .routes(declared_routes!(webhooks::put, webhooks::get, webhooks::delete))
        .routes(declared_routes!(webhooks::rotate))
        .routes(declared_routes!(webhooks::test))
        .routes(declared_routes!(webhooks::deliveries))
        .routes(declared_routes!(webhooks::redeliver))
        .routes(declared_routes!(scheduled::list))
        .routes(declared_routes!(scheduled::withdraw))
        .routes(declared_routes!(queued_turns::list))
        .routes(declared_routes!(queued_turns::withdraw))
        .routes(declared_routes!(rewind::rewind))
        .routes(declared_routes!(rewind::regenerate))
        .routes(declared_routes!(extend::extend))
        .routes(declared_routes!(batch_resolutions::resolve))
        .routes(declared_routes!(inbox_events::events))
        .routes(declared_routes!(schedules::list))
        .routes(declared_routes!(schedules::put, schedules::get, schedules::delete))
        .routes(declared_routes!(schedules::pause))
        .routes(declared_routes!(schedules::resume))
        .routes(declared_routes!(schedules::trigger))
}

/// Answers for a path that does not exist, to those who may know that.
pub(crate) async fn unknown_path(_: Allowed<Known>) -> Problem {
    Problem::not_found("path")
}

/// Answers for a method that a path does not support.
pub(crate) async fn unknown_method(_: Allowed<Known>) -> Problem {
    Problem::method_not_allowed()
}

/// Measures, checks and admits a request before its handler runs.
async fn enter(State(api): State<Api>, request: Request, next: Next) -> Response {
    let is_openai = problem::openai::is_spoken_at(request.uri().path());
    let is_a2a = problem::a2a::is_spoken_by(&request);
    let mcp_challenge = mcp::discovery::challenge(&request);
    let admitted = |request| admit(&api, request, next);
    let handle = |request| guard::guard(&api.allowed_hosts, request, admitted);
    let mut response = measure(&api.metrics, &*api.clock, request, handle).await;
    mcp::discovery::point_out(&mut response, mcp_challenge);
    if is_openai {
        problem::openai::translate(response)
    } else if is_a2a {
        problem::a2a::translate(response, &Value::Null)
    } else {
        response
    }
}

/// Runs the handler, unless too many requests are in flight or the node drains.
async fn admit(api: &Api, request: Request, next: Next) -> Response {
    if api.conversations.unscoped().cluster().lease().is_draining() && !request.method().is_safe() {
        return Problem::new(Kind::Unavailable, "the node is draining").into_response();
    }
    let in_flight = api.requests_in_flight.fetch_add(1, Ordering::Relaxed);
    let _guard = InFlightGuard(&api.requests_in_flight);
    if in_flight < MAX_REQUESTS_IN_FLIGHT {
        next.run(request).await
    } else {
        Problem::new(Kind::Overloaded, "too many requests are in flight").into_response()
    }
}

/// Ends the count of a request in flight, also when its client disconnects.
struct InFlightGuard<'a>(&'a AtomicUsize);

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
