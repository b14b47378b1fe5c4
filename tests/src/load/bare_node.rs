//! A node that answers, journals and streams without deciding anything: an upper bound for turns
//! per second with the same HTTP server and store.
//!
//! Each request of a turn is parsed and answered, each commit of a turn is written by the same
//! script with the same events, and each frame is sent, all as recorded from a real node.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use abide_actors::identity::{Incarnation, NodeName};
use abide_actors::journal::{
    Claim, ClosedSuspension, Commit, ConversationSummary, Holder, ListEntry, Relisting, StoreError,
};
use abide_actors::usage_counts::UsageCounts;
use abide_conversation::{ConversationId, Event, Scoped, State, replay, wanted};
use abide_registry::store::Store;
use axum::body::{Body, Bytes};
use axum::extract::{Path as UrlPath, State as Shared};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::routing::{get, post, put};
use axum::{Json, Router};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::comparison::{self, Order};
use super::idle_conversations::PASSIVATE_AFTER;
use super::node::Node;
use super::node_group::NodeGroup;
use super::report::Report;
use super::{Load, LoadError, floor, load_error, redis};

/// The journal of a turn under load.
const JOURNAL: &str = include_str!("bare_node/journal.jsonl");
/// How many of the journal's events each commit has.
const EVENTS_PER_COMMIT: [usize; 5] = [3, 3, 2, 1, 2];
/// The frames that follow each commit except the first.
const FRAMES: [&str; 4] = [
    include_str!("bare_node/suspended.frames"),
    include_str!("bare_node/resolved.frames"),
    include_str!("bare_node/returned.frames"),
    include_str!("bare_node/ended.frames"),
];

/// Compares the turns of a real node with those of a bare one, over Redis or over an embedded store of
/// each.
pub(super) async fn run(load: &Load, dir: &Path) -> Result<Report, LoadError> {
    const NAMES: [&str; 2] = ["answers and journals only", "a node"];
    let order = Order::Alternately;
    let (bare, node) = (dir.join("bare"), dir.join("node"));
    let sides = if load.nodes.is_some() {
        let bare = NodeGroup::bare(load, &bare).await?;
        let node = NodeGroup::start(load, &node, PASSIVATE_AFTER, None).await?;
        let groups = [(NAMES[0], &bare), (NAMES[1], &node)];
        let sides = comparison::turns(load, order, groups).await?;
        bare.stop().await?;
        node.stop().await?;
        sides
    } else {
        let bare = Node::start_bare(load, &format!("embedded:{}", bare.display())).await?;
        let node = Node::start(load, &node, PASSIVATE_AFTER).await?;
        let nodes = [(NAMES[0], &bare), (NAMES[1], &node)];
        let sides = comparison::turns(load, order, nodes).await?;
        bare.stop().await?;
        node.stop().await?;
        sides
    };
    comparison::report(load, order, &sides)
}

/// The state of the handlers.
#[derive(Clone)]
struct Bare {
    store: Arc<dyn Store>,
    me: Holder,
    commits: Arc<[Commit]>,
    committed: Arc<AtomicU64>,
    /// The running turns.
    turns: Arc<Mutex<HashMap<String, Turn>>>,
}

struct Turn {
    claim: Claim,
    frames: UnboundedSender<Bytes>,
    /// The receiver of the frames, until a client opens the stream.
    unread: Option<UnboundedReceiver<Bytes>>,
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
    let bare = Bare {
        store,
        me: Holder { node: NodeName::new("bare"), incarnation: Incarnation::new("1") },
        commits: commits()?.into(),
        committed: Arc::default(),
        turns: Arc::default(),
    };
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

/// The commits of a turn, with their summaries and open calls.
pub(super) fn commits() -> Result<Vec<Commit>, LoadError> {
    let events = JOURNAL.lines().map(|line| abide_conversation::from_json(line.as_bytes()));
    let events: Result<Vec<Event>, _> = events.collect();
    let events = events.map_err(|error| load_error("the bare journal", error))?;
    let mut remaining = &*events;
    let mut state = State::default();
    let mut commits = Vec::new();
    for count in EVENTS_PER_COMMIT {
        let (current, rest) = remaining.split_at_checked(count).unwrap_or((remaining, &[]));
        let (before, active_at) = (state.pending_calls(), state.active_at);
        state = replay(state, current);
        let after = state.pending_calls();
        let closed =
            before.iter().filter(|open| !after.iter().any(|it| it.call_id == open.call_id));
        let summary = summary(&state)?;
        commits.push(Commit {
            closed: closed
                .map(|open| ClosedSuspension {
                    call_id: open.call_id.clone(),
                    suspension: open.suspension,
                    expires_at: open.expires_at,
                })
                .collect(),
            opened: after.into_iter().filter(|_| before.is_empty()).collect(),
            usage: UsageCounts::of(current),
            relisting: if state.active_at == active_at {
                Relisting::Unchanged
            } else {
                Relisting::Touched
            },
            ..Commit::new(current.into(), summary)
        });
        remaining = rest;
    }
    Ok(commits)
}

/// What the store knows of a conversation in this state.
pub(super) fn summary(state: &State) -> Result<ConversationSummary, LoadError> {
    Ok(ConversationSummary {
        agent: state.agent.clone().ok_or_else(|| LoadError("no agent".to_owned()))?,
        status: state.status(),
        last_seq: state.seq,
        created_at: state.created_at.unwrap_or_default(),
        metadata: state.metadata.clone(),
        participants: Default::default(),
        alarm: state.alarm(),
        active: !wanted(state).is_empty(),
        listing: ListEntry::of(state),
    })
}

impl Bare {
    async fn commit(
        &self,
        id: &Scoped<ConversationId>,
        claim: &Claim,
        n: usize,
    ) -> Result<(), RequestError> {
        self.store.append(id, claim, self.commits[n].clone()).await?;
        self.committed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Makes these commits and sends the frames of each. After a failed commit no more frames come.
    async fn commit_and_stream(
        self,
        (id, claim): (Scoped<ConversationId>, Claim),
        frames: UnboundedSender<Bytes>,
        commits: std::ops::Range<usize>,
    ) {
        for n in commits {
            if self.commit(&id, &claim, n).await.is_err() {
                return;
            }
            // A client that has disconnected gets no frames.
            let _ = frames.send(Bytes::from_static(FRAMES[n - 1].as_bytes()));
        }
    }

    fn turns(&self) -> std::sync::MutexGuard<'_, HashMap<String, Turn>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn scoped(id: &str) -> Result<Scoped<ConversationId>, RequestError> {
    Scoped::parse(id).map_err(|error| RequestError(error.to_string()))
}

async fn send_message(
    Shared(bare): Shared<Bare>,
    UrlPath(id): UrlPath<String>,
    Json(_): Json<Value>,
) -> Result<(StatusCode, Json<Value>), RequestError> {
    let conversation = scoped(&id)?;
    let first = bare.commits[0].clone();
    let claim = bare.store.claim_and_append(&conversation, &bare.me, first).await?;
    bare.committed.fetch_add(1, Ordering::Relaxed);
    let (frames, unread) = unbounded_channel();
    let turn = Turn { claim: claim.clone(), frames: frames.clone(), unread: Some(unread) };
    let answer = json!({"conversation_id": id, "turn_id": "turn_1", "seq": 2});
    bare.turns().insert(id, turn);
    tokio::spawn(bare.commit_and_stream((conversation, claim), frames, 1..2));
    Ok((StatusCode::ACCEPTED, Json(answer)))
}

async fn listen(
    Shared(bare): Shared<Bare>,
    UrlPath(id): UrlPath<String>,
) -> Result<impl IntoResponse, RequestError> {
    let unread = bare.turns().get_mut(&id).and_then(|turn| turn.unread.take());
    let unread = unread.ok_or_else(|| RequestError("no such turn".to_owned()))?;
    let frames = UnboundedReceiverStream::new(unread).map(Ok::<_, std::convert::Infallible>);
    Ok(([("content-type", "text/event-stream")], Body::from_stream(frames)))
}

async fn resolve(
    Shared(bare): Shared<Bare>,
    UrlPath((id, _)): UrlPath<(String, String)>,
    Json(_): Json<Value>,
) -> Result<Json<Value>, RequestError> {
    let turn = bare.turns().remove(&id).ok_or_else(|| RequestError("no such turn".to_owned()))?;
    let id = scoped(&id)?;
    bare.commit(&id, &turn.claim, 2).await?;
    let _ = turn.frames.send(Bytes::from_static(FRAMES[1].as_bytes()));
    tokio::spawn(bare.commit_and_stream((id, turn.claim), turn.frames, 3..5));
    Ok(Json(json!({"status": "accepted", "seq": 7})))
}

async fn journal() -> Json<Value> {
    let events = JOURNAL.lines().map(|line| serde_json::from_str(line).unwrap_or_default());
    Json(json!({"events": events.collect::<Vec<Value>>()}))
}

async fn metrics(Shared(bare): Shared<Bare>) -> String {
    format!("abide_store_commits_total {}\n", bare.committed.load(Ordering::Relaxed))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_commits_are_a_whole_turn_whose_call_is_opened_and_closed() {
        let commits = commits().unwrap();
        let events: usize = commits.iter().map(|commit| commit.events.len()).sum();
        assert_eq!((events, JOURNAL.lines().count()), (11, 11));
        let count = |of: fn(&Commit) -> usize| commits.iter().map(of).collect::<Vec<_>>();
        assert_eq!(count(|commit| commit.opened.len()), [0, 1, 0, 0, 0]);
        assert_eq!(count(|commit| commit.closed.len()), [0, 0, 1, 0, 0]);
        assert_eq!(count(|commit| commit.summary.active.into()), [1, 0, 1, 1, 0]);
        assert!(FRAMES.iter().all(|frames| frames.ends_with("\n\n")));
    }
}
