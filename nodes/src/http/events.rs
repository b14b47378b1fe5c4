//! The event stream of a conversation: a snapshot, then what was missed, then what happens.

use std::convert::Infallible;
use std::time::Duration;

use abide_actors::live::Signal;
use abide_actors::snapshot::Snapshot;
use abide_conversation::ConversationId;
use abide_conversation::event::{Event, EventData};
use abide_conversation::ids::{MessageId, TurnId};
use abide_conversation::state::ConversationStatus;
use abide_registry::live::{StreamItem, Subscription};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, header};
use axum::response::IntoResponse;
use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use tokio::time::timeout;
use utoipa::IntoParams;

use super::Api;
use super::extract;
use super::extract::{Path, Query};
use super::frames::{self, Frame, Payload};
use super::openapi::{ConversationPath, LastEventId, StreamFrame};
use super::problem::Problem;

/// How many events are read from the store at once: a reader that does not read keeps them in memory.
const PAGE: usize = 20;
/// How long the other nodes may take to learn that somebody listens.
const ANNOUNCED: Duration = Duration::from_millis(500);
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// What is sent in one piece, unless a frame is larger: what a burst says is joined up to this.
const PIECE: usize = 16 << 10;
/// How many streams draw frames at once. A burst that wakes thousands of them leaves room for
/// whoever commits.
pub(crate) const AT_ONCE: usize = 2;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EventsQuery {
    /// A seq: every journalled frame after it is replayed.
    after: Option<u64>,
}

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
) -> Result<impl IntoResponse, Problem> {
    let id = extract::conversation(&id)?;
    let resume = match headers.get("Last-Event-ID") {
        Some(given) => {
            let seq = given.to_str().ok().and_then(|given| given.trim().parse().ok());
            Some(seq.ok_or_else(|| Problem::field("Last-Event-ID", "is not a seq"))?)
        }
        None => query.after,
    };
    // First listen, then look, so that nothing falls in between.
    let subscription = api.hub.subscribe(&id);
    api.hub.wait_until_announced(ANNOUNCED).await;
    let snapshot = api.conversations.snapshot(&id).await?;
    let snapshot = snapshot.ok_or_else(|| Problem::not_found("such conversation"))?;
    subscription.mark_known(snapshot.last_seq);
    let feed = Feed {
        sent: resume.unwrap_or(snapshot.last_seq).min(snapshot.last_seq),
        since: snapshot.last_seq,
        behind: false,
        recovers: false,
        over: false,
        at: place(&snapshot),
        delta: snapshot.streaming_message.as_ref().map(|said| (said.id.clone(), said.delta_seq)),
        out: BytesMut::new(),
        subscription,
        api,
        id,
    };
    let frames = futures::stream::unfold(feed.begun(snapshot), |mut feed| async {
        let piece = feed.piece().await?;
        Some((Ok::<_, Infallible>(piece), feed))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
        // A proxy that gathers an answer before it passes it on would pass on nothing.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((headers, Body::from_stream(frames)))
}

/// The turn that runs, and how many of its steps are done.
type Place = Option<(TurnId, u32)>;

fn place(snapshot: &Snapshot) -> Place {
    let turn = snapshot.turn.as_ref()?;
    let done = match snapshot.state {
        ConversationStatus::Preparing | ConversationStatus::Streaming => {
            turn.step.saturating_sub(1)
        }
        ConversationStatus::Idle
        | ConversationStatus::ExecutingTools
        | ConversationStatus::AwaitingInput => turn.step,
    };
    Some((turn.id.clone(), done))
}

/// Feeds one reader, at its own pace.
struct Feed {
    api: Api,
    id: ConversationId,
    subscription: Subscription,
    /// The last event whose frames were sent.
    sent: u64,
    /// The snapshot's; what was said of the state before it is out of date.
    since: u64,
    /// Whether the journal has more than was sent, to be read before anything live.
    behind: bool,
    /// Whether something was lost, and the state must be told anew.
    recovers: bool,
    /// Whether the conversation is gone.
    over: bool,
    /// Where the reader knows the conversation to be.
    at: Place,
    /// The last delta that the snapshot held.
    delta: Option<(MessageId, u64)>,
    /// Frames that were drawn and not yet sent.
    out: BytesMut,
}

impl Feed {
    fn begun(mut self, snapshot: Snapshot) -> Self {
        self.behind = self.sent < snapshot.last_seq;
        let first = Frame::live(Payload::Snapshot(Box::new(snapshot)));
        self.out.extend_from_slice(&first.written());
        self
    }

    /// What is sent next; `None` when the stream is over: its conversation went, or the store did.
    async fn piece(&mut self) -> Option<Bytes> {
        while self.out.is_empty() {
            if self.over {
                return None;
            }
            if self.behind {
                self.catch_up().await?;
                continue;
            }
            if self.recovers {
                self.recover().await?;
                continue;
            }
            let Ok(heard) = timeout(KEEP_ALIVE, self.subscription.next()).await else {
                return Some(Bytes::from_static(b":\n\n"));
            };
            let drawing = self.api.drawing.clone();
            let _turn = drawing.acquire().await.ok()?;
            let mut next = heard?;
            while self.hear(next) && self.out.len() < PIECE {
                match self.subscription.try_next() {
                    Some(heard) => next = heard,
                    None => break,
                }
            }
        }
        Some(std::mem::take(&mut self.out).freeze())
    }

    /// Draws the frames of what was heard. False: what comes next is not to be heard, but read from
    /// the journal, or nothing at all.
    fn hear(&mut self, heard: StreamItem) -> bool {
        let said = match &heard {
            StreamItem::Signal(said) => said,
            StreamItem::Missed => return self.lost(),
        };
        match &said.signal {
            Signal::Deleted => {
                self.over = true;
                false
            }
            Signal::Revived => self.lost(),
            Signal::Committed(events) => {
                if events.first().is_some_and(|first| first.seq > self.sent + 1) {
                    self.behind = true;
                    return false;
                }
                let written = said.encoded(frames::write);
                for (event, frames) in events.iter().zip(written) {
                    self.mirror(event, frames);
                }
                true
            }
            signal if self.is_stale(signal) => true,
            _ => {
                let written = said.encoded(frames::write);
                written.iter().for_each(|frame| self.out.extend_from_slice(frame));
                true
            }
        }
    }

    fn lost(&mut self) -> bool {
        (self.behind, self.recovers) = (true, true);
        false
    }

    /// Draws more of what the journal has and the reader does not.
    async fn catch_up(&mut self) -> Option<()> {
        let events = self.api.store.events(&self.id, self.sent, PAGE).await.ok()?;
        let drawing = self.api.drawing.clone();
        let _turn = drawing.acquire().await.ok()?;
        for event in &events {
            self.mirror(event, &frames::written(event));
        }
        self.behind = events.len() == PAGE;
        Some(())
    }

    /// After a loss, when the journal's frames are drawn: the state as it is now.
    async fn recover(&mut self) -> Option<()> {
        let snapshot = self.api.conversations.snapshot(&self.id).await.ok().flatten()?;
        let state = Frame::live(Payload::StateChanged { state: snapshot.state });
        self.out.extend_from_slice(&state.written());
        self.recovers = false;
        Some(())
    }

    fn mirror(&mut self, event: &Event, frames: &[u8]) {
        if event.seq <= self.sent {
            return;
        }
        self.sent = event.seq;
        match (&event.data, &event.turn_id) {
            (EventData::TurnStarted(_), Some(turn)) => self.at = Some((turn.clone(), 0)),
            (EventData::AssistantMsg(spoken), Some(turn)) => {
                self.at = Some((turn.clone(), spoken.step));
            }
            (EventData::TurnEnded(_), _) => self.at = None,
            _ => {}
        }
        self.out.extend_from_slice(frames);
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
}
