//! Deletes a conversation with its children, wherever they live.

use abide_actors::access::Access;
use abide_actors::conversation;
use abide_actors::journal::StoreError;
use abide_actors::notices::OwedNotice;
use abide_actors::request::{
    DeletionCondition, DeletionReason, Reply, Request, RequestContext, RequestError,
};
use abide_conversation::identity::Participants;
use abide_conversation::{ConversationId, Scoped, State};

use super::{ConversationRouter, unavailable};
use crate::host::HostMsg;

/// How often a deletion finds that the conversation has children, and has spawned more meanwhile,
/// before its client is asked to try again.
const MAX_DELETION_ATTEMPTS: usize = 8;

impl ConversationRouter {
    /// Deletes a conversation after its children, so that whoever repeats the request when it fails
    /// goes on where it ended.
    pub(super) async fn delete(
        &self,
        id: &Scoped<ConversationId>,
        request: &Request,
        context: RequestContext,
    ) -> Result<Reply, RequestError> {
        let reason = request.deletion_reason().unwrap_or(DeletionReason::Request);
        self.check_may_delete(id, &context.access).await?;
        if self.quarantined_here(id).await.is_some() {
            return self.delete_quarantined(id, request, reason).await;
        }
        let mut unreadable = match self.report_deletion_to_parent(id).await {
            Ok(()) => None,
            Err(error @ RequestError::Store(StoreError::Unreadable(_))) => Some(error),
            Err(error) => return Err(error),
        };
        for _ in 0..MAX_DELETION_ATTEMPTS {
            match self.route_in_time(id, Box::new(request.clone()), context.clone()).await {
                // More may be spawned meanwhile.
                Err(RequestError::ChildrenRemain) => {
                    Box::pin(self.delete_children(id, reason)).await?;
                }
                // An actor that cannot read its journal ends in quarantine, from where it is deleted.
                // Its node learns of the end a moment later.
                Err(
                    error @ (RequestError::Lost
                    | RequestError::Quarantined(_)
                    | RequestError::Store(StoreError::Unreadable(_))),
                ) if unreadable.is_some() => {
                    if self.quarantined_here(id).await.is_some() {
                        return self.delete_quarantined(id, request, reason).await;
                    }
                    unreadable = Some(error);
                }
                outcome => return outcome,
            }
        }
        let spawning = || unavailable("the conversation keeps spawning sub-agents");
        Err(unreadable.unwrap_or_else(spawning))
    }

    /// Judges a deletion before its children are touched. One whose journal cannot be read is
    /// deleted by those who may delete any.
    async fn check_may_delete(
        &self,
        id: &Scoped<ConversationId>,
        access: &Access,
    ) -> Result<(), RequestError> {
        if access.is_unrestricted() {
            return Ok(());
        }
        let (participants, created_at) = match self.stored_state(id).await {
            Ok(Some(state)) => (state.participants, state.created_at),
            Ok(None) => return Ok(()),
            Err(error) => {
                let judged = access.check(&Participants::default(), None);
                return judged.map_err(|_| error);
            }
        };
        Ok(access.check(&participants, created_at)?)
    }

    async fn delete_quarantined(
        &self,
        id: &Scoped<ConversationId>,
        request: &Request,
        reason: DeletionReason,
    ) -> Result<Reply, RequestError> {
        if !self.is_due_in_quarantine(id, request).await? {
            return Ok(Reply::NotDue);
        }
        let reported = self.report_deletion_to_parent(id).await;
        let children = match reported {
            Ok(()) => Box::pin(self.delete_children(id, reason)).await,
            Err(error) => Err(error),
        };
        // Its journal may be what cannot be read, and it must go nevertheless.
        let children = children.unwrap_or_else(|error| {
            tracing::warn!(conversation = %id, content = %error, "children not deleted");
            Default::default()
        });
        let reply = self.delete_here(id, request).await?;
        // A message of the parent's last process may have created a child anew.
        Box::pin(self.delete_all(&children, reason)).await?;
        Ok(reply)
    }

    /// Whether a conversation without an actor meets the condition of its deletion. One that is only
    /// idle is left to the operator, who has to look at it.
    async fn is_due_in_quarantine(
        &self,
        id: &Scoped<ConversationId>,
        request: &Request,
    ) -> Result<bool, RequestError> {
        match request {
            Request::DeleteIf(DeletionCondition::IdleSince(_)) => Ok(false),
            Request::DeleteIf(DeletionCondition::Expired) => {
                let summary = self.store.summary(id).await?;
                let expires_at = summary.and_then(|summary| summary.listing.expires_at);
                Ok(expires_at.is_some_and(|expires_at| expires_at <= self.services.clock.now()))
            }
            _ => Ok(true),
        }
    }

    /// Deletes a conversation whose actor cannot live on this node.
    pub(crate) async fn delete_here(
        &self,
        id: &Scoped<ConversationId>,
        request: &Request,
    ) -> Result<Reply, RequestError> {
        let reason = request.deletion_reason().unwrap_or(DeletionReason::Request);
        if !self.is_due_in_quarantine(id, request).await? {
            return Ok(Reply::NotDue);
        }
        let me = self.services.lease.me();
        let claim = self.store.claim(id, &me, Some(&me)).await?;
        if claim.holder != me {
            return Err(StoreError::Fenced.into());
        }
        // A journal that cannot be read does not keep the conversation.
        let state = self.stored_state(id).await.ok().flatten();
        let owed = self.owed_for_deletion(id, state.as_ref(), reason).await?;
        self.store.delete(id, &claim, None, owed).await?;
        conversation::note_deletion(id, reason);
        if let Some(state) = state {
            conversation::discard_workspace(&self.services, id, &state).await;
        }
        // A host that has ended has forgotten everything.
        let _ = self.host.cast(HostMsg::Forget(id.clone()));
        Ok(Reply::Deleted)
    }

    /// What the deletion of a conversation owes whose journal may be unreadable.
    async fn owed_for_deletion(
        &self,
        id: &Scoped<ConversationId>,
        state: Option<&State>,
        reason: DeletionReason,
    ) -> Result<Vec<OwedNotice>, StoreError> {
        let unreadable = match state {
            Some(_) => None,
            None => self.store.summary(id).await?.map(|summary| State {
                seq: summary.last_seq,
                agent: Some(summary.agent),
                metadata: summary.metadata,
                ..State::default()
            }),
        };
        match state.or(unreadable.as_ref()) {
            Some(state) => conversation::owed_for_deletion(&self.services, id, state, reason).await,
            None => Ok(Vec::new()),
        }
    }
}
