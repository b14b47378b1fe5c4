//! The first request of a conversation that is new: its commit claims the conversation.

use abide_conversation::Rejection;
use ractor::ActorRef;

use super::not_done::NotDone;
use super::{ConversationMsg, ExitReason, HookVerdict, LiveConversation};
use crate::journal::StoreError;
use crate::request::{Delivery, DeliveryContent, Reply, Request, RequestContext};

impl LiveConversation {
    /// Carries out a request as the first of a conversation that does not exist. Whatever else comes of
    /// it than a commit may be wrong, since the conversation may have begun elsewhere meanwhile: then
    /// the actor claims it, and looks at the request anew.
    pub(super) async fn deliver_first(
        &mut self,
        myself: &ActorRef<ConversationMsg>,
        delivery: Box<Delivery>,
        hook_verdicts: Vec<HookVerdict>,
    ) -> Result<(), ExitReason> {
        let Some(content) = delivery.take() else { return Ok(()) };
        let done = self.carry_out_first(&content.request, &content.context).await;
        if !self.is_unclaimed() || matches!(done, Err(NotDone::Unknown(StoreError::Unavailable(_))))
        {
            let DeliveryContent { context, reply, .. } = content;
            return self.answer(myself, done, context, reply);
        }
        // Returns to its sender if another node holds the conversation.
        let delivery = Box::new(Delivery::again(content));
        Box::pin(self.revive()).await?;
        Box::pin(self.deliver(myself, delivery, hook_verdicts)).await
    }

    async fn carry_out_first(
        &mut self,
        request: &Request,
        context: &RequestContext,
    ) -> Result<Reply, NotDone> {
        if !matches!(request, Request::Create(_) | Request::Send(_) | Request::Spawn(_)) {
            return Err(Rejection::NotFound.into());
        }
        self.check_access(request, &context.access)?;
        match self.stored_reply(&context.idempotency_keys).await? {
            Some(first) => Ok(first),
            None => self.carry_out(Box::new(request.clone()), context, Vec::new()).await,
        }
    }
}
