//! The response to a run: a stream of events of AG-UI.

use std::time::Duration;

use abide_conversation::{ConversationId, Scoped, Seq, TurnId};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

use super::beginning::PrimedFeed;
use crate::http::Api;
use crate::http::event_stream::{self, EventSource, write_data};
use crate::http::problem::Problem;
use crate::http::protocol_requests::newest_turns;
use crate::http::turn_stream::{Break, Next, TurnStream};
use crate::protocols::ag_ui::encoder::{Demand, RunEncoder};
use crate::protocols::ag_ui::history;
use crate::protocols::feed::{Feed, Item};

/// How long a response goes on while the turn rests on calls that the caller may not answer.
const MAX_REST: Duration = Duration::from_secs(300);
/// The newest turns that a snapshot has.
const MAX_TURNS: usize = 200;

/// The events of one run, produced as fast as the client reads.
pub(super) struct RunStream {
    api: Api,
    id: Scoped<ConversationId>,
    encoder: RunEncoder,
    /// The client's state.
    state: Value,
    /// Whether the turn began after others that the client may not know.
    tells_messages_at_start: bool,
    /// The turn that is told after this one.
    next_turn: Option<TurnId>,
    /// Bytes that are not sent yet.
    encoded: BytesMut,
    /// When the response ends although the turn has not, because it rests.
    rests_until: Option<Instant>,
}

/// A run with what is still to come of its turns; nothing, if they have ended.
struct RunBody {
    run: RunStream,
    turns: Option<TurnStream>,
}

impl EventSource for RunBody {
    async fn next_chunk(&mut self) -> Option<Bytes> {
        self.run.next_chunk(self.turns.as_mut()).await
    }
}

impl RunStream {
    pub(super) fn new(
        api: &Api,
        id: &Scoped<ConversationId>,
        encoder: RunEncoder,
        state: Value,
    ) -> Self {
        let mut encoded = BytesMut::new();
        write_data(&encoder.begin(), &mut encoded);
        Self {
            api: api.clone(),
            id: id.clone(),
            encoder,
            state,
            tells_messages_at_start: false,
            next_turn: None,
            encoded,
            rests_until: None,
        }
    }

    /// Ends the run with an error.
    pub(super) fn fail(&mut self, code: &str, why: &str) {
        let events = self.encoder.fail(code, why);
        self.write(&events);
    }

    /// Ends the run, in which nothing more happens until somebody else acts.
    pub(super) fn succeed(&mut self) {
        let events = self.encoder.succeed();
        self.write(&events);
    }

    /// Tells what was before the turn when it starts.
    pub(super) fn tell_messages_at_start(&mut self) {
        self.tells_messages_at_start = true;
    }

    /// Tells this turn after the first.
    pub(super) fn follow_with(&mut self, next: Option<TurnId>) {
        self.encoder.set_followed(next.is_some());
        self.next_turn = next;
    }

    /// Tells what was before by a snapshot. Returns the feed, which goes on from there.
    pub(super) async fn continue_from(&mut self, primed: PrimedFeed) -> Result<Feed, Problem> {
        let PrimedFeed { feed, items } = primed;
        self.encoder.prime(&items);
        self.tell_messages(feed.seq()).await?;
        if let Some(end @ Item::End(_)) = items.last() {
            let events = self.encoder.item(end);
            self.write(&events);
        }
        Ok(feed)
    }

    /// Tells the messages up to this event.
    pub(super) async fn tell_messages(&mut self, seq: Seq) -> Result<(), Problem> {
        let messages = self.messages(seq).await?;
        let events = self.encoder.snapshot(messages);
        self.write(&events);
        Ok(())
    }

    async fn messages(&self, seq: Seq) -> Result<Vec<Value>, Problem> {
        let events = newest_turns(&self.api, &self.id, seq, MAX_TURNS).await?;
        let _permit = self.permit().await;
        Ok(history::messages(&events, self.encoder.tools(), self.encoder.dialect()))
    }

    /// The response, which tells what this stream has.
    pub(super) fn into_response(self, turns: Option<TurnStream>) -> Response {
        event_stream::respond(RunBody { run: self, turns })
    }

    /// The next bytes; `None` at the end of the response.
    async fn next_chunk(&mut self, mut turns: Option<&mut TurnStream>) -> Option<Bytes> {
        while self.encoded.is_empty() {
            if self.encoder.is_over() {
                return None;
            }
            let Some(turns) = turns.as_deref_mut() else {
                self.succeed();
                continue;
            };
            let next = match self.rests_until {
                Some(until) => timeout_at(until, turns.next()).await.ok(),
                None => Some(turns.next().await),
            };
            match next {
                Some(Next::Items(items)) => self.encode(&items, turns).await,
                Some(Next::KeepAlive) => return Some(Bytes::from_static(b": keep-alive\n\n")),
                Some(Next::Broken(why)) => self.fail(code(why), why.text()),
                Some(Next::Ended) => match self.next_turn.take() {
                    Some(next) => {
                        self.encoder.set_followed(false);
                        self.rests_until = None;
                        turns.begin_turn(next);
                    }
                    None => self.succeed(),
                },
                None => self.succeed(),
            }
        }
        Some(std::mem::take(&mut self.encoded).freeze())
    }

    async fn encode(&mut self, items: &[Item], turns: &TurnStream) {
        if self.encode_items(items, turns.seq()).await.is_err() {
            let why = Break::StoreUnavailable;
            self.fail(code(why), why.text());
        }
    }

    /// Encodes items, of which the last are of the event of this seq.
    async fn encode_items(&mut self, items: &[Item], seq: Seq) -> Result<(), Problem> {
        for (index, item) in items.iter().enumerate() {
            self.meet_demand(items.get(index..).unwrap_or_default(), seq).await?;
            match item {
                Item::Rest(_) => self.rests_until = Some(Instant::now() + MAX_REST),
                Item::CaughtUp => {}
                _ => self.rests_until = None,
            }
            if let Item::Started { seq, .. } = item
                && std::mem::take(&mut self.tells_messages_at_start)
            {
                self.tell_messages(seq.saturating_sub(1)).await?;
            }
            // Held only while nothing is waited for: others wait for it.
            let _permit = self.permit().await;
            let events = self.encoder.item(item);
            self.write(&events);
        }
        self.meet_demand(&[], seq).await
    }

    /// Tells the snapshot that the encoder demands. One has all items up to the event of this seq, so it
    /// is exact only if those that follow are none of them.
    async fn meet_demand(&mut self, following: &[Item], seq: Seq) -> Result<(), Problem> {
        match self.encoder.take_demand() {
            Some(Demand::Interrupt(interrupts)) => {
                let snapshot = (self.shared_state().await?, self.messages(seq).await?);
                let events = self.encoder.interrupt(&interrupts, snapshot);
                self.write(&events);
            }
            Some(Demand::Messages) if following.iter().all(is_in_no_snapshot) => {
                self.tell_messages(seq).await?;
            }
            Some(Demand::Messages) => self.encoder.demand_messages(),
            None => {}
        }
        Ok(())
    }

    /// The state of the conversation, beside the client's own.
    async fn shared_state(&self) -> Result<Value, Problem> {
        let snapshot = self.api.conversations.unscoped().snapshot(&self.id).await?;
        let snapshot = snapshot.ok_or_else(|| Problem::not_found("conversation"))?;
        let own = json!({"state": snapshot.state, "todos": snapshot.todos,
            "phase": snapshot.phase, "usage": snapshot.usage, "queued": snapshot.queued});
        let mut state = match &self.state {
            Value::Object(state) => Value::Object(state.clone()),
            _ => json!({}),
        };
        state["abide"] = own;
        Ok(state)
    }

    /// The permit to encode, for a moment.
    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        // It is never closed.
        self.api.encoding_streams.clone().acquire_owned().await.ok()
    }

    fn write(&mut self, events: &[Value]) {
        for event in events {
            write_data(event, &mut self.encoded);
        }
    }
}

/// Whether an item tells nothing that a snapshot of the same events has.
fn is_in_no_snapshot(item: &Item) -> bool {
    match item {
        Item::Thinking(_)
        | Item::Text(_)
        | Item::Progress { .. }
        | Item::Todos(_)
        | Item::CaughtUp
        | Item::Rest(_)
        | Item::End(_) => true,
        Item::Started { .. }
        | Item::Steered(_)
        | Item::Message(_)
        | Item::CallStarted(_)
        | Item::Suspended(_)
        | Item::Resolved(_)
        | Item::Ui { .. }
        | Item::Result { .. }
        | Item::Refused { .. }
        | Item::Restarted { .. } => false,
    }
}

fn code(why: Break) -> &'static str {
    match why {
        Break::Moved => "moved",
        Break::CredentialEnded => "unauthorized",
        Break::Deleted => "deleted",
        Break::StoreUnavailable => "unavailable",
    }
}
