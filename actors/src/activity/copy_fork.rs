//! Copies the next page of the prefix that a fork begins with.

use std::collections::BTreeSet;

use abide_conversation::command::CopiedEvents;
use abide_conversation::{Action, BlobId, ConversationId, Event, Scoped, Seq};

use super::ActivityContext;
use crate::blobs::{BlobHold, named_blobs};
use crate::journal::{StoreError, event_json};
use crate::limits::encoded_len;

/// The events that are read and committed at once, and their bytes. A commit is one script of a
/// store, and no other conversation should wait long for it.
const PAGE_EVENTS: usize = 256;
const MAX_PAGE_BYTES: usize = 1 << 20;

pub(super) async fn copy_fork(ctx: &ActivityContext, after: Seq) -> Result<Action, StoreError> {
    let Some(fork) = &ctx.state.forking else { return Ok(Action::Revive) };
    let left = usize::try_from(fork.at_seq.since(after)).unwrap_or(usize::MAX);
    let original = ctx.id.sibling(&fork.conversation_id);
    let mut events = Vec::new();
    if goes_on(ctx, &original, after).await? {
        events = ctx.services.journal.events(&original, after, PAGE_EVENTS.min(left)).await?;
    }
    let mut bytes = 0;
    let fitting = events.iter().take_while(|event| {
        let is_first = bytes == 0;
        bytes += encoded_len(event);
        is_first || bytes <= MAX_PAGE_BYTES
    });
    let fitting = fitting.count();
    events.truncate(fitting);
    if !holds_blobs(ctx, &original, &events).await? {
        events.clear();
    }
    // A conversation that was deleted meanwhile has no more events, nor has one elsewhere.
    let is_gone = events.is_empty();
    let last_seq = events.last().map_or(after, |event| event.seq);
    Ok(Action::EventsCopied(CopiedEvents {
        after,
        events,
        is_last: is_gone || last_seq >= fork.at_seq,
    }))
}

/// Keeps the blobs that the events name until the copy names them itself. Returns whether the original
/// has the events after that: then it has kept the blobs until now.
async fn holds_blobs(
    ctx: &ActivityContext,
    original: &Scoped<ConversationId>,
    events: &[Event],
) -> Result<bool, StoreError> {
    let named: BTreeSet<BlobId> =
        event_json(events)?.iter().flat_map(|json| named_blobs(json)).collect();
    let Some(last) = events.last().filter(|_| !named.is_empty()) else { return Ok(true) };
    let hold = BlobHold::of_conversation(&ctx.id, ctx.services.clock.now());
    for blob in named {
        ctx.services.blobs.hold_blob(&ctx.id.sibling(&blob), &hold).await?;
    }
    let before = Seq::new(last.seq.get().saturating_sub(1));
    let present = ctx.services.journal.events(original, before, 1).await?;
    Ok(present.first() == Some(last))
}

/// Whether the original's journal goes on where the copy ends. An import whose process died leaves the
/// copy of a conversation of another place, and here may be another one of its name.
async fn goes_on(
    ctx: &ActivityContext,
    original: &Scoped<ConversationId>,
    after: Seq,
) -> Result<bool, StoreError> {
    if after <= Seq::FIRST {
        return Ok(true);
    }
    let before = Seq::new(after.get() - 1);
    let journal = &ctx.services.journal;
    let theirs = journal.events(original, before, 1).await?;
    Ok(theirs == journal.own_events(&ctx.id, before, 1).await?)
}
