//! Copies the next page of the prefix that a fork begins with.

use std::collections::BTreeSet;

use abide_conversation::command::CopiedEvents;
use abide_conversation::fork::Fork;
use abide_conversation::{Action, BlobId, ConversationId, Event, Scoped, Seq};

use super::ActivityContext;
use crate::blobs::{BlobHold, named_blobs};
use crate::journal::{StoreError, event_json};
use crate::limits::encoded_len;

/// The events that are read and committed at once, and their bytes. A commit is one script of a
/// store, and no other conversation should wait long for it.
const PAGE_EVENTS: usize = 256;
const MAX_PAGE_BYTES: usize = 1 << 20;

/// An erasure may rewrite the original meanwhile, which changes neither the number of its events nor
/// when they happened: the copy goes on, and the erasure rewrites what of it named the person.
pub(super) async fn copy_fork(ctx: &ActivityContext, after: Seq) -> Result<Action, StoreError> {
    let Some(fork) = &ctx.state.forking else { return Ok(Action::Revive) };
    let mut events = Vec::new();
    if after < fork.at_seq {
        let original = ctx.id.sibling(&fork.conversation_id);
        events = next_page(ctx, fork, &original, after).await?;
        if events.is_empty() || !holds_blobs(ctx, fork, &original, &events).await? {
            return Ok(Action::OriginalGone);
        }
    }
    let last_seq = events.last().map_or(after, |event| event.seq);
    let is_last = last_seq >= fork.at_seq;
    Ok(Action::EventsCopied(CopiedEvents { after, events, is_last }))
}

/// The next events of the original; none if it is gone. That is judged by what is there when they have
/// been read.
async fn next_page(
    ctx: &ActivityContext,
    fork: &Fork,
    original: &Scoped<ConversationId>,
    after: Seq,
) -> Result<Vec<Event>, StoreError> {
    let left = usize::try_from(fork.at_seq.since(after)).unwrap_or(usize::MAX);
    let limit = PAGE_EVENTS.min(left);
    let mut events;
    if after <= Seq::FIRST {
        // The first event, which the fork has in its own way, tells whose events these are.
        events = ctx.services.journal.events(original, Seq::ZERO, limit + 1).await?;
        if !events.first().is_some_and(|first| is_first_of(first, fork)) {
            return Ok(Vec::new());
        }
        events.remove(0);
    } else {
        events = ctx.services.journal.events(original, after, limit).await?;
        if !is_there(ctx, fork, original).await? {
            return Ok(Vec::new());
        }
    }
    let mut bytes = 0;
    let fitting = events.iter().take_while(|event| {
        let is_first = bytes == 0;
        bytes += encoded_len(event);
        is_first || bytes <= MAX_PAGE_BYTES
    });
    let fitting = fitting.count();
    events.truncate(fitting);
    Ok(events)
}

/// Keeps the blobs that the events name until the copy names them itself. Returns whether the original
/// is there after that: then it has kept the blobs until now.
async fn holds_blobs(
    ctx: &ActivityContext,
    fork: &Fork,
    original: &Scoped<ConversationId>,
    events: &[Event],
) -> Result<bool, StoreError> {
    let named: BTreeSet<BlobId> =
        event_json(events)?.iter().flat_map(|json| named_blobs(json)).collect();
    if named.is_empty() {
        return Ok(true);
    }
    let hold = BlobHold::of_conversation(&ctx.id, ctx.services.clock.now());
    for blob in named {
        ctx.services.blobs.hold_blob(&ctx.id.sibling(&blob), &hold).await?;
    }
    is_there(ctx, fork, original).await
}

/// Whether the conversation of the original's id is the one that the fork begins with, and not a later
/// one of the same id.
async fn is_there(
    ctx: &ActivityContext,
    fork: &Fork,
    original: &Scoped<ConversationId>,
) -> Result<bool, StoreError> {
    let first = ctx.services.journal.events(original, Seq::ZERO, 1).await?;
    if !first.first().is_some_and(|first| is_first_of(first, fork)) {
        return Ok(false);
    }
    let copied = ctx.state.seq;
    if fork.created_at.is_some() || copied <= Seq::FIRST {
        return Ok(true);
    }
    // An earlier version began the fork, and did not write when the original was created.
    let before = Seq::new(copied.get() - 1);
    let theirs = ctx.services.journal.events(original, before, 1).await?;
    let own = ctx.services.journal.own_events(&ctx.id, before, 1).await?;
    let at = |events: &[Event]| events.first().map(|event| (event.seq, event.at));
    Ok(at(&theirs) == at(&own))
}

/// Whether the event is the first one of the conversation that the fork begins with.
fn is_first_of(first: &Event, fork: &Fork) -> bool {
    fork.created_at.is_none_or(|created_at| first.at == created_at)
}
