//! The event stream of a conversation: a snapshot, then what was missed, then what happens.

use std::convert::Infallible;
use std::time::Duration;

use abide_actors::live::Signal;
use abide_actors::snapshot::Snapshot;
use abide_conversation::ConversationId;
use abide_conversation::event::{Data, Event};
use abide_conversation::ids::{MessageId, TurnId};
use abide_conversation::state::Activeness;
use abide_registry::live::{Heard, Subscription};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{self, KeepAlive, Sse};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use utoipa::IntoParams;

use super::Api;
use super::frames::{self, Frame, Payload};
use super::openapi::{ConversationPath, LastEventId, StreamFrame};
use super::parse::{self, Path, Query};
use super::problem::Problem;

/// How many frames may wait for a slow reader, each of up to a megabyte; then it is fed from the
/// store at its own pace. Bursts wait in what all readers of a conversation share.
const WAITING: usize = 8;
/// How many events are read from the store at once: a reader that does not read keeps them in memory.
const PAGE: usize = 20;
/// How long the other nodes may take to learn that somebody listens.
const ANNOUNCED: Duration = Duration::from_millis(500);
const KEEP_ALIVE: Duration = Duration::from_secs(15);

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EventsQuery {
    /// A seq: every journalled frame after it is replayed.
    after: Option<u64>,
}

type Frames = ReceiverStream<Result<sse::Event, Infallible>>;

/// Follows a conversation, live.
///
/// The first frame is a snapshot. Then, with `Last-Event-ID` or `after`, every journalled frame
/// after that seq; then what happens. A frame with an `id` is the last that mirrors the event of
/// that seq; one without may be lost, and what it said is in the snapshot or in a later frame with
/// an id. A comment line comes every 15 s. The stream ends when the conversation is deleted.
#[utoipa::path(get, path = "/v1/conversations/{id}/events", operation_id = "stream_events",
    tag = "events", params(ConversationPath, EventsQuery, LastEventId),
    responses((status = 200, content_type = "text/event-stream",
        description = "Server-sent events; the schema is that of one frame, its lines as members.",
        body = StreamFrame,
        example = json!("event: turn_started\ndata: {\"turn_id\":\"turn_1\"}\nid: 3\n\n"))))]
pub(super) async fn events(
    State(api): State<Api>,
    Path(id): Path<String>,
    Query(query): Query<EventsQuery>,
    headers: HeaderMap,
) -> Result<Sse<sse::KeepAliveStream<Frames>>, Problem> {
    let id = parse::conversation(&id)?;
    let resume = match headers.get("Last-Event-ID") {
        Some(given) => {
            let seq = given.to_str().ok().and_then(|given| given.trim().parse().ok());
            Some(seq.ok_or_else(|| Problem::field("Last-Event-ID", "is not a seq"))?)
        }
        None => query.after,
    };
    // First listen, then look, so that nothing falls in between.
    let subscription = api.hub.subscribe(&id);
    api.hub.announced(ANNOUNCED).await;
    let snapshot = api.conversations.snapshot(&id).await?;
    let snapshot = snapshot.ok_or_else(|| Problem::not_found("such conversation"))?;
    subscription.knows(snapshot.last_seq);
    let (frames, stream) = mpsc::channel(WAITING);
    let feed = Feed {
        api,
        id,
        frames: frames.clone(),
        sent: resume.unwrap_or(snapshot.last_seq).min(snapshot.last_seq),
        since: snapshot.last_seq,
        at: place(&snapshot),
        delta: snapshot.streaming_message.as_ref().map(|said| (said.id.clone(), said.delta_seq)),
    };
    tokio::spawn(async move {
        tokio::select! {
            _ = feed.run(subscription, snapshot) => {}
            () = frames.closed() => {}
        }
    });
    Ok(Sse::new(ReceiverStream::new(stream)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

/// The turn that runs, and how many of its steps are done.
type Place = Option<(TurnId, u32)>;

fn place(snapshot: &Snapshot) -> Place {
    let turn = snapshot.turn.as_ref()?;
    let done = match snapshot.state {
        Activeness::Preparing | Activeness::Streaming => turn.step.saturating_sub(1),
        Activeness::Idle | Activeness::ExecutingTools | Activeness::AwaitingInput => turn.step,
    };
    Some((turn.id.clone(), done))
}

/// Feeds one reader.
struct Feed {
    api: Api,
    id: ConversationId,
    frames: mpsc::Sender<Result<sse::Event, Infallible>>,
    /// The last event whose frames were sent.
    sent: u64,
    /// The snapshot's; what was said of the state before it is out of date.
    since: u64,
    /// Where the reader knows the conversation to be.
    at: Place,
    /// The last delta that the snapshot held.
    delta: Option<(MessageId, u64)>,
}

/// The stream is over: its reader went, its conversation went, or the store did.
struct Over;

impl Feed {
    async fn run(mut self, mut subscription: Subscription, snapshot: Snapshot) -> Result<(), Over> {
        let last_seq = snapshot.last_seq;
        self.send(Frame::live(Payload::Snapshot(Box::new(snapshot)))).await?;
        if self.sent < last_seq {
            self.catch_up().await?;
        }
        while let Some(heard) = subscription.next().await {
            match heard {
                Heard::Signal(Signal::Committed(events)) => self.committed(&events).await?,
                Heard::Signal(Signal::Deleted) => return Err(Over),
                Heard::Signal(Signal::Revived) => self.recover().await?,
                Heard::Signal(signal) if self.is_stale(&signal) => {}
                Heard::Signal(signal) => {
                    if let Some(frame) = frames::of_signal(&signal) {
                        self.send(frame).await?;
                    }
                }
                Heard::Missed => self.recover().await?,
            }
        }
        Ok(())
    }

    async fn committed(&mut self, events: &[Event]) -> Result<(), Over> {
        if events.first().is_some_and(|first| first.seq > self.sent + 1) {
            return self.catch_up().await;
        }
        for event in events {
            self.mirror(event).await?;
        }
        Ok(())
    }

    /// Sends what the journal has and the reader does not.
    async fn catch_up(&mut self) -> Result<(), Over> {
        loop {
            let events = self.api.store.events(&self.id, self.sent, PAGE).await;
            let events = events.map_err(|_| Over)?;
            for event in &events {
                self.mirror(event).await?;
            }
            if events.len() < PAGE {
                return Ok(());
            }
        }
    }

    /// After a loss: the journal's frames, and the state as it is now.
    async fn recover(&mut self) -> Result<(), Over> {
        self.catch_up().await?;
        let snapshot = self.api.conversations.snapshot(&self.id).await;
        let snapshot = snapshot.ok().flatten().ok_or(Over)?;
        self.send(Frame::live(Payload::StateChanged { state: snapshot.state })).await
    }

    async fn mirror(&mut self, event: &Event) -> Result<(), Over> {
        if event.seq <= self.sent {
            return Ok(());
        }
        self.sent = event.seq;
        match (&event.data, &event.turn_id) {
            (Data::TurnStarted(_), Some(turn)) => self.at = Some((turn.clone(), 0)),
            (Data::AssistantMsg(spoken), Some(turn)) => {
                self.at = Some((turn.clone(), spoken.step));
            }
            (Data::TurnEnded(_), _) => self.at = None,
            _ => {}
        }
        for frame in frames::of_event(event) {
            self.send(frame).await?;
        }
        Ok(())
    }

    /// Whether the snapshot or the journal has said more than this since it was signalled.
    fn is_stale(&self, signal: &Signal) -> bool {
        let delta = match signal {
            Signal::State { seq, .. } => return *seq < self.since,
            Signal::Text(delta) | Signal::Thinking(delta) => delta,
            Signal::Committed(_) | Signal::Progress { .. } | Signal::Revived | Signal::Deleted => {
                return false;
            }
        };
        let current = |(turn, done): &(TurnId, u32)| *turn == delta.turn && delta.step == done + 1;
        let known = |(message, seq): &(MessageId, u64)| {
            *message == delta.message && delta.delta_seq <= *seq
        };
        !self.at.as_ref().is_some_and(current) || self.delta.as_ref().is_some_and(known)
    }

    async fn send(&self, frame: Frame) -> Result<(), Over> {
        self.frames.send(Ok(frame.into())).await.map_err(|_| Over)
    }
}
