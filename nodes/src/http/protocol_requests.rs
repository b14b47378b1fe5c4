//! What the adapters of several protocols ask of a conversation.

use std::collections::VecDeque;

use abide_actors::journal::ResponseScope;
use abide_actors::request::{IdempotencyKey, Reply, Request, WithdrawRequest};
use abide_conversation::branch::NewestFirst;
use abide_conversation::event::{Event, EventData};
use abide_conversation::{ConversationId, Scoped, Seq, State, TurnId};

use super::Api;
use super::conversations::unexpected;
use super::extract::{Idempotency, fingerprint};
use super::problem::Problem;
use crate::access::Allowed;
use crate::access::permission::{Cancel, ConversationPermission};

/// How many events are read at a time, to find messages among them.
const EVENTS_PER_READ: usize = 200;
/// The most events that the messages of a client are made of.
const MAX_LISTED_EVENTS: usize = 5_000;

/// The state of a conversation of this agent.
pub(super) async fn conversation<P: ConversationPermission>(
    api: &Api,
    allowed: &Allowed<P>,
    id: &Scoped<ConversationId>,
    agent: &str,
) -> Result<State, Problem> {
    let state = api.conversations.state(allowed, id).await?;
    if state.agent.as_ref().is_some_and(|own| own.as_str() == agent) {
        Ok(state)
    } else {
        Err(Problem::not_found("conversation"))
    }
}

/// Whether a request with one of these keys was carried out before.
pub(super) async fn is_repeat(
    api: &Api,
    id: &Scoped<ConversationId>,
    keys: &[IdempotencyKey],
) -> Result<bool, Problem> {
    let (scope, now) = (ResponseScope::Conversation(id.clone()), api.clock.now());
    for key in keys {
        if api.store.stored_response(&scope, &key.key, now).await?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Cancels the open turn of a conversation of this agent. Returns whether one was open.
pub(super) async fn cancel(
    api: &Api,
    allowed: &Allowed<Cancel>,
    (id, agent): (&Scoped<ConversationId>, &str),
    idempotency: Idempotency,
) -> Result<bool, Problem> {
    conversation(api, allowed, id, agent).await?;
    let keys = idempotency.keys(allowed, fingerprint(&["cancel", id.as_str()]));
    match api.conversations.deliver(allowed, id, Request::Cancel, keys).await? {
        Reply::Cancelled { cancelled } => Ok(cancelled),
        other => Err(unexpected(&other)),
    }
}

/// Ends this turn, whether it waits or runs, and no other. Returns whether it has ended by this.
pub(super) async fn cancel_turn(
    api: &Api,
    allowed: &Allowed<Cancel>,
    (id, turn): (&Scoped<ConversationId>, &TurnId),
    keys: Vec<IdempotencyKey>,
) -> Result<bool, Problem> {
    let (turn, by) = (turn.clone(), allowed.principal());
    let request = Request::CancelTurn(WithdrawRequest { turn, by });
    match api.conversations.deliver(allowed, id, request, keys).await? {
        Reply::Cancelled { cancelled } => Ok(cancelled),
        other => Err(unexpected(&other)),
    }
}

/// The events of the newest turns that count, oldest first, as far back as the messages that they began with.
pub(super) async fn newest_turns(
    api: &Api,
    id: &Scoped<ConversationId>,
    last: Seq,
    limit: usize,
) -> Result<Vec<Event>, Problem> {
    let mut events: VecDeque<Event> = VecDeque::new();
    // The turns, and those whose messages are further back.
    let mut turns = 0;
    let mut without_message: Vec<TurnId> = Vec::new();
    let (mut before, mut reader) = (last.next(), NewestFirst::default());
    while events.len() < MAX_LISTED_EVENTS && (turns < limit || !without_message.is_empty()) {
        let page = api.store.events_before(id, before, EVENTS_PER_READ).await?;
        let Some(oldest) = page.last().map(|event| event.seq) else { break };
        for event in page.into_iter().filter(|event| reader.counts(event)) {
            match (&event.data, &event.turn_id) {
                (EventData::TurnStarted(_), Some(turn)) if turns < limit => {
                    turns += 1;
                    without_message.push(turn.clone());
                }
                (EventData::UserMsg(_), Some(turn)) => without_message.retain(|id| id != turn),
                // The turn began further back than the limit.
                (EventData::TurnStarted(_), _) => continue,
                _ => {}
            }
            events.push_front(event);
        }
        before = reader.before(oldest);
    }
    Ok(events.into())
}
