//! Reads of the journal what a prompt is drawn from.

use abide_conversation::ConversationId;
use abide_conversation::context::Context;
use abide_conversation::event::Event;

use super::ActivityContext;
use crate::journal::{Journal, StoreError};

/// How many events are read at once.
const PAGE: usize = 1_000;
/// The same where little may be needed.
const SMALL_PAGE: usize = 200;
/// As bytes of events: what stands around the text included, a token has a few.
const BYTES: u64 = 8;

/// The latest summary and the tail, and nothing else, however long the journal is. What the actor has
/// of them is not read.
pub(super) async fn context(around: &ActivityContext) -> Result<Vec<Event>, StoreError> {
    let (journal, id, context) = (&*around.deps.journal, &around.id, &around.state.context);
    let before = context.marks.read_from.saturating_sub(1);
    let mut events = summary(journal, id, context, before).await?;
    if let Some(tail) = around.tail.after(before) {
        events.extend(tail);
        return Ok(events);
    }
    let mut after = before;
    loop {
        let page = journal.events(id, after, PAGE).await?;
        let is_last = page.len() < PAGE;
        after = page.last().map_or(after, |event| event.seq);
        events.extend(page);
        if is_last {
            return Ok(events);
        }
    }
}

/// The latest summary, and what it does not cover: up to the event `upto`, or a little more than so
/// many tokens.
pub(super) async fn oldest(
    journal: &dyn Journal,
    id: &ConversationId,
    context: &Context,
    (upto, tokens): (u64, u64),
) -> Result<Vec<Event>, StoreError> {
    let covered = context.summary.map_or(0, |summary| summary.upto);
    let mut after = covered.min(context.marks.read_from.saturating_sub(1));
    let mut events = summary(journal, id, context, after).await?;
    let mut left = tokens.saturating_mul(BYTES);
    loop {
        let page = journal.events(id, after, SMALL_PAGE).await?;
        let is_last = page.len() < SMALL_PAGE;
        after = page.last().map_or(after, |event| event.seq);
        let bytes = |event: &Event| serde_json::to_vec(event).map_or(0, |it| it.len() as u64);
        left = left.saturating_sub(page.iter().map(bytes).sum());
        events.extend(page);
        if is_last || after >= upto || left == 0 {
            return Ok(events);
        }
    }
}

/// The event that has the summary, if it is not read anyway after `before`.
async fn summary(
    journal: &dyn Journal,
    id: &ConversationId,
    context: &Context,
    before: u64,
) -> Result<Vec<Event>, StoreError> {
    match context.summary.filter(|summary| summary.seq <= before) {
        Some(summary) => journal.events(id, summary.seq.saturating_sub(1), 1).await,
        None => Ok(Vec::new()),
    }
}
