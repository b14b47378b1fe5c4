//! The first request of a conversation that is new: its commit claims the conversation.

use abide_actors::conversation::ExitReason;
use abide_actors::journal::StoreError;
use abide_conversation::{Seq, decide};

use super::compose::stored_response;
use super::{Actor, Ask, DEADLINE, Delivery, Outcome};

impl Actor {
    /// Carries a request out as the first of a conversation; if nothing comes of it, as any other, once
    /// the conversation is claimed.
    pub(super) async fn deliver_first(&mut self, mut delivery: Delivery) -> Result<(), ExitReason> {
        match self.carry_out_first(&delivery).await {
            Ok(Some(seq)) => {
                delivery.request.take();
                let is_erased = self.delete_if_unawaited().await;
                delivery.reply.send(match &is_erased {
                    Ok(true) => Outcome::Rejected(abide_conversation::Rejection::NotFound),
                    Ok(false) => Outcome::Done(seq),
                    Err(_) => Outcome::Unavailable("the outcome of the write is unknown"),
                });
                is_erased.map(|_| ())
            }
            Ok(None) => {
                self.revive(None).await?;
                self.deliver(delivery).await
            }
            Err(error) => {
                delivery.request.take();
                delivery.reply.send(Outcome::Unavailable("the outcome of the write is unknown"));
                Err(error.into())
            }
        }
    }

    /// The last event, if the first commit was written; nothing if certainly nothing was written.
    async fn carry_out_first(&mut self, delivery: &Delivery) -> Result<Option<Seq>, StoreError> {
        let Some(request) = &delivery.request else { return Ok(None) };
        let Ask::Act(action) = request.ask.clone() else { return Ok(None) };
        let key = request.key.clone();
        if let Some(key) = &key {
            let stored = self.node.store.stored_response(&self.live.id, key);
            if !matches!(self.node.ask(DEADLINE, stored).await, Ok(None)) {
                return Ok(None);
            }
        }
        let Ok(events) = decide(&self.state, self.command(action)) else { return Ok(None) };
        let Some(seq) = events.last().map(|event| event.seq) else { return Ok(None) };
        match self.commit(events, key.map(|key| stored_response(key, seq))).await {
            Ok(()) => Ok(Some(seq)),
            Err(error @ StoreError::Unavailable(_)) => Err(error),
            Err(_) => Ok(None),
        }
    }
}
