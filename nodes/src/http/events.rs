//! The event stream of a conversation: a snapshot, then the missed events, then live ones. The contract
//! is `reference/events.md`.

use std::time::Duration;

use abide_actors::live::Signal;
use abide_actors::snapshot::Snapshot;
use abide_conversation::event::{Event, EventData};
use abide_conversation::identity::Participants;
use abide_conversation::ids::{MessageId, TurnId};
use abide_conversation::state::ConversationStatus;
use abide_conversation::{ConversationId, Scoped, Seq, Step};
use abide_registry::live::{StreamItem, Subscription};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use bytes::{Bytes, BytesMut};
use serde::Deserialize;
use tokio::time::sleep;
use utoipa::IntoParams;

use super::Api;
use super::child_frames::KnownChildren;
use super::event_stream::{self, EventSource};
use super::extract;
use super::extract::{Path, Query};
use super::frames::{self, Frame, Payload};
use super::message_cursor::{MessageCursor, Place};
use super::openapi::{ConversationPath, LastEventId, StreamFrame};
use super::problem::Problem;
use crate::access::permission::Read;
use crate::access::{Allowed, CredentialWatch, StreamPermit};

/// How many events are read from the store at a time: they stay in memory for a client that does not
/// read.
const EVENTS_PER_READ: usize = 20;
/// How long to wait until the other nodes know that this node has a listener.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_millis(500);
/// After this long without a frame, a comment line keeps proxies from closing the connection.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// The frames of a burst are joined into chunks of up to this size, or of one larger frame.
const CHUNK_BYTES: usize = 16 << 10;
/// How many streams encode frames at a time, so that a burst that wakes thousands of them leaves CPU
/// time for commits.
pub(crate) const MAX_ENCODING_STREAMS: usize = 2;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EventsQuery {
    /// A seq: the journalled frames after it are replayed.
    #[param(value_type = Option<u64>)]
    after: Option<Seq>,
    /// `chars`: deltas have an id, too, at which a stream resumes inside their message.
    #[param(value_type = Option<String>, pattern = "^chars$")]
    cursor: Option<CursorUnit>,
}

/// What the id of a frame counts inside a message.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CursorUnit {
    Chars,
}

/// Follows a conversation, live.
///
/// The first frame is a snapshot. With `Last-Event-ID` or `after`, every journalled frame after that
/// seq follows; then come live frames. A frame with an `id` is the last one that mirrors the event of
/// that seq. A frame without an `id` may be lost; its information is then in the snapshot or in a
/// later frame with an id. A comment line is sent every 15 s. The stream ends when the conversation is
/// deleted.
///
/// With `cursor=chars`, the id of a delta begins with `SEQ.CHARS`: the last event before it, and the
/// characters of its message up to its end. Sent back as `Last-Event-ID`, it resumes there.
#[utoipa::path(get, path = "/v1/conversations/{id}/events", operation_id = "stream_events",
    tag = "events", params(ConversationPath, EventsQuery, LastEventId),
    responses((status = 200, content_type = "text/event-stream",
        description = "Server-sent events, such as `event: turn_started`, `data: {\"turn_id\":\"turn_1\"}`, \
            `id: 3`, and an empty line; the schema describes one frame, with its lines as members.",
        body = StreamFrame)))]
pub(super) async fn events(
    allowed: Allowed<Read>,
    State(api): State<Api>,
    Path(id): Path<String>,
    Query(query): Query<EventsQuery>,
    headers: HeaderMap,
) -> Result<impl IntoResponse, Problem> {
    let id = allowed.conversation(&id)?;
    let place = place(&query, &headers)?;
    let _permit = api.access.open_stream(&id.tenant())?;
    // Subscribe before reading the snapshot, so that no event falls in between.
    let subscription = api.hub.subscribe(&id);
    subscription.wait_until_announced(ANNOUNCE_TIMEOUT).await;
    let snapshot = api.conversations.snapshot(&allowed, &id).await?;
    let Snapshot { owner, members, created_at, .. } = &snapshot;
    let participants = Participants { owner: owner.clone(), members: members.clone() };
    let credential = api.access.watch(&allowed, participants, *created_at);
    subscription.mark_known(snapshot.last_seq);
    subscription.mark_children(!snapshot.descendants.calls.is_empty());
    let feed = Feed {
        sent: place.as_ref().map_or(snapshot.last_seq, |place| place.seq.min(snapshot.last_seq)),
        snapshot_seq: snapshot.last_seq,
        is_behind: false,
        // What the client lacks of the message that streams now is sent together with the state.
        lost_signals: query.cursor.is_some() && place.is_some(),
        is_deleted: false,
        position: position(&snapshot),
        snapshot_delta: snapshot
            .streaming_message
            .as_ref()
            .map(|message| (message.id.clone(), message.delta_seq)),
        children: KnownChildren::new(&snapshot.descendants),
        cursor: query.cursor.map(|CursorUnit::Chars| match &place {
            Some(place) => MessageCursor::at(place),
            None => MessageCursor::after(snapshot.streaming_message.as_ref()),
        }),
        encoded: BytesMut::new(),
        credential,
        has_credential_ended: false,
        _permit,
        subscription,
        api,
        id,
    };
    Ok(event_stream::respond(feed.begin(snapshot)))
}

/// The place at which the client resumes; the header wins.
fn place(query: &EventsQuery, headers: &HeaderMap) -> Result<Option<Place>, Problem> {
    let Some(given) = headers.get("Last-Event-ID") else {
        let after = query.after.map(|after| extract::position("after", after)).transpose()?;
        return Ok(after.map(|seq| Place { seq, inside: None }));
    };
    let place = given.to_str().ok().and_then(|given| given.trim().parse::<Place>().ok());
    let place = place.filter(|place| query.cursor.is_some() || place.inside.is_none());
    let place = place.ok_or_else(|| {
        let expected = if query.cursor.is_some() { "is not a place" } else { "is not a seq" };
        Problem::field("Last-Event-ID", expected)
    })?;
    extract::position("Last-Event-ID", place.seq)?;
    Ok(Some(place))
}

/// The running turn, and how many of its steps are done.
type Position = Option<(TurnId, Step)>;

fn position(snapshot: &Snapshot) -> Position {
    let turn = snapshot.turn.as_ref()?;
    let done = match snapshot.state {
        ConversationStatus::Preparing | ConversationStatus::Streaming => {
            Step::new(turn.step.get().saturating_sub(1))
        }
        ConversationStatus::Idle
        | ConversationStatus::ExecutingTools
        | ConversationStatus::AwaitingInput => turn.step,
    };
    Some((turn.id.clone(), done))
}

/// Returns when the credential has ended.
async fn ended(credential: &mut Option<CredentialWatch>) {
    match credential {
        Some(credential) => credential.ended().await,
        None => std::future::pending().await,
    }
}

/// The frames for one client, produced as fast as it reads.
pub(super) struct Feed {
    api: Api,
    id: Scoped<ConversationId>,
    subscription: Subscription,
    /// The seq of the last event whose frames were encoded.
    pub(super) sent: Seq,
    /// The snapshot's last seq; a signal about an earlier state is stale.
    snapshot_seq: Seq,
    /// Whether the journal has events after `sent` that must be read before any live signal.
    is_behind: bool,
    /// Whether signals were lost, so that the current state must be sent again.
    lost_signals: bool,
    is_deleted: bool,
    /// The position that the client knows.
    position: Position,
    /// The last delta in the snapshot.
    pub(super) snapshot_delta: Option<(MessageId, u64)>,
    /// The calls of descendants that the client knows.
    children: KnownChildren,
    /// With `cursor=chars`: the message that streams, as far as the client has it.
    pub(super) cursor: Option<MessageCursor>,
    /// Encoded frames that are not sent yet.
    pub(super) encoded: BytesMut,
    /// The client's credential; `None` if the node authenticates nobody.
    credential: Option<CredentialWatch>,
    has_credential_ended: bool,
    /// Counts the stream among those of its tenant.
    _permit: Option<StreamPermit>,
}

impl EventSource for Feed {
    /// Ends when the conversation was deleted or the store failed.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        while self.encoded.is_empty() {
            if self.is_deleted || self.has_credential_ended {
                return None;
            }
            // Boxed: a stream that waits, as most do, needs no memory for reading.
            if self.is_behind {
                Box::pin(self.catch_up()).await?;
                continue;
            }
            if self.lost_signals {
                Box::pin(self.send_state()).await?;
                continue;
            }
            let item = tokio::select! {
                item = self.subscription.next() => item,
                () = ended(&mut self.credential) => {
                    self.has_credential_ended = true;
                    return Some(Frame::live(Payload::CredentialEnded {}).encode());
                }
                () = sleep(KEEP_ALIVE_INTERVAL) => return Some(Bytes::from_static(b":\n\n")),
            };
            let encoding_streams = self.api.encoding_streams.clone();
            let _permit = encoding_streams.acquire().await.ok()?;
            let mut next = item;
            while self.encode(next) && self.encoded.len() < CHUNK_BYTES {
                match self.subscription.try_next() {
                    Some(item) => next = item,
                    None => break,
                }
            }
        }
        Some(std::mem::take(&mut self.encoded).freeze())
    }
}

impl Feed {
    fn begin(mut self, snapshot: Snapshot) -> Self {
        self.is_behind = self.sent < snapshot.last_seq;
        let first = Frame::live(Payload::Snapshot(Box::new(snapshot)));
        self.encoded.extend_from_slice(&first.encode());
        self
    }

    /// Encodes the frames of an item. Returns false when the next frames must come from the journal,
    /// or when there are none.
    fn encode(&mut self, item: StreamItem) -> bool {
        let shared = match &item {
            StreamItem::Signal(shared) => shared,
            StreamItem::Missed => return self.recover(),
        };
        match &shared.signal {
            Signal::Deleted => {
                self.is_deleted = true;
                false
            }
            Signal::Revived => self.recover(),
            Signal::Committed(events) => {
                if events.first().is_some_and(|first| first.seq > self.sent.next()) {
                    self.is_behind = true;
                    return false;
                }
                let encoded = shared.encoded(frames::encode_signal);
                for (event, frames) in events.iter().zip(encoded) {
                    self.mirror(event, frames);
                }
                true
            }
            Signal::Child(calls) => {
                self.subscription.mark_children(true);
                let frames = self.children.update(calls);
                frames.iter().for_each(|frame| self.encoded.extend_from_slice(&frame.encode()));
                if self.children.needs_reading() { self.recover() } else { true }
            }
            signal if self.is_stale(signal) => true,
            Signal::Text(delta) if self.cursor.is_some() => self.encode_delta(delta, false),
            Signal::Thinking(delta) if self.cursor.is_some() => self.encode_delta(delta, true),
            _ => {
                let encoded = shared.encoded(frames::encode_signal);
                encoded.iter().for_each(|frame| self.encoded.extend_from_slice(frame));
                true
            }
        }
    }

    /// After lost signals: the journal's events come first, then the current state.
    pub(super) fn recover(&mut self) -> bool {
        self.is_behind = true;
        self.lost_signals = true;
        false
    }

    /// Encodes the next events that the journal has and the client has not.
    async fn catch_up(&mut self) -> Option<()> {
        let events = self.api.store.events(&self.id, self.sent, EVENTS_PER_READ).await.ok()?;
        let encoding_streams = self.api.encoding_streams.clone();
        let _permit = encoding_streams.acquire().await.ok()?;
        for event in &events {
            self.mirror(event, &frames::encode_event(event));
        }
        self.is_behind = events.len() == EVENTS_PER_READ;
        Some(())
    }

    /// Encodes the state as it is now, for a client that may have missed its changes.
    async fn send_state(&mut self) -> Option<()> {
        let snapshot = self.api.conversations.unscoped().snapshot(&self.id).await.ok().flatten()?;
        if self.cursor.is_some() && snapshot.last_seq > self.sent {
            // The message that streams now comes after events that the client must have first.
            self.is_behind = true;
            return Some(());
        }
        if let Some(streaming) = &snapshot.streaming_message {
            self.catch_up_in_message(streaming);
        }
        let state = Frame::live(Payload::StateChanged { state: snapshot.state });
        self.encoded.extend_from_slice(&state.encode());
        self.subscription.mark_children(!snapshot.descendants.calls.is_empty());
        let frames = self.children.replace(&snapshot.descendants);
        frames.iter().for_each(|frame| self.encoded.extend_from_slice(&frame.encode()));
        self.lost_signals = false;
        Some(())
    }

    /// Adds the encoded frames of an event, unless they were sent before.
    fn mirror(&mut self, event: &Event, frames: &[u8]) {
        if event.seq <= self.sent {
            return;
        }
        self.complete_message(event);
        self.sent = event.seq;
        match (&event.data, &event.turn_id) {
            (EventData::TurnStarted(_), Some(turn)) => {
                self.position = Some((turn.clone(), Step::ZERO))
            }
            (EventData::AssistantMsg(assistant), Some(turn)) => {
                self.position = Some((turn.clone(), assistant.step));
            }
            (EventData::TurnEnded(_), _) => self.position = None,
            (EventData::Updated(updated), _) => {
                if let (Some(members), Some(credential)) = (&updated.members, &mut self.credential)
                {
                    credential.update_members(members);
                }
            }
            (EventData::ChildStarted(_), _) => self.subscription.mark_children(true),
            _ => {}
        }
        self.encoded.extend_from_slice(frames);
        if !frames.is_empty() {
            self.extend_id();
        }
    }

    /// Whether the snapshot, or a frame that was sent, is newer than the signal.
    fn is_stale(&self, signal: &Signal) -> bool {
        let is_current = |turn: &TurnId, step: Step| {
            let is_next = |(known, done): &(TurnId, Step)| known == turn && step == done.next();
            self.position.as_ref().is_some_and(is_next)
        };
        let delta = match signal {
            Signal::Status { seq, .. } => return *seq < self.snapshot_seq,
            Signal::CallArgs(delta) => return !is_current(&delta.turn, delta.step),
            Signal::Text(delta) | Signal::Thinking(delta) => delta,
            Signal::Committed(_)
            | Signal::Progress { .. }
            | Signal::Child(_)
            | Signal::Revived
            | Signal::Deleted => return false,
        };
        let is_known = |(message, seq): &(MessageId, u64)| {
            *message == delta.message && delta.delta_seq <= *seq
        };
        !is_current(&delta.turn, delta.step) || self.snapshot_delta.as_ref().is_some_and(is_known)
    }
}
