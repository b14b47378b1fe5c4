//! The erasure of a person as the actor carries it out: an alias takes their place in the journal,
//! a page at a time, and in what is stored beside it.

use abide_actors::conversation::ExitReason;
use abide_actors::journal::{Journal as _, Rewrite, StoreError};
use abide_conversation::erase::SubjectAlias;
use abide_conversation::event::Event;
use abide_conversation::{Rejection, Seq, State, replay};

use super::{Actor, DEADLINE, Delivery, Outcome, summary};

/// The events that are read, and replaced, at once.
const PAGE_EVENTS: usize = 3;

impl Actor {
    pub(super) async fn erase_subject(
        &mut self,
        delivery: Delivery,
        alias: &SubjectAlias,
    ) -> Result<(), ExitReason> {
        if !self.state.exists() {
            delivery.reply.send(Outcome::Rejected(Rejection::NotFound));
            return Ok(());
        }
        if self.state.forking.is_some() {
            delivery.reply.send(Outcome::Unavailable("the conversation is still being copied"));
            return Ok(());
        }
        let Ok((next, is_named)) = self.folded_with(alias).await else {
            delivery.reply.send(Outcome::Unavailable("the store is away"));
            return Ok(());
        };
        if is_named {
            if let Err(error) = self.write_with(alias, &next).await {
                delivery.reply.send(Outcome::Unavailable("the outcome of the write is unknown"));
                return Err(error.into());
            }
            (self.state, self.cached_seq) = (next, Seq::ZERO);
        }
        delivery.reply.send(Outcome::Done(self.state.seq));
        Ok(())
    }

    /// The state that follows from the journal with the alias, and whether an event names the person.
    async fn folded_with(&self, alias: &SubjectAlias) -> Result<(State, bool), StoreError> {
        let (mut state, mut is_named) = (State::default(), false);
        while let Some(mut page) = self.next_page(state.seq).await? {
            for event in &mut page {
                is_named |= alias.apply(&mut event.data);
            }
            state = replay(state, &page);
        }
        if state.seq != self.state.seq {
            let reason = "the journal was read from a server that is behind".to_owned();
            return Err(StoreError::Unavailable(reason));
        }
        Ok((state, is_named))
    }

    async fn write_with(&self, alias: &SubjectAlias, next: &State) -> Result<(), StoreError> {
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
                indexed: [].into(),
                open: next.pending_calls(),
            };
            self.node.world.store.count("pages rewritten");
            let redis = self.node.store.redis();
            self.node.ask(DEADLINE, redis.rewrite(&self.live.id, &self.held, rewrite)).await?;
        }
        Ok(())
    }

    /// The next events of the own journal; `None` at its end.
    async fn next_page(&self, after: Seq) -> Result<Option<Vec<Event>>, StoreError> {
        let reading = self.node.store.redis().own_events(&self.live.id, after, PAGE_EVENTS);
        Ok(Some(self.node.ask(DEADLINE, reading).await?).filter(|page| !page.is_empty()))
    }
}
