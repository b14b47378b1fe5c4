//! Puts an alias in the place of an erased subject, in the journal and in all that follows from it.

use std::sync::Arc;

use abide_conversation::erase::SubjectAlias;
use abide_conversation::event::Event;
use abide_conversation::{Rejection, Seq, State, replay};

use super::not_done::NotDone;
use super::relist::summary;
use super::{LiveConversation, with_store_timeout};
use crate::journal::{Rewrite, StoreError};
use crate::recent_events::RecentEvents;
use crate::request::{Reply, RequestError};

/// How many events are read at once, and how many are replaced in one step: each may be a megabyte.
const EVENT_PAGE_SIZE: usize = 32;

impl LiveConversation {
    /// Replaces the events that name the subject, with the same numbers.
    ///
    /// The first step also writes what is stored beside the journal. So whoever repeats the request
    /// after a crash finds events that still name the subject, and goes on, or finds everything done.
    pub(super) async fn erase_subject(&mut self, alias: &SubjectAlias) -> Result<Reply, NotDone> {
        if !self.state.exists() {
            return Err(Rejection::NotFound.into());
        }
        if self.state.forking.is_some() {
            let reason = "the conversation is still being copied".to_owned();
            return Err(RequestError::Unavailable(reason).into());
        }
        let (next, named) = self.folded_with(alias).await?;
        if named > 0 {
            self.write_with(alias, &next).await.map_err(NotDone::Unknown)?;
            self.state = Arc::new(next);
            self.recent_events = RecentEvents::default();
            self.cached_seq = Seq::ZERO;
        }
        Ok(Reply::SubjectErased { events: named })
    }

    /// The state that follows from the journal with the alias, and how many events name the subject.
    async fn folded_with(&self, alias: &SubjectAlias) -> Result<(State, u64), StoreError> {
        let (mut state, mut named) = (State::default(), 0);
        while let Some(mut page) = self.next_page(state.seq).await? {
            for event in &mut page {
                named += u64::from(alias.apply(&mut event.data));
            }
            state = replay(state, &page);
        }
        if state.seq != self.state.seq {
            // What names the subject may be in the events that the server lacks.
            let reason = "the journal was read from a server that is behind".to_owned();
            return Err(StoreError::Unavailable(reason));
        }
        Ok((state, named))
    }

    async fn write_with(&self, alias: &SubjectAlias, next: &State) -> Result<(), StoreError> {
        let indexed = self.indexed_keys(next).await?;
        let mut last = Seq::ZERO;
        while let Some(mut page) = self.next_page(last).await? {
            last = page.last().map_or(next.seq, |event| event.seq);
            page.retain_mut(|event| alias.apply(&mut event.data));
            if page.is_empty() {
                continue;
            }
            let rewrite = Rewrite {
                events: page,
                summary: summary(next),
                indexed: indexed.clone(),
                open: next.pending_calls(),
            };
            let rewriting = self.services.journal.rewrite(&self.id, &self.claim, rewrite);
            with_store_timeout(rewriting).await?;
        }
        Ok(())
    }

    /// The next events of the own journal; `None` at its end.
    async fn next_page(&self, after: Seq) -> Result<Option<Vec<Event>>, StoreError> {
        let reading = self.services.journal.own_events(&self.id, after, EVENT_PAGE_SIZE);
        Ok(Some(with_store_timeout(reading).await?).filter(|page| !page.is_empty()))
    }
}
