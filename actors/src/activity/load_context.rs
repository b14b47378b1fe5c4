//! Reads the events that a prompt is made of: those of the branch that counts.

use abide_conversation::Seq;
use abide_conversation::event::Event;

use super::ActivityContext;
use crate::journal::StoreError;

/// The events that are read at once.
const PAGE_EVENTS: usize = 1_000;
/// The events that are read at once where few may be needed.
const SMALL_PAGE_EVENTS: usize = 200;
/// The bytes of events per token, generously: the JSON around the text counts, too.
const BYTES_PER_TOKEN: u64 = 8;

/// The events of a prompt.
pub(super) struct ContextEvents<'a> {
    /// Those that were read of the journal.
    read: Vec<Event>,
    /// Those after them, which the actor holds.
    held: Vec<&'a Event>,
}

impl ContextEvents<'_> {
    pub(super) fn all(&self) -> Vec<&Event> {
        self.read.iter().chain(self.held.iter().copied()).collect()
    }
}

/// The latest summary and the events that are still shown, however long the journal is. Recent
/// events that the actor holds are not read again, and messages that wait in the queue are not read
/// at all: they may have a hundred megabytes.
pub(super) async fn load_context(ctx: &ActivityContext) -> Result<ContextEvents<'_>, StoreError> {
    let before = ctx.state.context.marks.read_from.saturating_sub(1);
    let mut read = summary_event(ctx, before).await?;
    if let Some(recent) = ctx.recent_events.after(before) {
        let context = &ctx.state.context;
        let held = recent.filter(|event| context.counts(event.seq)).collect();
        return Ok(ContextEvents { read, held });
    }
    let mut pages = Pages { ctx, after: before };
    while let Some(page) = pages.next(PAGE_EVENTS).await? {
        read.extend(page);
    }
    Ok(ContextEvents { read, held: Vec::new() })
}

/// The latest summary, and the events that it does not cover, except messages that wait in the
/// queue: up to the event `upto`, or a little more than `tokens`.
pub(super) async fn load_oldest(
    ctx: &ActivityContext,
    upto: Seq,
    tokens: u64,
) -> Result<Vec<Event>, StoreError> {
    let context = &ctx.state.context;
    let covered = context.summary.map_or(Seq::ZERO, |summary| summary.upto);
    let after = covered.min(context.marks.read_from.saturating_sub(1));
    let mut events = summary_event(ctx, after).await?;
    let mut left = tokens.saturating_mul(BYTES_PER_TOKEN);
    let mut pages = Pages { ctx, after };
    while pages.after < upto
        && left > 0
        && let Some(page) = pages.next(SMALL_PAGE_EVENTS).await?
    {
        let bytes = |event: &Event| serde_json::to_vec(event).map_or(0, |it| it.len() as u64);
        left = left.saturating_sub(page.iter().map(bytes).sum());
        events.extend(page);
    }
    Ok(events)
}

/// The event of the summary, unless it comes after `before` and is read anyway.
async fn summary_event(ctx: &ActivityContext, before: Seq) -> Result<Vec<Event>, StoreError> {
    match ctx.state.context.summary.filter(|summary| summary.seq <= before) {
        Some(summary) => {
            ctx.pending_commit.wait().await;
            let journal = &ctx.services.journal;
            journal.own_events(&ctx.id, summary.seq.saturating_sub(1), 1).await
        }
        None => Ok(Vec::new()),
    }
}

/// Reads the journal up to the state of the activity, without the messages that wait in the queue and
/// the branches that were left.
struct Pages<'a> {
    ctx: &'a ActivityContext,
    /// The last event that was read or left out.
    after: Seq,
}

impl Pages<'_> {
    /// At most `limit` events; `None` after the last.
    async fn next(&mut self, limit: usize) -> Result<Option<Vec<Event>>, StoreError> {
        let ActivityContext { id, state, services, pending_commit, .. } = self.ctx;
        let branches = &state.context.left_branches;
        while let Some(left) = branches.iter().find(|left| left.contains(self.after.next())) {
            self.after = left.until.saturating_sub(1);
        }
        let before = self.after;
        let mut queued = state.queued_messages().skip_while(move |seq| *seq <= before).peekable();
        while queued.next_if_eq(&self.after.next()).is_some() {
            self.after = self.after.next();
        }
        let last = queued.next().map_or(state.seq, |seq| seq.saturating_sub(1));
        let next_branch =
            branches.iter().map(|left| left.after).filter(|after| *after > self.after);
        let last = next_branch.min().map_or(last, |after| last.min(after));
        let wanted = usize::try_from(last.since(self.after)).unwrap_or(usize::MAX);
        if wanted == 0 {
            return Ok(None);
        }
        pending_commit.wait().await;
        let page = services.journal.own_events(id, self.after, wanted.min(limit)).await?;
        // Nothing is left of a conversation that was deleted meanwhile.
        let Some(event) = page.last() else { return Ok(None) };
        self.after = event.seq;
        Ok(Some(page))
    }
}
