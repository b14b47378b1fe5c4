//! A turn as the body of a response: streamed as server-sent events, or folded until it rests.

use std::time::Duration;

use axum::response::Response;
use bytes::{Bytes, BytesMut};
use tokio::time::{Instant, timeout_at};

use crate::http::event_stream::{self, EventSource};
use crate::http::turn_stream::{Next, PlacedItem, TurnStream};
use crate::problem::{Kind, Problem};
use crate::protocols::feed::Item;

/// How long a response goes on while the turn rests on calls that the caller may not answer.
const MAX_REST: Duration = Duration::from_secs(300);
/// How long a request without a stream waits: as long as OpenAI's clients do.
const MAX_WAIT: Duration = Duration::from_secs(600);

/// Encodes a turn.
pub(in crate::http) trait TurnEncoder: Send + 'static {
    /// Adds the events of an item.
    fn item(&mut self, item: &PlacedItem, encoded: &mut BytesMut);

    /// Whether the response is complete.
    fn is_over(&self) -> bool;

    /// Ends a response that waits for others, or that is broken, for this reason.
    fn finish(&mut self, broken: Option<&str>, encoded: &mut BytesMut);

    /// Adds what ends the body.
    fn end(&mut self, encoded: &mut BytesMut);
}

/// The events of one response, produced as fast as the client reads.
pub(in crate::http) struct TurnBody<E> {
    stream: TurnStream,
    encoder: E,
    encoded: BytesMut,
    /// When the response ends although the turn has not, because it rests.
    rests_until: Option<Instant>,
    is_done: bool,
}

impl<E: TurnEncoder> TurnBody<E> {
    /// The body that begins with these bytes.
    pub(in crate::http) fn new(stream: TurnStream, encoder: E, encoded: BytesMut) -> Self {
        Self { stream, encoder, encoded, rests_until: None, is_done: false }
    }

    pub(in crate::http) fn into_response(self) -> Response {
        event_stream::respond(self)
    }

    async fn next(&mut self) -> Option<Next<PlacedItem>> {
        match self.rests_until {
            Some(until) => timeout_at(until, self.stream.next_placed()).await.ok(),
            None => Some(self.stream.next_placed().await),
        }
    }

    async fn encode(&mut self, items: &[PlacedItem]) -> Option<()> {
        let encoding_streams = self.stream.api.encoding_streams.clone();
        let _permit = encoding_streams.acquire().await.ok()?;
        for placed in items {
            self.note_rest(&placed.item);
            self.encoder.item(placed, &mut self.encoded);
        }
        Some(())
    }

    fn note_rest(&mut self, item: &Item) {
        match item {
            Item::Rest(_) => self.rests_until = Some(Instant::now() + MAX_REST),
            Item::CaughtUp => {}
            _ => self.rests_until = None,
        }
    }

    /// Takes items until the response is complete, rests for others, or has taken long enough. The
    /// encoder then has it, as far as it is.
    pub(in crate::http) async fn wait(mut self) -> Result<E, Problem> {
        let give_up_at = Instant::now() + MAX_WAIT;
        while !self.encoder.is_over() {
            let Ok(next) = timeout_at(give_up_at, self.next()).await else { break };
            match next {
                Some(Next::Items(items)) => {
                    for placed in &items {
                        self.note_rest(&placed.item);
                        self.encoder.item(placed, &mut self.encoded);
                    }
                    self.encoded.clear();
                }
                Some(Next::KeepAlive) => {}
                Some(Next::Broken(why)) => return Err(Problem::new(Kind::Unavailable, why.text())),
                Some(Next::Ended) | None => break,
            }
        }
        Ok(self.encoder)
    }

    /// Takes the items of what is journalled now.
    pub(in crate::http) async fn catch_up(mut self) -> Result<E, Problem> {
        let mut is_caught_up = false;
        while !self.encoder.is_over() && !is_caught_up {
            match self.stream.next_placed().await {
                Next::Items(items) => {
                    for placed in &items {
                        self.encoder.item(placed, &mut self.encoded);
                        is_caught_up |= placed.item == Item::CaughtUp;
                    }
                    self.encoded.clear();
                }
                Next::Broken(why) => return Err(Problem::new(Kind::Unavailable, why.text())),
                Next::KeepAlive | Next::Ended => break,
            }
        }
        Ok(self.encoder)
    }
}

impl<E: TurnEncoder> EventSource for TurnBody<E> {
    async fn next_chunk(&mut self) -> Option<Bytes> {
        while self.encoded.is_empty() {
            if self.is_done {
                return None;
            }
            if self.encoder.is_over() {
                self.is_done = true;
                self.encoder.end(&mut self.encoded);
                continue;
            }
            match self.next().await {
                Some(Next::Items(items)) => self.encode(&items).await?,
                Some(Next::KeepAlive) => return Some(Bytes::from_static(b": keep-alive\n\n")),
                Some(Next::Broken(why)) => self.encoder.finish(Some(why.text()), &mut self.encoded),
                Some(Next::Ended) | None => self.encoder.finish(None, &mut self.encoded),
            }
        }
        Some(std::mem::take(&mut self.encoded).freeze())
    }
}
