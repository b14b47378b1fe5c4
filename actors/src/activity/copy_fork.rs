//! The next page of the prefix that a fork begins with.

use abide_conversation::Action;
use abide_conversation::command::CopiedEvents;

use super::ActivityContext;
use crate::journal::StoreError;
use crate::limits::encoded_len;

/// How many events are read and committed at once, and of how many bytes: a commit is one script of
/// a store, and no other conversation's should wait long for it.
const PAGE: usize = 256;
const BYTES: usize = 1 << 20;

pub(super) async fn copy(around: &ActivityContext, after: u64) -> Result<Action, StoreError> {
    let Some(fork) = &around.state.forking else { return Ok(Action::Revive) };
    let left = usize::try_from(fork.at_seq.saturating_sub(after)).unwrap_or(usize::MAX);
    let mut events =
        around.deps.journal.events(&fork.conversation_id, after, PAGE.min(left)).await?;
    let mut bytes = 0;
    let fits = events.iter().take_while(|event| {
        let first = bytes == 0;
        bytes += encoded_len(event);
        first || bytes <= BYTES
    });
    let fits = fits.count();
    // Of a conversation that was deleted meanwhile, no more can be had.
    let gone = events.is_empty();
    events.truncate(fits);
    let last = events.last().map_or(after, |event| event.seq);
    Ok(Action::EventsCopied(CopiedEvents { after, events, is_last: gone || last >= fork.at_seq }))
}
