//! Drives the feed of a turn: reads the journal, then follows the live signals of its conversation.

mod history;
mod outage;

use std::collections::BTreeSet;
use std::time::Duration;

use abide_actors::access::{Access, Answerer};
use abide_actors::live::Signal;
use abide_conversation::event::{Event, EventData};
use abide_conversation::{ConversationId, Scoped, Seq, State, Timestamp, TurnId};
use abide_registry::live::{StreamItem, Subscription};
use axum::http::StatusCode;
use tokio::time::{sleep, timeout};

use super::Api;
use super::problem::Problem;
use crate::access::permission::ConversationPermission;
use crate::access::{Allowed, CredentialWatch, StreamPermit};
use crate::departures::DepartureWatch;
use crate::protocols::feed::{Answerable, Feed, Item};
use history::History;
use outage::Outage;

/// How many events are read from the store at a time: they stay in memory for a client that does not
/// read.
const EVENTS_PER_READ: usize = 20;
/// How many events are read at a time in search of the beginning of a turn.
const EVENTS_PER_SEARCH: usize = 100;
/// The most events that are searched: more than a turn has that people follow.
const MAX_SEARCHED_EVENTS: usize = 20_000;
/// How long to wait until the other nodes know that this node has a listener.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_millis(500);
/// After this long without an item, a comment line keeps proxies from closing the connection.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// How long a stream may read the journal when its node departs: less than a server that stops gives to
/// its connections.
const LAST_READ_TIMEOUT: Duration = Duration::from_millis(200);

/// The items of a turn for one caller, from the journal and then live.
pub(super) struct TurnStream {
    pub(super) api: Api,
    id: Scoped<ConversationId>,
    feed: Feed,
    subscription: Subscription,
    /// Whether the journal may have events that were not taken.
    is_behind: bool,
    /// Whether pieces of the streaming message may be missing.
    needs_message: bool,
    /// What the caller may answer.
    access: Access,
    credential: Option<CredentialWatch>,
    departure: DepartureWatch,
    /// Whether the node departs. The stream then tells what the journal has, and ends.
    is_departing: bool,
    outage: Outage,
    /// What is told as it was, for protocols that tell a part of a turn that is over.
    history: Option<History>,
    _permit: Option<StreamPermit>,
}

/// What comes next.
pub(super) enum Next<T = Item> {
    Items(Vec<T>),
    KeepAlive,
    /// The turn has ended.
    Ended,
    /// The stream ends before the turn, for this reason.
    Broken(Break),
}

/// Why a stream ends before its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Break {
    /// The turn goes on at another node, or at this one when it has its lease again.
    Moved,
    CredentialEnded,
    Deleted,
    StoreUnavailable,
}

impl Break {
    /// What the client is told.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Moved => "the node no longer serves the stream; resume it at another",
            Self::CredentialEnded => "the credential has ended; resume with another",
            Self::Deleted => "the conversation was deleted",
            Self::StoreUnavailable => "the store is unavailable; resume the stream",
        }
    }
}

/// An item, and the event that it was made of; `None` for an item that no event makes.
#[derive(Debug)]
pub(super) struct PlacedItem {
    pub(super) seq: Option<Seq>,
    /// When the event was journalled.
    pub(super) at: Option<Timestamp>,
    pub(super) item: Item,
}

fn unplaced(items: Vec<Item>) -> Vec<PlacedItem> {
    items.into_iter().map(|item| PlacedItem { seq: None, at: None, item }).collect()
}

impl TurnStream {
    /// Follows the turn of this feed, for a caller who may read the conversation. The permit is taken
    /// before anything is done that the stream is to tell of.
    pub(super) async fn open<P: ConversationPermission>(
        api: &Api,
        allowed: &Allowed<P>,
        (id, permit): (&Scoped<ConversationId>, Option<StreamPermit>),
        feed: Feed,
    ) -> Result<Self, Problem> {
        // Subscribe before reading, so that no event falls in between.
        let subscription = api.hub.subscribe(id);
        subscription.wait_until_announced(ANNOUNCE_TIMEOUT).await;
        let summary = api.store.summary(id).await?;
        let summary = summary.ok_or_else(|| Problem::not_found("conversation"))?;
        let created_at = Some(summary.created_at);
        if allowed.access().check_read(&summary.participants, created_at).is_err() {
            return Err(Problem::forbidden("read"));
        }
        let credential = api.access.watch(allowed, summary.participants, created_at);
        Ok(Self {
            api: api.clone(),
            id: id.clone(),
            feed,
            subscription,
            is_behind: true,
            needs_message: true,
            access: allowed.answerer(api.clock.now()).within_token().access,
            credential,
            departure: api.departures.watch(),
            is_departing: false,
            outage: Outage::default(),
            history: None,
            _permit: permit,
        })
    }

    /// The seq of the last event whose items were returned.
    pub(super) fn seq(&self) -> Seq {
        self.feed.seq()
    }

    /// Follows another turn from here on.
    pub(super) fn begin_turn(&mut self, turn: TurnId) {
        self.feed = Feed::new(turn, self.feed.seq());
        self.recover();
    }

    /// The stream that tells the past as it was: the turn rests wherever it has rested, and a call that
    /// was answered meanwhile is told to whoever might have answered it.
    pub(super) fn with_history(self) -> Self {
        Self { history: Some(History::default()), ..self }
    }

    /// What comes next. May be called again when the call was dropped.
    pub(super) async fn next(&mut self) -> Next {
        match self.next_placed().await {
            Next::Items(items) => Next::Items(items.into_iter().map(|it| it.item).collect()),
            Next::KeepAlive => Next::KeepAlive,
            Next::Ended => Next::Ended,
            Next::Broken(why) => Next::Broken(why),
        }
    }

    /// What comes next, with the places of items in the journal. May be called again when the call was
    /// dropped.
    pub(super) async fn next_placed(&mut self) -> Next<PlacedItem> {
        loop {
            if self.feed.has_ended() {
                return Next::Ended;
            }
            // Boxed: a stream that waits, as most do, needs no memory for reading.
            if self.is_departing {
                return Box::pin(self.last_items()).await;
            }
            if self.is_behind || self.needs_message {
                match Box::pin(self.read()).await {
                    Some(next) => return next,
                    None => continue,
                }
            }
            let item = tokio::select! {
                item = self.subscription.next() => item,
                () = self.departure.announced() => {
                    self.is_departing = true;
                    self.is_behind = true;
                    continue;
                }
                () = ended(&mut self.credential) => {
                    return Next::Broken(Break::CredentialEnded);
                }
                () = sleep(KEEP_ALIVE_INTERVAL) => return Next::KeepAlive,
            };
            match item {
                StreamItem::Missed => self.recover(),
                StreamItem::Signal(shared) => match self.take(&shared.signal).await {
                    Ok(Some(items)) if !items.is_empty() => return Next::Items(items),
                    Ok(Some(_)) => {}
                    Ok(None) => return Next::Broken(Break::Deleted),
                    // The events are read again.
                    Err(_) => self.recover(),
                },
            }
        }
    }

    /// What the journal has and was not taken; `None` if that has no items, or was not read yet.
    async fn read(&mut self) -> Option<Next<PlacedItem>> {
        let items = match self.catch_up().await {
            Ok(items) => items,
            Err(problem) if problem.status() == StatusCode::SERVICE_UNAVAILABLE => {
                return self.wait_for_store().await.map(Next::Broken);
            }
            Err(_) => return Some(Next::Broken(Break::StoreUnavailable)),
        };
        self.outage.end();
        (!items.is_empty()).then_some(Next::Items(items))
    }

    /// The items of what the journal has and was not taken: the turn may have ended just before the
    /// node departed.
    async fn last_items(&mut self) -> Next<PlacedItem> {
        self.needs_message = false;
        loop {
            match timeout(LAST_READ_TIMEOUT, self.catch_up()).await {
                Ok(Ok(items)) if !items.is_empty() => return Next::Items(items),
                Ok(Ok(_)) if self.is_behind => {}
                _ => return Next::Broken(Break::Moved),
            }
        }
    }

    fn recover(&mut self) {
        self.is_behind = true;
        self.needs_message = true;
    }

    /// The items of a signal; `None` if the conversation is gone.
    async fn take(&mut self, signal: &Signal) -> Result<Option<Vec<PlacedItem>>, Problem> {
        match signal {
            Signal::Deleted => return Ok(None),
            Signal::Revived => self.recover(),
            Signal::Committed(events) => {
                if events.first().is_some_and(|first| first.seq > self.feed.seq().next()) {
                    self.is_behind = true;
                    return Ok(Some(Vec::new()));
                }
                return Box::pin(self.take_commit(events)).await.map(Some);
            }
            Signal::Text(_)
            | Signal::Thinking(_)
            | Signal::CallArgs(_)
            | Signal::Progress { .. }
            | Signal::Status { .. }
            | Signal::Child(_) => return Ok(Some(unplaced(self.feed.signal(signal)))),
        }
        Ok(Some(Vec::new()))
    }

    async fn take_commit(&mut self, events: &[Event]) -> Result<Vec<PlacedItem>, Problem> {
        // The events are in the journal, if this call is dropped.
        self.is_behind = true;
        let mut items = self.take_events(events).await?;
        items.extend(unplaced(self.caught_up().await?));
        self.is_behind = false;
        Ok(items)
    }

    /// The items of what the journal has and was not taken, then those of the message that streams.
    async fn catch_up(&mut self) -> Result<Vec<PlacedItem>, Problem> {
        if self.is_behind {
            let after = self.feed.seq();
            let events = self.api.store.events(&self.id, after, EVENTS_PER_READ).await?;
            let mut items = self.take_events(&events).await?;
            self.is_behind = events.len() == EVENTS_PER_READ;
            if !self.is_behind {
                self.subscription.mark_known(self.feed.seq());
                items.extend(unplaced(self.caught_up().await?));
            }
            return Ok(items);
        }
        if !self.needs_message {
            return Ok(Vec::new());
        }
        let snapshot = self.api.conversations.unscoped().snapshot(&self.id).await?;
        let Some(snapshot) = snapshot else { return Err(Problem::not_found("conversation")) };
        if snapshot.last_seq > self.feed.seq() {
            self.is_behind = true;
            return Ok(Vec::new());
        }
        self.needs_message = false;
        let is_own = snapshot.turn.is_some_and(|turn| turn.id == *self.feed.turn());
        let is_current = is_own && snapshot.last_seq == self.feed.seq();
        let message = snapshot.streaming_message.filter(|_| is_current);
        let items = message.map(|message| self.feed.streaming_message(&message));
        Ok(unplaced(items.unwrap_or_default()))
    }

    async fn take_events(&mut self, events: &[Event]) -> Result<Vec<PlacedItem>, Problem> {
        let asks =
            |event: &Event| matches!(event.data, EventData::Suspension(_) | EventData::Voted(_));
        let matters = events.iter().any(asks);
        if matters {
            self.remember(events).await?;
        }
        let answerable = self.answerable_if(matters).await?;
        let mut items = Vec::new();
        for event in events {
            if self.history.as_mut().is_some_and(|history| history.is_new_commit(event)) {
                items.extend(unplaced(self.feed.rest(&answerable).into_iter().collect()));
            }
            if let (EventData::Updated(updated), Some(credential)) =
                (&event.data, &mut self.credential)
                && let Some(members) = &updated.members
            {
                credential.update_members(members);
            }
            let (seq, at) = (Some(event.seq), Some(event.at));
            let of_event = self.feed.event(event, &answerable).into_iter();
            items.extend(of_event.map(|item| PlacedItem { seq, at, item }));
        }
        Ok(items)
    }

    async fn caught_up(&mut self) -> Result<Vec<Item>, Problem> {
        let answerable = self.answerable_if(self.feed.rests()).await?;
        Ok(self.feed.catch_up(&answerable))
    }

    /// The suspensions that the caller may answer now, if that matters.
    async fn answerable_if(&self, matters: bool) -> Result<Answerable, Problem> {
        if self.access.is_unrestricted() {
            return Ok(Answerable::All);
        }
        if let Some(history) = &self.history {
            return Ok(history.answerable());
        }
        if !matters {
            return Ok(Answerable::Only(BTreeSet::new()));
        }
        let state = self.api.conversations.unscoped().stored_state(&self.id).await?;
        Ok(answerable(&self.access, &state.unwrap_or_default(), self.api.clock.now()))
    }
}

/// The suspensions in this state that may be answered with this access.
pub(super) fn answerable(access: &Access, state: &State, at: Timestamp) -> Answerable {
    if access.is_unrestricted() {
        return Answerable::All;
    }
    let caller = Answerer { access: access.clone(), at };
    let pending = state.pending_calls().into_iter();
    let pending = pending.filter(|call| caller.may_answer(&state.participants, call));
    Answerable::Only(pending.map(|call| (call.call_id, call.suspension)).collect())
}

/// Finds the newest event of a turn that satisfies this, or with which the turn begins. `None` if the
/// conversation has no such turn, or it is too far back.
pub(super) async fn find_in_turn(
    api: &Api,
    id: &Scoped<ConversationId>,
    turn: &TurnId,
    is_wanted: impl Fn(&Event) -> bool,
) -> Result<Option<Event>, Problem> {
    let Some(summary) = api.store.summary(id).await? else { return Ok(None) };
    // Events may follow that were appended meanwhile; they are not looked for.
    let mut before = summary.last_seq.next();
    for _ in 0..MAX_SEARCHED_EVENTS / EVENTS_PER_SEARCH {
        let events = api.store.events_before(id, before, EVENTS_PER_SEARCH).await?;
        let Some(oldest) = events.last().map(|event| event.seq) else { return Ok(None) };
        let begins = |event: &Event| matches!(event.data, EventData::TurnStarted(_));
        let mut own = events.into_iter().filter(|event| event.turn_id.as_ref() == Some(turn));
        if let Some(found) = own.find(|event| is_wanted(event) || begins(event)) {
            return Ok(Some(found));
        }
        before = oldest;
    }
    Ok(None)
}

/// Returns when the credential has ended.
async fn ended(credential: &mut Option<CredentialWatch>) {
    match credential {
        Some(credential) => credential.ended().await,
        None => std::future::pending().await,
    }
}
