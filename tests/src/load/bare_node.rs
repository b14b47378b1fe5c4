//! A node that decides nothing, with the same HTTP server, actors and store: what of a turn is not
//! decisions.
//!
//! The events and frames of a turn are recorded from a real node. The actor of a conversation answers its
//! requests, folds the events, commits them as a node does, and writes the frames. Model calls and tools
//! are tasks that do nothing.

mod conversation;
mod recorded_turn;

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use abide_actors::identity::{Incarnation, NodeName};
use abide_actors::journal::{Holder, StoreError};
use abide_conversation::Scoped;
use axum::body::{Body, Bytes};
use axum::extract::{Path as UrlPath, State as Shared};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::{get, post, put};
use axum::{Json, Router};
use futures::StreamExt;
use ractor::{Actor, ActorRef, RactorErr};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::comparison::{self, Order};
use super::deployment::Deployment;
use super::report::Report;
use super::{Load, LoadError, floor, load_error, redis};
use conversation::{Arguments, Conversation, Message, Reply, Services, Supervisor};
use recorded_turn::recorded_commits;
pub(super) use recorded_turn::{commits, summary};

/// Compares the turns of a real node with those of a bare one, over Redis or over an embedded store of
/// each.
pub(super) async fn run(load: &Load, dir: &Path) -> Result<Report, LoadError> {
    let order = Order::Alternately;
    let bare = Deployment::start_bare(load, &dir.join("bare")).await?;
    let node = Deployment::start(load, &dir.join("node")).await?;
    let sides = [("decides nothing", &bare), ("a node", &node)];
    let sides = comparison::turns(load, order, sides).await?;
    bare.stop().await?;
    node.stop().await?;
    comparison::report(load, order, &sides)
}

/// The state of the handlers.
#[derive(Clone)]
struct Bare {
    services: Arc<Services>,
    supervisor: ActorRef<()>,
    live: Arc<Mutex<HashMap<String, Live>>>,
}

/// A conversation whose call has not been resolved.
struct Live {
    actor: ActorRef<Message>,
    /// Until a client opens the stream.
    frames: Option<UnboundedReceiver<Bytes>>,
}

/// Why a request failed.
struct RequestError(String);

impl From<StoreError> for RequestError {
    fn from(refusal: StoreError) -> Self {
        Self(refusal.to_string())
    }
}

impl IntoResponse for RequestError {
    fn into_response(self) -> axum::response::Response {
        (StatusCode::SERVICE_UNAVAILABLE, self.0).into_response()
    }
}

/// Serves over a Redis or an embedded store until SIGTERM, and prints a ready line as a node does.
pub(super) async fn serve(load: &Load, url: &str) -> Result<(), LoadError> {
    let store = match url.strip_prefix("embedded:") {
        Some(dir) => floor::open_embedded(load, Path::new(dir))?,
        None => redis::open(url, load.durability).await?,
    };
    let me = Holder { node: NodeName::new("bare"), incarnation: Incarnation::new("1") };
    let services = Services { store, me, turn: recorded_commits()?, committed: AtomicU64::new(0) };
    let supervisor = Actor::spawn(None, Supervisor, ()).await;
    let (supervisor, _) = supervisor.map_err(|error| load_error("the supervisor", error))?;
    let bare = Bare { services: services.into(), supervisor, live: Arc::default() };
    let failed = |error| load_error("the bare node", error);
    let router = Router::new()
        .route("/v1/agents/{name}", put(async || Json(json!({}))))
        .route("/v1/conversations/{id}/messages", post(send_message))
        .route("/v1/conversations/{id}/events", get(listen))
        .route("/v1/conversations/{id}/calls/{call}/resolution", post(resolve))
        .route("/v1/conversations/{id}/journal", get(journal))
        .route("/metrics", get(metrics))
        .with_state(bare);
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
    let at = listener.local_addr().map_err(failed)?;
    let mut stop = signal(SignalKind::terminate()).map_err(failed)?;
    writeln!(std::io::stdout(), "ready public={at} admin={at}").map_err(failed)?;
    tokio::select! {
        served = async { axum::serve(listener, router).await } => served.map_err(failed),
        _ = stop.recv() => Ok(()),
    }
}

impl Bare {
    /// Starts the actor of a conversation.
    async fn start(&self, id: &str) -> Result<ActorRef<Message>, RequestError> {
        let scoped = Scoped::parse(id).map_err(|error| RequestError(error.to_string()))?;
        let (frames, unread) = unbounded_channel();
        let arguments = Arguments { id: scoped, services: self.services.clone(), frames };
        let supervisor = self.supervisor.get_cell();
        let spawned = Actor::spawn_linked(None, Conversation, arguments, supervisor).await;
        let (actor, _) = spawned.map_err(|error| RequestError(error.to_string()))?;
        let live = Live { actor: actor.clone(), frames: Some(unread) };
        self.live().insert(id.to_owned(), live);
        Ok(actor)
    }

    fn live(&self) -> std::sync::MutexGuard<'_, HashMap<String, Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks an actor, which replies once it has committed.
async fn ask(actor: &ActorRef<Message>, message: fn(Reply) -> Message) -> Result<(), RequestError> {
    let stored = ractor::call!(actor, message);
    let stored = stored.map_err(|error: RactorErr<Message>| RequestError(error.to_string()))?;
    Ok(stored?)
}

async fn send_message(
    Shared(bare): Shared<Bare>,
    UrlPath(id): UrlPath<String>,
    Json(_): Json<Value>,
) -> Result<(StatusCode, Json<Value>), RequestError> {
    let actor = bare.start(&id).await?;
    ask(&actor, Message::Send).await?;
    let answer = json!({"conversation_id": id, "turn_id": "turn_1", "seq": 2});
    Ok((StatusCode::ACCEPTED, Json(answer)))
}

async fn listen(
    Shared(bare): Shared<Bare>,
    UrlPath(id): UrlPath<String>,
) -> Result<impl IntoResponse, RequestError> {
    let unread = bare.live().get_mut(&id).and_then(|live| live.frames.take());
    let unread = unread.ok_or_else(|| RequestError("no such turn".to_owned()))?;
    let frames = UnboundedReceiverStream::new(unread).map(Ok::<_, std::convert::Infallible>);
    Ok(([("content-type", "text/event-stream")], Body::from_stream(frames)))
}

async fn resolve(
    Shared(bare): Shared<Bare>,
    UrlPath((id, _)): UrlPath<(String, String)>,
    Json(_): Json<Value>,
) -> Result<Json<Value>, RequestError> {
    let live = bare.live().remove(&id).ok_or_else(|| RequestError("no such turn".to_owned()))?;
    ask(&live.actor, Message::Resolve).await?;
    Ok(Json(json!({"status": "accepted", "seq": 7})))
}

async fn journal() -> Json<Value> {
    Json(recorded_turn::journal())
}

async fn metrics(Shared(bare): Shared<Bare>) -> String {
    let committed = bare.services.committed.load(Ordering::Relaxed);
    format!("abide_store_commits_total {committed}\n")
}
