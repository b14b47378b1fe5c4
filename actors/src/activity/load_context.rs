//! Reads the events that a prompt is made of.

use abide_conversation::context::Context;
use abide_conversation::event::Event;
use abide_conversation::{ConversationId, Seq};

use super::ActivityContext;
use crate::journal::{Journal, StoreError};

/// The events that are read at once.
const PAGE_EVENTS: usize = 1_000;
/// The events that are read at once where few may be needed.
const SMALL_PAGE_EVENTS: usize = 200;
/// The bytes of events per token, generously: the JSON around the text counts, too.
const BYTES_PER_TOKEN: u64 = 8;

/// The latest summary and the events that are still shown, however long the journal is. Recent
/// events that the actor holds are not read again.
pub(super) async fn load_context(ctx: &ActivityContext) -> Result<Vec<Event>, StoreError> {
    let journal = &*ctx.services.journal;
    let id = &ctx.id;
    let context = &ctx.state.context;
    let before = context.marks.read_from.saturating_sub(1);
    let mut events = summary_event(journal, id, context, before).await?;
    if let Some(recent) = ctx.recent_events.after(before) {
        events.extend(recent);
        return Ok(events);
    }
    let mut after = before;
    loop {
        let page = journal.own_events(id, after, PAGE_EVENTS).await?;
        let is_last = page.len() < PAGE_EVENTS;
        after = page.last().map_or(after, |event| event.seq);
        events.extend(page);
        if is_last {
            return Ok(events);
        }
    }
}

/// The latest summary, and the events that it does not cover: up to the event `upto`, or a little
/// more than `tokens`.
pub(super) async fn load_oldest(
    journal: &dyn Journal,
    id: &ConversationId,
    context: &Context,
    (upto, tokens): (Seq, u64),
) -> Result<Vec<Event>, StoreError> {
    let covered = context.summary.map_or(Seq::ZERO, |summary| summary.upto);
    let mut after = covered.min(context.marks.read_from.saturating_sub(1));
    let mut events = summary_event(journal, id, context, after).await?;
    let mut left = tokens.saturating_mul(BYTES_PER_TOKEN);
    loop {
        let page = journal.own_events(id, after, SMALL_PAGE_EVENTS).await?;
        let is_last = page.len() < SMALL_PAGE_EVENTS;
        after = page.last().map_or(after, |event| event.seq);
        let bytes = |event: &Event| serde_json::to_vec(event).map_or(0, |it| it.len() as u64);
        left = left.saturating_sub(page.iter().map(bytes).sum());
        events.extend(page);
        if is_last || after >= upto || left == 0 {
            return Ok(events);
        }
    }
}

/// The event of the summary, unless it comes after `before` and is read anyway.
async fn summary_event(
    journal: &dyn Journal,
    id: &ConversationId,
    context: &Context,
    before: Seq,
) -> Result<Vec<Event>, StoreError> {
    match context.summary.filter(|summary| summary.seq <= before) {
        Some(summary) => journal.own_events(id, summary.seq.saturating_sub(1), 1).await,
        None => Ok(Vec::new()),
    }
}
