//! Deletions as the actor carries them out: a parent goes after its children, and a child that nobody
//! waits for deletes itself.

use abide_actors::conversation::ExitReason;
use abide_actors::journal::StoreError;
use abide_conversation::{Rejection, Seq, State};

use super::{Actor, DEADLINE, Delivery, Outcome, stored_response};
use crate::family::{CHILDREN_REMAIN, planned_children, stored_state};
use crate::mutation::Mutation;
use crate::notices;

impl Actor {
    /// Deletes the conversation unless it has children, and answers so. The actor stays: the next
    /// request may create it anew.
    pub(super) async fn delete(
        &mut self,
        delivery: Delivery,
        key: Option<String>,
    ) -> Result<(), ExitReason> {
        if !self.state.exists() {
            delivery.reply.send(Outcome::Rejected(Rejection::NotFound));
            return Ok(());
        }
        match self.has_children().await {
            Ok(false) => {}
            Ok(true) => {
                delivery.reply.send(Outcome::Unavailable(CHILDREN_REMAIN));
                return Ok(());
            }
            Err(_) => {
                delivery.reply.send(Outcome::Unavailable("the store is away"));
                return Ok(());
            }
        }
        match self.erase(key).await {
            Ok(()) => delivery.reply.send(Outcome::Done(Seq::ZERO)),
            Err(reason) => {
                delivery.reply.send(Outcome::Unavailable("the outcome of the write is unknown"));
                return Err(reason);
            }
        }
        Ok(())
    }

    async fn has_children(&self) -> Result<bool, StoreError> {
        if self.node.world.mutation == Some(Mutation::ChildrenOutliveParents) {
            return Ok(false);
        }
        if self.state.awaited_children().next().is_some() {
            return Ok(true);
        }
        let store = &self.node.store;
        let children = self.node.ask(DEADLINE, planned_children(store, &self.live.id)).await?;
        for child in children {
            if !self.node.ask(DEADLINE, store.events(&child, Seq::ZERO, 1)).await?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn erase(&mut self, key: Option<String>) -> Result<(), ExitReason> {
        let activities = self.live.activities.take();
        activities.values().for_each(|task| self.node.world.exec.abort(*task));
        let (node, id) = (self.node.clone(), self.live.id.clone());
        let answer = key.map(|key| stored_response(key, Seq::ZERO));
        node.world.trace(|| format!("{} deletes {id}", node.me()));
        let seq = self.state.seq.next();
        let owed = notices::owed_by_deletion(&node.world, &id, seq, node.now());
        node.ask(DEADLINE, node.store.delete(&id, &self.held, answer, owed)).await?;
        // Without a new claim the next request is fenced; the deletion is done, and is answered.
        if let Ok(held) = node.ask(DEADLINE, node.store.claim(&id, &node.me())).await {
            self.held = held;
            *self.live.held.borrow_mut() = Some(self.held.clone());
        }
        (self.state, self.cached_seq) = (State::default(), Seq::ZERO);
        self.progress_check.end();
        Ok(())
    }

    /// Deletes a fork whose original is gone before its prefix was copied.
    pub(super) async fn undo_fork(&mut self) -> Result<(), ExitReason> {
        if self.state.forking.is_some() {
            self.node.world.store.count("forks without an original");
            self.erase(None).await?;
        }
        Ok(())
    }

    /// Deletes a child that has done nothing yet if its parent does not wait for it. Returns whether
    /// it did.
    pub(super) async fn delete_if_unawaited(&mut self) -> Result<bool, ExitReason> {
        let Some(parent) = self.state.parent.as_ref().filter(|_| self.state.is_newborn_child())
        else {
            return Ok(false);
        };
        if self.node.world.mutation == Some(Mutation::ChildrenOutliveParents) {
            return Ok(false);
        }
        let parent_id = self.live.id.sibling(&parent.conversation_id);
        let stored = self.node.ask(DEADLINE, stored_state(&self.node, &parent_id));
        let id = self.live.id.local();
        let me = (&parent.call_id, &id);
        if stored.await?.awaited_children().any(|awaited| awaited == me) {
            return Ok(false);
        }
        self.node.world.store.count("children without a parent");
        self.erase(None).await?;
        Ok(true)
    }
}
