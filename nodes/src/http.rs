//! The public API: contract §3 to §6.

mod agents;
pub(crate) mod blobs;
mod calls;
mod console;
pub(crate) mod conversations;
pub mod cors;
mod decisions;
pub(crate) mod events;
pub mod extract;
mod frames;
pub(crate) mod guard;
mod messages;
pub mod openapi;
pub mod problem;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use abide_actors::clock::Clock;
use abide_registry::agent_catalog::AgentCatalog;
use abide_registry::live::Hub;
use abide_registry::router::Conversations;
use abide_registry::store::Store;
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::telemetry::measured;
use cors::Origin;
use problem::{Kind, Problem};

/// How many requests may be under way. Each may hold a body and a place in a mailbox.
const AT_ONCE: usize = 4_096;

/// How many live actors one listing asks at once: enough that a slow one holds up few others.
pub(crate) const LOOKS: usize = 32;

/// What the handlers work with. Each layer of the router has it, and each request copies all layers.
#[derive(Clone)]
pub struct Api(Arc<ApiDeps>);

/// What it is made of.
pub struct ApiDeps {
    pub conversations: Conversations,
    pub catalogue: Arc<AgentCatalog>,
    pub store: Arc<dyn Store>,
    pub hub: Hub,
    pub clock: Arc<dyn Clock>,
    pub under_way: AtomicUsize,
    /// The streams that draw frames now.
    pub drawing: Arc<Semaphore>,
    /// Places for blobs on their way in or out.
    pub blobs: Arc<Semaphore>,
}

impl Api {
    pub fn new(parts: ApiDeps) -> Self {
        Self(Arc::new(parts))
    }
}

impl std::ops::Deref for Api {
    type Target = ApiDeps;

    fn deref(&self) -> &ApiDeps {
        &self.0
    }
}

/// All public paths, for pages of these origins besides its own.
pub fn router(api: Api, allowed: &[Origin]) -> Router {
    let (router, _) = routes().split_for_parts();
    let router = router
        .merge(console::router())
        .fallback(async || Problem::not_found("such path"))
        .method_not_allowed_fallback(async || Problem::method())
        // One layer for all that a request meets first: each would box what it passes on.
        .layer(middleware::from_fn_with_state(api.clone(), enter))
        .with_state(api);
    match cors::layer(allowed) {
        Some(layer) => router.layer(layer),
        None => router,
    }
}

/// The paths, and what their handlers say of themselves.
fn routes() -> OpenApiRouter<Api> {
    OpenApiRouter::with_openapi(openapi::blank())
        .routes(routes!(agents::list))
        .routes(routes!(agents::put, agents::get, agents::delete))
        .routes(routes!(conversations::list, conversations::create))
        .routes(routes!(conversations::get, conversations::delete))
        .routes(routes!(messages::list, messages::send))
        .routes(routes!(calls::resolve))
        .routes(routes!(calls::cancel))
        .routes(routes!(calls::dispatch))
        .routes(routes!(conversations::fork))
        .routes(routes!(conversations::journal))
        .routes(routes!(events::events))
        .routes(routes!(decisions::of_conversation))
        .routes(routes!(decisions::revoke))
        .routes(routes!(decisions::of_agent))
        .routes(routes!(decisions::revoke_of_agent))
        .routes(routes!(calls::pending))
        .routes(routes!(blobs::put))
        .routes(routes!(blobs::get))
        .routes(routes!(openapi::openapi))
}

/// What every request meets before its handler.
async fn enter(State(api): State<Api>, request: Request, next: Next) -> Response {
    let admitted = |request| admit(&api, request, next);
    measured(&*api.clock, request, |request| guard::guard(request, admitted)).await
}

/// Lets a request in, unless there are too many or the node stops.
async fn admit(api: &Api, request: Request, next: Next) -> Response {
    if api.conversations.cluster().lease().is_draining() && !request.method().is_safe() {
        return Problem::new(Kind::Unavailable, "the node is draining").into_response();
    }
    let under_way = api.under_way.fetch_add(1, Ordering::Relaxed);
    let _leaves = InFlightGuard(&api.under_way);
    match under_way < AT_ONCE {
        true => next.run(request).await,
        false => Problem::new(Kind::Overloaded, "too many requests are under way").into_response(),
    }
}

/// Counts a request out, also when its client went away.
struct InFlightGuard<'a>(&'a AtomicUsize);

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
